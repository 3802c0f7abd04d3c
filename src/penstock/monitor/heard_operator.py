"""Which operators were heard of in a window, in what time their batches were counted, and what is missing."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from penstock.monitor.sample import UNKNOWN_SLOT
from penstock.monitor.snapshot import Gap, OperatorSnapshot
from penstock.monitor.totals import OperatorTotals, SlotTotals
from penstock.monitor.unknown import ratio, total
from penstock.monitor.window import WindowTotals
from penstock.topology.definition import Operator, Sink

#: An operator that was not heard of for this many sampling intervals is stale.
STALE_INTERVALS = 3
#: The batches that bundles have under way began within so many turns of each of them, if none of them hangs.
SPREAD = 2


@dataclass(frozen=True)
class HeardOperator:
    """An operator that was heard of, and the time in which its batches were counted."""

    operator: Operator
    totals: OperatorTotals
    seconds: float
    #: False if hardly anything but its first batch, which is under way, was in the window: that is not a rate of 0.
    counted: bool

    def per_second(self, count: float | None) -> float | None:
        return ratio(count, self.seconds) if self.counted else None

    def total(self, value: Callable[[SlotTotals], float | None]) -> float | None:
        """Over all slots."""
        return total([value(slot) for slot in self.totals.slots.values()])

    def total_heard(self, value: Callable[[SlotTotals], float | None]) -> float | None:
        """The same for what only slots can tell: unknown if none was heard of."""
        return self.total(value) if self.totals.slots else None


def heard_or_gap(operator: Operator, window: WindowTotals) -> HeardOperator | Gap:
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
    batch_since = _under_way_since(totals)
    start = _start(totals, window, name)
    seconds = max(_stop(totals, window, batch_since) - start + _between_bundles(totals, start), _least(totals))
    counted = bool(totals.batches) or batch_since is None or seconds >= window.interval
    return HeardOperator(operator, totals, seconds, counted)


def _start(totals: OperatorTotals, window: WindowTotals, name: str) -> float:
    """From when on time counts: the start of the first batch that counts, as a whole, unless there was idle time in
    front of it. Less than a usual turn is not idle time: it belongs to a batch before, which does not count."""
    began = window.counted_from.get(name, window.since)
    first = totals.first_started
    return first if first is not None and first - began <= totals.turn else began


def _stop(totals: OperatorTotals, window: WindowTotals, batch_since: float | None) -> float:
    """Up to when: the rows of a batch that is under way are not counted, so neither is its time. Between two batches,
    the last one counts with the whole of its turn: otherwise rates would be too high right after a batch."""
    if batch_since is not None or totals.last_started is None:
        return window.until if batch_since is None else batch_since
    return max(window.until, totals.last_started + totals.turn)


def _between_bundles(totals: OperatorTotals, start: float) -> float:
    """What bundles that stand add to the time from the first batch that counts to the first that does not. Each of them
    has a batch of its own under way, so the time of each begins and ends at another moment: the middle of these moments
    counts, as many at one end as at the other. Without that, two bundles that begin at almost the same moment would
    count for a batch too many, or too few."""
    ends = _under_way(totals)
    bundles = min(len(ends), len(totals.first_starts), sum(slot.batches > 0 for slot in totals.slots.values()))
    # All were idle in front of the first batch: then the time of all of them begins at the same moment.
    together = start != totals.first_started
    begins, ends = [start] if together else totals.first_starts[:bundles], ends[:bundles]
    longest = SPREAD * bundles * totals.turn
    if bundles < 2 or begins[-1] - begins[0] > longest or ends[-1] - ends[0] > longest:
        return 0.0  # one hangs, or was idle: what the others do says nothing of its time
    return _middle(ends) - _middle(begins)


def _least(totals: OperatorTotals) -> float:
    """What is counted took at least as long as a bundle had its share of a batch, on average. The first batches of
    several bundles begin almost together: as long as only one of them is counted, the time up to the start of the next
    one would be next to nothing."""
    if not totals.batches or not _under_way(totals):
        return 0.0
    return (totals.seconds if totals.longest_shares is None else totals.longest_shares) / totals.batches


def _middle(moments: Sequence[float]) -> float:
    """Counted from the first of them."""
    return sum(at - moments[0] for at in moments) / len(moments)


def _under_way_since(totals: OperatorTotals) -> float | None:
    """Since when the oldest batch is under way that the driver saw when it looked last, and that is not counted."""
    look = totals.levels[-1] if totals.levels else None
    if look is None or look.open_batches is not None:
        return min(_under_way(totals), default=None)
    return None if look.batch_since is None or _ended_after(look.batch_since, totals) else look.batch_since


def _under_way(totals: OperatorTotals) -> list[float]:
    """When the batches of bundles that stand began that were open at the last look and are not counted."""
    found = (totals.levels[-1].open_batches if totals.levels else None) or {}
    return sorted(since for number, since in found.items() if not _is_counted(number, since, totals))


def _is_counted(number: int, since: float, totals: OperatorTotals) -> bool:
    """Whether the rows of a batch count that was open when the driver looked. Batches are published, and so counted, in
    the order of their numbers. What began after the last one was published is not counted, whatever its number: numbers
    may begin anew."""
    return totals.last_batch is not None and number <= totals.last_batch and _ended_after(since, totals)


def _ended_after(since: float, totals: OperatorTotals) -> bool:
    return totals.last_finished is not None and totals.last_finished > since


def gaps_of(one: HeardOperator, shown: OperatorSnapshot, window: WindowTotals) -> Iterator[Gap]:
    """What is not known of an operator that was heard of."""
    name, totals = one.operator.name, one.totals
    batch_since = _under_way_since(totals)
    if batch_since is not None and window.until - batch_since > STALE_INTERVALS * window.interval:
        reason = f"its batch has been under way for {window.until - batch_since:.0f} s"
        yield Gap(name, "rate", reason, grave=True)
    elif not one.counted:
        yield Gap(name, "rate", "its first batch is under way", grave=True)
    if not totals.levels:
        yield Gap(name, "backlog_rows", "nobody looked at what waits in front of it", grave=True)
    if totals.intervals < window.samples - 1:
        # The time counts and what was done in it does not, so all shares of it are too low.
        reason = f"it was heard of in {totals.intervals} of {window.samples} samples"
        yield Gap(name, "utilisation", reason, grave=False)
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
