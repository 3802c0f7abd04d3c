"""Which keyed operators need no shuffle, and why the others do. Spark's own planner is asked, before any query starts.

An operator's function is called with streams that say that their rows are split by the key. If Spark's plan of the
result has fewer Exchanges than without that, the operator's tasks read their rows themselves. It must be Spark's
answer: the function is the user's, and only the planner knows which rows its stateful steps must have together.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations

from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from penstock.channels.key_hashes import Key
from penstock.channels.layout import why_not_hashed
from penstock.engine.query.rehearsal import frame_of, input_groups
from penstock.engine.spark.internals import SparkInternals
from penstock.engine.spark.stream_plans import explained
from penstock.logs import LOGGER
from penstock.settings import Settings
from penstock.topology.definition import Keyed, TopologyDefinition

#: Of keys of more columns than this, only the declared order is tried: there would be too many.
MOST_COLUMNS = 3


@dataclass(frozen=True)
class Splitting:
    """How the rows of a keyed operator reach the tasks that hold their keys."""

    #: The key's columns in the order in which Spark hashes them; empty if Spark shuffles the rows.
    key: Key = ()
    #: Why Spark shuffles the rows, or what else it shuffles inside the operator; empty if there is no shuffle at all.
    why: str = ""


def splittings(
    definition: TopologyDefinition, settings: Settings, spark: SparkSession, internals: SparkInternals | None
) -> dict[str, Splitting]:
    """By keyed operator. An operator that cannot do without a shuffle is no error: it says why."""
    return {
        operator.name: _splitting(definition, operator, settings, spark, internals)
        for operator in definition.operators
        if isinstance(operator, Keyed)
    }


def _splitting(
    definition: TopologyDefinition,
    operator: Keyed,
    settings: Settings,
    spark: SparkSession,
    internals: SparkInternals | None,
) -> Splitting:
    if settings.shuffle != "none":
        return Splitting(why=f"the setting shuffle is {settings.shuffle}")
    if internals is None:
        return Splitting(why="Spark chooses where bundles run")
    if why := why_not_hashed(definition, operator):
        return Splitting(why=why)
    schemas = [from_arrow_schema(definition.schema_of_all(group)) for group in input_groups(definition, operator)]

    def planned(key: Key) -> str:
        session = spark.newSession()  # as in the run: functions may name their views alike
        session.conf.set("spark.sql.shuffle.partitions", str(operator.tasks))
        streams = [internals.split_of_no_rows(session, schema, key, operator.tasks) for schema in schemas]
        return explained(frame_of(operator, operator.function, streams))

    try:
        return chosen(operator.key, planned)
    except Exception as problem:  # the function is the user's, and what it is called with is new to it
        LOGGER.info('Spark did not plan "%s" without a shuffle', operator.name, exc_info=True)
        return Splitting(why=f"Spark could not be asked for another plan ({type(problem).__name__})")


def chosen(key: Key, planned: Callable[[Key], str]) -> Splitting:
    """The order of the key's columns with which Spark's plan has the fewest Exchanges. `planned` gives the plan of
    rows that are split by a key; with no key they are not split."""
    usual = len(_exchanges(planned(())))
    if not usual:
        return Splitting()  # it keeps no state by key, so its rows may go to any bundle
    found: list[tuple[Key, Sequence[str]]] = []
    for order in permutations(key) if len(key) <= MOST_COLUMNS else [key]:
        found.append((order, _exchanges(plan := planned(order))))
        if not found[-1][1]:
            return Splitting(order)
    order, left = min(found, key=lambda one: len(one[1]))
    if len(left) < usual:
        return Splitting(order, f"inside it, Spark still shuffles {len(left)} of {usual} times ({'; '.join(left)})")
    watermark = ", and its plan forgets at a watermark how rows are split" if "EventTimeWatermark" in plan else ""
    return Splitting(why=f"Spark needs its rows by {'; '.join(left)}{watermark}")


def _exchanges(plan: str) -> list[str]:
    """By what each Exchange of a plan splits the rows, without Spark's numbers of columns."""
    return [re.sub(r"#\d+L?", "", one) for one in re.findall(r"\bExchange (.+?), [A-Z_]+, \[", plan)]


def hashed_keys(splits: Mapping[str, Splitting]) -> dict[str, Key]:
    """By operator that needs no shuffle: the key whose hashes are to be beside the rows that it reads."""
    return {name: one.key for name, one in splits.items() if one.key}
