"""Whether bundles can stand: a bundle that stands keeps a task thread of its executor for as long as it stands.

If an executor had fewer threads, some bundles would wait for ever, and with them the rows in front of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from penstock.cluster.model import Slot
from penstock.engine.spark.host import SparkHost
from penstock.topology.dataframe_function import stands
from penstock.topology.definition import Operator


@dataclass(frozen=True)
class StandingRoom:
    """Whether bundles stand in a run. This is decided once, before the run touches its state. Nobody can choose it:
    bundles stand wherever there is room, and otherwise run in micro-batches, which is slower."""

    #: Why bundles cannot stand; empty if they can.
    lacking: str = ""

    def stands(self, operator: Operator) -> bool:
        """Whether the bundles of an operator stand in this run."""
        return not self.lacking and stands(operator)

    def cannot_stand(self, operator: Operator) -> bool:
        """Whether the bundles of an operator would stand if there were room."""
        return bool(self.lacking) and stands(operator)


def room_on(host: SparkHost, operators: Sequence[Operator]) -> StandingRoom:
    """Whether the bundles of these operators can stand on a host that runs."""
    executors = host.slots.executors()
    shared = not executors
    threads = [host.spark.sparkContext.defaultParallelism] if shared else [one.cores for one in executors]
    return StandingRoom(lacking_threads(operators, host.cluster.slots, threads, shared))


def lacking_threads(operators: Sequence[Operator], slots: Sequence[Slot], threads: Sequence[int], shared: bool) -> str:
    """Why the bundles of these operators cannot stand; empty if they can, wherever they are placed. `threads` are the
    task threads of every executor; `shared` says that there is one, which all slots share (a local cluster)."""
    standing = sum(map(stands, operators))
    by_slot = [standing * slot.cores for slot in slots]
    wanted = sum(by_slot) if shared else max(by_slot, default=0)
    if standing < len(operators):
        wanted += 1  # for micro-batches of the others
    has = min(threads, default=wanted)
    if has >= wanted:
        return ""
    return f"an executor can run {has} Spark tasks at once, and {wanted} may have to"
