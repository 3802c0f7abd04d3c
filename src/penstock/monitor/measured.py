"""Which operators were heard of in a window, in what time their batches were counted, and what is missing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from penstock.monitor.sample import UNKNOWN_SLOT
from penstock.monitor.snapshot import Gap, OperatorSnapshot
from penstock.monitor.totals import OperatorTotals, SlotTotals
from penstock.monitor.unknown import total
from penstock.monitor.window import WindowTotals
from penstock.topology.definition import Operator, Sink

#: An operator that was not heard of for this many sampling intervals is stale.
STALE_INTERVALS = 3


@dataclass(frozen=True)
class Measured:
    """An operator that was heard of, and the time in which its batches were counted."""

    operator: Operator
    totals: OperatorTotals
    seconds: float
    #: False while its first batch is under way: nothing is counted yet, and that is not 0.
    counted: bool

    def per_second(self, count: float | None) -> float | None:
        return count / self.seconds if self.counted and count is not None and self.seconds > 0 else None

    def total(self, value: Callable[[SlotTotals], float | None]) -> float | None:
        """Over all slots."""
        return total([value(slot) for slot in self.totals.slots.values()])


def measured_or_gap(operator: Operator, window: WindowTotals) -> Measured | Gap:
    name = operator.name
    totals = window.operators.get(name)
    heard_at = totals.heard_at if totals is not None else None
    if totals is None or heard_at is None:
        return Gap(name, "", "nothing was heard of it in this window", grave=True)
    silent, patience = window.until - heard_at, STALE_INTERVALS * window.interval
    if silent > patience:
        return Gap(name, "", f"nothing was heard of it for {silent:.0f} s", grave=True)
    if totals.intervals * 2 < window.samples:
        reason = f"it was heard of in {totals.intervals} of {window.samples} samples"
        return Gap(name, "", reason, grave=True)
    began = window.counted_from.get(name, window.since)
    # Every batch that counts is in the span as a whole: one that began before the window stretches it.
    if totals.first_started is not None:
        began = min(began, totals.first_started)
    ended, under_way = window.until, _under_way(totals)
    if under_way and totals.last_finished is not None:
        # The rows of the batch that is under way are not counted, so neither is its time.
        ended = totals.last_finished
    return Measured(operator, totals, max(ended - began, 0.0), counted=bool(totals.batches) or not under_way)


def _under_way(totals: OperatorTotals) -> bool:
    """Whether a batch was under way when the driver looked last, and has not ended since."""
    if not totals.levels or not totals.levels[-1].in_batch:
        return False
    return totals.last_finished is None or totals.last_finished <= totals.levels[-1].at


def unmeasured(one: Measured, shown: OperatorSnapshot, window: WindowTotals) -> Iterator[Gap]:
    """What is not known of an operator that was heard of."""
    name, totals = one.operator.name, one.totals
    running = window.until - (totals.last_finished if totals.last_finished is not None else window.since)
    if _under_way(totals) and running > STALE_INTERVALS * window.interval:
        yield Gap(name, "rate", f"its batch has been under way for {running:.0f} s", grave=True)
    elif not one.counted:
        yield Gap(name, "rate", "its first batch is under way", grave=True)
    if not totals.levels:
        yield Gap(name, "backlog_rows", "nobody looked at what waits in front of it", grave=True)
    if not totals.batches:
        return
    if shown.capacity is None:
        reason = "it executed no row" if not totals.rows else "its busy time is not measured"
        yield Gap(name, "capacity", reason, grave=False)
    if one.total(lambda slot: slot.cpu) is None:
        yield Gap(name, "cpu_utilisation", "the CPU time of its work is not measured", grave=False)
    if totals.traffic is None:
        yield Gap(name, "traffic", "who wrote the bytes that it reads is not measured", grave=False)
    if UNKNOWN_SLOT in totals.slots:
        yield Gap(name, "utilisation", "where its work ran is not known", grave=False)
    if isinstance(one.operator, Sink) and shown.latency is None and totals.rows:
        yield Gap(name, "latency", "the latency of its rows is not measured", grave=False)
