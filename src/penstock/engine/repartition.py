"""Cutting the state of a keyed operator into another number of tasks: the one change that stops an operator.

Within its tasks an operator scales while it runs. For more instances than tasks, Spark's offline repartition rewrites
the state into as many partitions as asked for; the query is stopped for that time, all others go on. A driver that is
killed meanwhile finishes it when it is started again: Spark starts no query on a checkpoint that is half rewritten.
"""

from __future__ import annotations

import dataclasses
import json
import re
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from penstock.channels.catalog import Catalog
from penstock.clock import run_time
from penstock.cluster.model import Placement
from penstock.engine.manifest import BatchReport
from penstock.engine.spark_internals import repartition_state
from penstock.engine.state_sizes import logged_batches
from penstock.errors import PenstockError
from penstock.strategies.mapping.round_robin import deal_tasks
from penstock.topology.definition import Keyed, TopologyDefinition

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.engine.operator_frames import Environment
    from penstock.engine.runtime import Run

#: How often it is tried when Spark finds the last batch cut off.
ATTEMPTS = 3

_TASKS = "tasks"
_UNDER_WAY = "repartition"


@dataclass(frozen=True)
class Repartition:
    """What it was and what it took: seconds for Spark's rewriting, and seconds without the operator in all."""

    operator: str
    tasks_before: int
    tasks_after: int
    repartition_seconds: float
    stopped_seconds: float


def with_tasks(definition: TopologyDefinition, tasks: Mapping[str, int]) -> TopologyDefinition:
    """The topology with these numbers of tasks instead of the declared ones."""
    operators = tuple(
        dataclasses.replace(one, tasks=tasks[one.name]) if isinstance(one, Keyed) and one.name in tasks else one
        for one in definition.operators
    )
    return dataclasses.replace(definition, operators=operators)


def check_repartition(definition: TopologyDefinition, operator: str, tasks: int, instances: int) -> Keyed:
    """The operator, if its state can be cut into so many tasks."""
    known = {one.name: one for one in definition.operators}
    found = known.get(operator)
    if not isinstance(found, Keyed):
        keyed = ", ".join(one.name for one in definition.operators if isinstance(one, Keyed)) or "none"
        raise _failed(f'"{operator}" is no keyed operator of this topology.', f"Its keyed operators are: {keyed}.")
    if tasks < instances:
        raise _failed(
            f'"{operator}" has {instances} instances, too many for {tasks} tasks.',
            f"First: penstock set-instances {operator} {tasks}",
        )
    if tasks == found.tasks:
        raise _failed(f'"{operator}" has {tasks} tasks already.', "Nothing was changed.")
    return found


def dealt_anew(placement: Placement, operator: str, tasks: int) -> Placement:
    """So many tasks of an operator on the slots where its instances are."""
    return Placement(placement.instances, {**placement.tasks, operator: deal_tasks(tasks, placement.of(operator))})


def recorded_tasks(catalog: Catalog) -> dict[str, int]:
    """The tasks of operators whose state was repartitioned, by name."""
    return dict(json.loads(catalog.get_meta(_TASKS) or "{}"))


def record_tasks(catalog: Catalog, operator: str, tasks: int) -> None:
    catalog.set_meta(_TASKS, json.dumps(recorded_tasks(catalog) | {operator: tasks}))
    catalog.set_meta(_UNDER_WAY, "")


def begin(catalog: Catalog, operator: str, tasks: int) -> None:
    catalog.set_meta(_UNDER_WAY, json.dumps({"operator": operator, "tasks": tasks}))


def give_up(catalog: Catalog) -> None:
    catalog.set_meta(_UNDER_WAY, "")


def enter_rewriting(environment: Environment, operator: str) -> None:
    """Spark counts the rewriting of state as a batch of its own. It is entered in the catalog as one without rows, so
    that the batches of both are the same."""
    log, channels = environment.checkpoint_log(operator), environment.channels
    batch, now = log.finished(), run_time()
    last = channels.last_batch(operator)
    if batch > (-1 if last is None else last):
        report = BatchReport(operator, batch, now, now, 0, {}, (), ends=log.ends(batch, of_source=False) or {})
        channels.publish(operator, batch, [], report.as_json(), {})


def under_way(catalog: Catalog) -> tuple[str, int] | None:
    """The repartition that was going on when the driver ended: operator and tasks."""
    text = catalog.get_meta(_UNDER_WAY)
    fields = json.loads(text) if text else None
    return (fields["operator"], fields["tasks"]) if fields else None


