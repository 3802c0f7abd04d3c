"""What the migration of one operator's tasks cost: what was moved, its phases, and how the other operators flowed on.

Elastic Stateful Storm pauses the streams into the tasks that move, saves their state, loads it elsewhere and lets the
streams go on, between two barriers. Here the channel in front of an operator is the buffer, a batch is the barrier, and
the checkpoint is the data store. So everything is computed from when batches were published; nothing here asks Spark.
What was not measured is None.
"""

from __future__ import annotations

import statistics
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from penstock.monitor.publications import BatchTimes
from penstock.topology.definition import TopologyDefinition

#: The usual gap between two batches is the median of so many.
USUAL_GAPS = 20
#: The rate before a move is that of the batches of so many seconds.
BEFORE_SECONDS = 10.0


@dataclass(frozen=True)
class Barrier:
    """A batch at the border of two placements, and when it was published, in run time."""

    batch: int
    at: float


@dataclass(frozen=True)
class Barriers:
    """The first barrier is the last batch on the old placement, the second is the first batch on the new one."""

    first: Barrier | None = None
    second: Barrier | None = None


@dataclass(frozen=True)
class Flow:
    """How an operator flowed while tasks moved, beside what is usual."""

    operator: str
    #: The longest time between two published batches that overlaps with the move.
    gap_seconds: float | None = None
    #: The median of the gaps before.
    usual_gap_seconds: float | None = None
    #: Rows read, of whole batches.
    rows_per_second_before: float | None = None
    rows_per_second_during: float | None = None
    #: Whether the operator gets rows from one whose tasks move: then it waits for rows, whatever it could do.
    behind: bool = False


@dataclass(frozen=True)
class Migration:
    """The migration of one operator's tasks in one change."""

    operator: str
    #: The tasks that moved, of so many.
    tasks: tuple[int, ...]
    tasks_of_operator: int
    #: The state of the tasks that moved, and of all tasks, as the checkpoint had it when the change began.
    moved_bytes: int
    state_bytes: int
    #: When the placement was asked for, in run time.
    asked_at: float
    barriers: Barriers = Barriers()
    #: What Spark took to commit the state in the batch of the first barrier, all tasks added up.
    save_seconds: float | None = None
    #: By how much the first batch of a task that moved took longer than usual; the longest of these tasks.
    load_seconds: float | None = None
    #: The operator itself: tasks that did not move share its batches.
    own: Flow | None = None
    #: The operators that the change did not touch.
    others: tuple[Flow, ...] = ()

    @property
    def share(self) -> float | None:
        """The share of the operator's state that was moved; None as long as nothing of the state is written."""
        return self.moved_bytes / self.state_bytes if self.state_bytes else None

    @property
    def pause_seconds(self) -> float | None:
        """From the request to the first barrier; 0 if no batch was under way."""
        first = self.barriers.first
        return None if first is None else max(first.at - self.asked_at, 0.0)

    @property
    def resume_seconds(self) -> float | None:
        """From the first barrier, or from the request if that came later, to the second barrier."""
        second = self.barriers.second
        return None if second is None else second.at - self.asked_at - (self.pause_seconds or 0.0)


def barriers_of(batches: Sequence[BatchTimes], placed_at: float, since: float) -> Barriers:
    """The barriers of an operator whose placement changed at a time. `started` of these batches is when each asked
    where it is to run. Batches that asked before `since` ran elsewhere than planned, because a slot was lost."""
    numbers = (number for number, one in enumerate(batches) if one.started > placed_at and one.started >= since)
    second = next(numbers, None)
    old = [one for one in batches[:second] if one.started <= placed_at]
    return Barriers(_barrier(old[-1]) if old else None, None if second is None else _barrier(batches[second]))


def _barrier(batch: BatchTimes) -> Barrier:
    return Barrier(batch.batch, batch.finished)


def flow_of(
    operator: str, batches: Sequence[BatchTimes], asked_at: float, ended_at: float, behind: bool = False
) -> Flow:
    """How an operator flowed in a move that was asked for and ended at these times."""
    before = [one for one in batches if one.finished <= asked_at]
    during = [one for one in batches if asked_at < one.finished <= ended_at]
    return Flow(
        operator,
        _longest_gap([one.finished for one in batches], asked_at, ended_at),
        _median([after.finished - one.finished for one, after in pairwise(before)][-USUAL_GAPS:]),
        _rate([one for one in before if one.finished > asked_at - BEFORE_SECONDS]),
        _rate([*before[-1:], *during]) if during or not before else 0.0,
        behind,
    )


def _longest_gap(published: Sequence[float], asked_at: float, ended_at: float) -> float | None:
    """The gap that is open when the move ends counts as far as it goes."""
    gaps = [after - before for before, after in pairwise(published) if after > asked_at and before < ended_at]
    gaps += [ended_at - last for last in published[-1:] if last < ended_at]
    return max(gaps, default=None)


def _median(values: Sequence[float]) -> float | None:
    return statistics.median(values) if values else None


def _rate(batches: Sequence[BatchTimes]) -> float | None:
    """Rows a second from the end of the first batch to the end of the last: of whole batches, so that a short time is
    not judged by the batch that happens to end in it."""
    seconds = batches[-1].finished - batches[0].finished if batches else 0.0
    return sum(one.rows for one in batches[1:]) / seconds if seconds > 0 else None


def operators_behind(definition: TopologyDefinition, moving: Collection[str]) -> set[str]:
    """The operators that get rows from one of these, at first hand or through others."""
    found: set[str] = set()
    for operator in definition.operators:  # in topological order
        if any(stream.producer in found or stream.producer in moving for stream in definition.inputs_of(operator.name)):
            found.add(operator.name)
    return found


def longest(seconds: Iterable[float | None]) -> float | None:
    """The longest of the times that are known."""
    return max((one for one in seconds if one is not None), default=None)
