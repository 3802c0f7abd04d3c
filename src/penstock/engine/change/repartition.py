"""Cutting the state of a keyed operator into another number of tasks: the one change that stops an operator.

Within its tasks an operator scales while it runs. For more instances than tasks, Spark's offline repartition rewrites
the state into as many partitions as asked for; the query is stopped for that time, all others go on. A driver that is
killed meanwhile finishes it when it is started again: Spark starts no query on a checkpoint that is half rewritten.
"""

from __future__ import annotations

import re
import time

from penstock.clock import run_time
from penstock.engine.run.keeping import FINAL
from penstock.engine.run.queries import StaysStopped
from penstock.engine.run.rewriting import enter_rewriting, was_cut_off
from penstock.engine.run.run import Run
from penstock.engine.spark.java_errors import SPARK_ERRORS, SparkError
from penstock.engine.spark.state_partitions import repartition_state
from penstock.engine.state.sizes import logged_batches
from penstock.engine.state.tasks import begin, dealt_anew, give_up, record_tasks, under_way
from penstock.errors import PenstockError
from penstock.logs import LOGGER, traced
from penstock.plans.repartition import Repartition, check_repartition, repartition_failed, with_tasks

#: How often a repartition is tried when Spark finds that the last batch was cut off.
ATTEMPTS = 3
#: Spark has cut the state, and only the catalog does not know: it is tried for so many seconds, so far apart. A full
#: disk may have room by then; a server that is restarted is waited for within each try. A stop waits for that, too.
CATALOG_SECONDS, CATALOG_PAUSE = 30.0, 1.0


def carry_out(run: Run, operator: str, tasks: int) -> Repartition:
    """Cut the state of a keyed operator into so many tasks; its instances stay what and where they are."""
    was = check_repartition(run.definition, operator, tasks, run.placement.total(operator)).tasks
    _check_none_is_half_done(run, operator, tasks)
    began = time.monotonic()
    with run.queries.stopped(operator):
        try:
            seconds = _rewrite(run, operator, tasks)
        except BaseException as error:
            begun = under_way(run.catalog) is not None and _has_begun(run, operator)
            if not begun:
                give_up(run.catalog)
            if not isinstance(error, SparkError):
                raise
            raise PenstockError(
                "REPARTITION_FAILED",
                f'Spark could not repartition "{operator}": {_reason(error)}.',
                "Start the topology again on its state: the start finishes the repartition."
                if begun
                else "The operator goes on with the tasks that it had.",
            ) from error
        _tell_catalog(run, operator, tasks)
        placement = dealt_anew(run.placement, operator, tasks)
        run.redefine(with_tasks(run.definition, {operator: tasks}), placement)
    run.placed_anew(run_time())
    report = Repartition(operator, was, tasks, seconds, time.monotonic() - began)
    run.happened(
        "action",
        f"the state has {tasks} tasks now, and had {was}: the operator stood still for {report.stopped_seconds:.1f} s",
        operator,
    )
    return report


def _check_none_is_half_done(run: Run, operator: str, tasks: int) -> None:
    """Refuse a repartition while another one is recorded as under way: Spark finishes a rewriting only with the same
    number of tasks, and the next start knows only the one that is recorded."""
    unfinished = under_way(run.catalog)
    if unfinished not in (None, (operator, tasks)):
        raise repartition_failed(
            f'the repartition of "{unfinished[0]}" into {unfinished[1]} tasks is half done.',
            "Start the topology again on its state: the start finishes that repartition.",
        )


def _has_begun(run: Run, operator: str) -> bool:
    """Whether Spark has begun to rewrite the state, or has rewritten it and its answer was lost. If the checkpoint
    cannot be read, Spark may have begun: the next start finds out."""
    with traced(f"the checkpoint of {operator} cannot be read after a repartition failed", OSError, ValueError):
        planned, finished = logged_batches(run.context.checkpoint(operator))
        published = run.catalog.last_batch(operator)
        return planned > finished or finished > (-1 if published is None else published)
    return True


def _rewrite(run: Run, operator: str, tasks: int) -> float:
    """Have Spark rewrite the state, and say how many seconds Spark took. Spark refuses a checkpoint whose last batch
    was cut off: that batch is finished first. Where no batch was ever begun, there is no state to rewrite."""
    for _ in range(ATTEMPTS):
        if run.context.checkpoint_log(operator).planned() < 0:
            return 0.0
        began = time.monotonic()
        begin(run.catalog, operator, tasks)
        try:
            repartition_state(run.host.spark, run.context.checkpoint(operator), tasks)
            return time.monotonic() - began
        except SPARK_ERRORS as error:
            if not was_cut_off(error):
                raise
            LOGGER.info("the last batch of %s was cut off: it is finished before Spark rewrites the state", operator)
        give_up(run.catalog)  # a driver that ends now has begun nothing
        run.queries.finish_batch(operator)
    raise repartition_failed(
        f'the last batch of "{operator}" was cut off again and again.', "Try it when there is less load."
    )


def _tell_catalog(run: Run, operator: str, tasks: int) -> None:
    """Enter in the catalog what Spark has done: both steps can be done again. If that fails for too long, the query
    must not be started: it would find batches in its checkpoint that the catalog does not know, and say that the
    catalog went back. The next start of the topology finishes the repartition."""
    deadline, is_told = time.monotonic() + CATALOG_SECONDS, False
    while True:
        try:
            enter_rewriting(run.context, operator)
            record_tasks(run.catalog, operator, tasks)
            return
        except Exception as error:
            if isinstance(error, PenstockError) and error.name in FINAL:
                raise StaysStopped(error.name, error.message, error.hint) from error
            LOGGER.info("the catalog could not be told of the repartition of %s", operator, exc_info=True)
            if not is_told:
                is_told = True
                run.happened(
                    "fault", f"its state is cut anew, and the catalog could not be told yet: {error}", operator
                )
            if run.has_stopped or time.monotonic() > deadline:
                # Without the words of the cause: over those of a full disk, the query would be started again.
                raise StaysStopped(
                    "REPARTITION_FAILED",
                    f'Spark has cut the state of "{operator}" into {tasks} tasks, and the catalog could not be told.',
                    "See to the catalog; the log has the cause. Start the topology again on its state: the start "
                    "finishes the repartition.",
                ) from error
        time.sleep(CATALOG_PAUSE)


def _reason(error: Exception) -> str:
    """The line of Spark's message that says what is wrong, without the classes around it."""
    found = re.search(r"\[[A-Z_.]+\][^\n]*", str(error))
    return (found[0] if found else str(error).splitlines()[0]).rstrip(".")
