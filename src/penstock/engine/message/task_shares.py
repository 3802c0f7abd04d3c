"""How a micro-batch of a keyed operator is shared out where it needs no shuffle: a share for each task, also for tasks
that get no row. The share of task n is partition n, on the slot that holds the state of task n.

All shares name the same pieces, in the order of the rows: each task takes out the rows of its own keys when it reads.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from penstock.cluster.model import Slot
from penstock.engine.message.shares import Bundle, InputPart, InputRange, Share, part, pieces_of


def task_bundles(tasks: int, slots: Sequence[Slot], bundles: Sequence[Bundle]) -> list[Bundle]:
    """One bundle for each task, in their order. The instances of a slot are dealt to the tasks there: together its
    bundles have as many as the placement says. With more tasks than instances some bundles have none.

    There is always a bundle for every task, since its rows would be lost otherwise. A placement of another number of
    tasks, which is on its way out, says nothing: then tasks are dealt to the bundles."""
    if len(slots) != tasks:
        slots = [bundles[task % len(bundles)].slot for task in range(tasks)]
    instances: Counter[Slot] = Counter()
    for bundle in bundles:
        instances[bundle.slot] += bundle.instances
    held, seen = Counter(slots), Counter[Slot]()
    found = []
    for slot in slots:
        found.append(Bundle(slot, part(instances[slot], seen[slot], held[slot]), seen[slot]))
        seen[slot] += 1
    return found


def split_by_task(inputs: Sequence[InputRange], bundles: Sequence[Bundle]) -> list[Share]:
    """The shares of a micro-batch, one for each task; none at all if there is no row."""
    parts = [InputPart(pieces) for item in inputs if (pieces := pieces_of(item, item.start, item.stop))]
    if not parts:
        return []
    return [Share(bundle, tuple(one.of_groups(task, task + 1) for one in parts)) for task, bundle in enumerate(bundles)]
