"""Whether bundles can stand: a bundle that stands keeps a task thread of its executor for as long as it stands.

If an executor had fewer threads, some bundles would wait for ever, and with them the rows in front of them."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.cluster.model import Slot
from penstock.topology.dataframe_function import stands
from penstock.topology.definition import Operator


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
