"""How many idle Python workers an executor keeps.

Spark ends idle workers only when no task has ended on the executor for a minute. Where a keyed operator runs, tasks end
every second, so an executor would keep as many workers as ever ran at once. That record is set when bundles that stand
begin a new turn, before the old turn's workers are free, and it is broken now and then for hours.
"""

from __future__ import annotations

from collections.abc import Iterable

from penstock.engine.spark.slots import WARM_WORKERS
from penstock.settings import Settings
from penstock.topology.dataframe_function import stands
from penstock.topology.definition import DEFAULT_TASKS, Keyed, Map, Operator
from penstock.topology.state.processing import Processing

#: Spark's setting: a worker that becomes idle beside so many takes the place of the one that was idle for longest.
MOST_IDLE = "spark.python.factory.idleWorkerMaxPoolSize"


def most_idle(operators: Iterable[Operator], settings: Settings, *, slots: int, may_stand: bool) -> int:
    """How many idle workers an executor keeps: as many as its micro-batches can need at once. With fewer of them, the
    executor would end workers after a batch and start others for the next one.

    `slots` is how many slots share the executor. `may_stand` says that bundles are sure to find room to stand: a bundle
    that stands keeps its worker, and needs no idle one."""
    needed = [_needed(one, settings, slots) for one in operators if not (may_stand and stands(one))]
    return max(WARM_WORKERS * slots, sum(needed))


def _needed(operator: Operator, settings: Settings, slots: int) -> int:
    """The workers that a micro-batch of an operator has at once, if all of its tasks are on this executor."""
    bundles = settings.slot_cores * slots
    # Whether a function of DataFrames has Python of its own in Spark's plan is known only when Spark has planned it.
    # Where several slots share an executor, all tasks always run there, so this is allowed for; on a cluster an
    # executor rarely has so many tasks that it matters, and then it starts some workers anew for each batch.
    own_python = int(slots > 1)
    if isinstance(operator, Keyed):
        own_python = max(own_python, int(isinstance(operator.function, Processing)))
        reads = int(settings.shuffle == "none")  # otherwise the reading is a stage before these tasks
        return max(operator.tasks * (reads + own_python + 1), bundles)
    if isinstance(operator, Map) and operator.takes_dataframes:
        return bundles * (2 + own_python)  # a task reads, runs the function, and writes
    # Spark cuts what it reads by itself into tasks of its own.
    return bundles if stands(operator) else max(bundles, DEFAULT_TASKS)