def forgotten(catalog: Catalog, operators: Collection[str]) -> dict[str, str]:
    """What is to be recorded, by key, when these operators begin anew or are gone."""
    tasks, unfinished = recorded_tasks(catalog), under_way(catalog)
    found = {_TASKS: json.dumps({name: count for name, count in tasks.items() if name not in operators})}
    return found | ({_UNDER_WAY: ""} if unfinished is not None and unfinished[0] in operators else {})


def finish(spark: SparkSession, environment: Environment, catalog: Catalog) -> str:
    """Finish what was going on when the driver ended, before any query starts; what was done about it, in words. If the
    operator's last batch was cut off Spark had not begun, and cannot now: then the operator keeps the tasks it had."""
    unfinished = under_way(catalog)
    if unfinished is None:
        return ""
    operator, tasks = unfinished
    try:
        repartition_state(spark, environment.checkpoint(operator), tasks)
    except (PySparkException, Py4JError) as error:
        if not _was_cut_off(error):
            raise
        give_up(catalog)
        return f'the repartition of "{operator}" into {tasks} tasks had not begun, and is given up'
    enter_rewriting(environment, operator)
    record_tasks(catalog, operator, tasks)
    return f'the repartition of "{operator}" into {tasks} tasks was finished'


def _was_cut_off(error: Exception) -> bool:
    """Whether Spark refuses a checkpoint because its last batch has no end."""
    return "LAST_BATCH_FAILED" in str(error)


def carry_out(run: Run, operator: str, tasks: int) -> Repartition:
    """Cut the state of a keyed operator into so many tasks; its instances stay what and where they are."""
    was = check_repartition(run.definition, operator, tasks, run.placement.total(operator)).tasks
    began = time.monotonic()
    with run.queries.stopped(operator):
        begin(run.catalog, operator, tasks)
        try:
            seconds = _rewrite(run, operator, tasks)
        except BaseException as error:
            begun = _has_begun(run, operator)
            if not begun:
                give_up(run.catalog)
            if not isinstance(error, PySparkException | Py4JError):
                raise
            raise PenstockError(
                "REPARTITION_FAILED",
                f'Spark could not repartition "{operator}": {_reason(error)}.',
                "Start the topology again on its state: it is finished then."
                if begun
                else "It goes on with the tasks it had.",
            ) from error
        enter_rewriting(run.environment, operator)
        record_tasks(run.catalog, operator, tasks)
        placement = dealt_anew(run.placement, operator, tasks)
        run.redefine(with_tasks(run.definition, {operator: tasks}), placement)
    run.placed_anew(run_time())
    report = Repartition(operator, was, tasks, seconds, time.monotonic() - began)
    run.happened("action", f"{tasks} tasks, not {was}: it stood still {report.stopped_seconds:.1f} s", operator)
    return report


def _has_begun(run: Run, operator: str) -> bool:
    """Whether Spark has begun to rewrite the state, or has done it and its answer was lost. A checkpoint that cannot be
    read may be so: it is left to the next start, which finds out."""
    try:
        planned, finished = logged_batches(run.environment.checkpoint(operator))
    except (OSError, ValueError):
        return True
    published = run.catalog.last_batch(operator)
    return planned > finished or finished > (-1 if published is None else published)


def _rewrite(run: Run, operator: str, tasks: int) -> float:
    """How long Spark took. It refuses a checkpoint whose last batch was cut off: that one is finished first."""
    for _ in range(ATTEMPTS):
        began = time.monotonic()
        try:
            repartition_state(run.host.spark, run.environment.checkpoint(operator), tasks)
            return time.monotonic() - began
        except (PySparkException, Py4JError) as error:
            if not _was_cut_off(error):
                raise
        run.queries.finish_batch(operator)
    raise _failed(f'"{operator}" was cut off in a batch again and again.', "Try it when there is less load.")


def _reason(error: Exception) -> str:
    """The line of Spark's message that says what is wrong, without the classes around it."""
    found = re.search(r"\[[A-Z_.]+\][^\n]*", str(error))
    return (found[0] if found else str(error).splitlines()[0]).rstrip(".")


def _failed(message: str, hint: str) -> PenstockError:
    return PenstockError("REPARTITION_FAILED", message, hint)
