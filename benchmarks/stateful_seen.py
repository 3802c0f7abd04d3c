"""What was seen of a run of bench-stateful, from the JSON of `penstock status` and of its operations. Pure.

Times of samples are seconds since the first tweet was due, so that phases have their places among them.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations, pairwise
from typing import Any

SOURCE, DETECTOR, REPORTER = "input", "detector", "reporter"
#: What a change did.
OUT, IN, PLACEMENT = "scale-out", "scale-in", "placement"
Json = Mapping[str, Any]
Span = tuple[float, float]


@dataclass(frozen=True)
class Seen:
    """One look at a run."""

    at: float
    #: Tweets that the source has emitted, and rows that wait in front of all operators.
    tweets: int
    waiting: int
    detectors: int
    #: Of all operators together.
    instances: int
    #: Seconds; None where the sink got nothing lately.
    latency: float | None
    #: What each machine uses of its cores.
    used: Mapping[str, float]
    #: Of the detector: the share of its time in which an instance is busy, and the seconds of a micro-batch, lately;
    #: None while that is not known.
    busy: float | None = None
    batch: float | None = None


def seen(status: Json, at: float) -> Seen:
    operators = {one["name"]: one for one in status["operators"]}
    [sink] = status["sinks"]
    return Seen(
        at=at,
        tweets=operators[SOURCE]["rows_out"] or 0,
        waiting=sum(one["backlog"] or 0 for one in operators.values()),
        detectors=operators[DETECTOR]["instances"],
        instances=sum(one["instances"] for one in operators.values()),
        latency=sink["latency_p50"],
        used={one["name"]: one["used"]["cpu"] for one in status["machines"] if one["used"] is not None},
        busy=operators[DETECTOR]["utilisation"],
        batch=operators[DETECTOR]["batch_seconds"],
    )


def since_first_tweet(samples: Sequence[Seen], when: Callable[[int], float]) -> tuple[float, list[Seen]]:
    """When the first tweet was due, and the samples with times since then. `when` is the schedule's: a source that is
    held back emits a tweet later than it is due and never earlier, so the earliest answer is right."""
    began = min((one.at - when(one.tweets) for one in samples if one.tweets), default=0.0)
    return began, [replace(one, at=one.at - began) for one in samples]


# Latency


def growth(points: Sequence[tuple[float, float]]) -> float:
    """By how much a second: the slope of Theil and Sen, the median over all pairs. Not a number for less than three."""
    slopes = [(later - earlier) / (to - at) for (at, earlier), (to, later) in combinations(points, 2) if to > at]
    return statistics.median(slopes) if len(points) > 2 and slopes else float("nan")


def latencies(samples: Iterable[Seen], span: Span) -> list[tuple[float, float]]:
    return [(one.at, one.latency) for one in samples if span[0] <= one.at < span[1] and one.latency is not None]


def second_half(span: Span) -> Span:
    """A phase after what it takes to see the new load, to decide, to change and to work off what waited meanwhile."""
    return ((span[0] + span[1]) / 2, span[1])


def growths(samples: Sequence[Seen], spans: Sequence[Span]) -> list[float]:
    """By phase: seconds of latency by which it grows in a second, in the phase's second half."""
    return [growth(latencies(samples, second_half(span))) for span in spans]


# Instances


@dataclass(frozen=True)
class Change:
    """The detector got other instances."""

    at: float
    before: int
    after: int

    @property
    def up(self) -> bool:
        return self.after > self.before


def changes(samples: Sequence[Seen]) -> list[Change]:
    pairs = pairwise(samples)
    return [Change(two.at, one.detectors, two.detectors) for one, two in pairs if one.detectors != two.detectors]


def reversals(found: Sequence[Change], spans: Sequence[Span]) -> int:
    """How often the detector was changed, inside of a phase, against the direction of the phase's first change."""
    total = 0
    for start, stop in spans:
        inside = [one for one in found if start <= one.at < stop]
        total += sum(one.up != inside[0].up for one in inside)
    return total


def at_ends(samples: Sequence[Seen], spans: Sequence[Span]) -> list[int]:
    """The detector's instances at the end of each phase; 0 for a phase that was not reached."""
    inside = [[one for one in samples if start <= one.at < stop] for start, stop in spans]
    return [found[-1].detectors if found else 0 for found in inside]


def followed(instances: Sequence[int], rates: Sequence[int]) -> int:
    """From how many phases to the next the instances went the way of the load. To a phase that was not reached, which
    has 0, they did not go."""
    steps = zip(pairwise(instances), pairwise(rates), strict=True)
    return sum(
        (after > before) == (more > less) and after != before and after > 0 for (before, after), (less, more) in steps
    )


def busy_in(samples: Iterable[Seen], span: Span) -> float:
    """Which share of its time an instance of the detector was busy in the second half of a span; not a number if that
    was not measured."""
    start, stop = second_half(span)
    found = [one.busy for one in samples if start <= one.at < stop and one.busy is not None]
    return statistics.median(found) if found else float("nan")


# Machines


def machine_use(samples: Iterable[Seen], span: Span) -> tuple[float, float]:
    """What machines use of their cores: of all machines on average, and of the one that uses most."""
    inside = [one.used for one in samples if span[0] <= one.at < span[1] and one.used]
    if not inside:
        return float("nan"), float("nan")
    means = statistics.fmean(statistics.fmean(used.values()) for used in inside)
    return means, statistics.fmean(max(used.values()) for used in inside)


# Migrations


#: What a move of state goes through, one after the other.
PHASES = ("pause", "save", "load", "resume")


@dataclass(frozen=True)
class OtherFlow:
    """How an operator that the change did not touch flowed meanwhile. What was not measured is None."""

    operator: str
    #: The longest time without a batch, and the usual one.
    gap: float | None
    usual_gap: float | None
    #: Rows a second, before the move and during it.
    before: float | None
    during: float | None
    #: Whether it gets rows from the detector, and so waits for it.
    behind: bool


@dataclass(frozen=True)
class Migration:
    """What one change moved of the detector's state."""

    kind: str
    #: Tasks that moved, of so many; their bytes, of so many (0 if that is not known).
    tasks: int
    of_tasks: int
    bytes: int
    of_bytes: int
    #: Of the whole change.
    seconds: float
    #: The longest time without a batch of the detector, and the usual one; None if that was not measured.
    gap: float | None
    usual_gap: float | None
    began: float = 0.0
    #: Seconds of each phase that was measured; empty if nothing moved.
    phases: Mapping[str, float | None] = field(default_factory=dict)
    #: The operators that the change did not touch; empty if nothing moved.
    others: tuple[OtherFlow, ...] = ()

    @property
    def share(self) -> float:
        """Percent of the state; by tasks where its bytes are not known."""
        if self.of_bytes:
            return 100.0 * self.bytes / self.of_bytes
        return 100.0 * self.tasks / self.of_tasks if self.of_tasks else 0.0


def kind_of(operation: Json) -> str | None:
    """What an operation did to the detector; None if it did nothing to it or did not get to its end."""
    outcome, proposal = operation["outcome"], operation["proposal"]
    if outcome is None or outcome["status"] != "done" or proposal is None:
        return None
    touched = [one for one in proposal["plan"]["actions"] if one.get("operator") == DETECTOR]
    if not touched:
        return None
    added = ((proposal["decision"] or {}).get("added_instances") or {}).get(DETECTOR, 0)
    return OUT if added > 0 else IN if added < 0 else PLACEMENT


def migrations_of(operations: Iterable[Json], sizes: Mapping[int, int], tasks: int) -> list[Migration]:
    """The changes of the detector, by the outcomes of operations. `sizes` has by operation what its whole state had
    when the operation was seen first: an operation that moved nothing does not say it."""
    found = []
    for operation in operations:
        kind = kind_of(operation)
        if kind is None:
            continue
        moves = [one for one in operation["outcome"]["moves"] if one["operator"] == DETECTOR]
        gaps = [one for one in operation["outcome"]["interruptions"] if one["operator"] == DETECTOR]
        gaps = [one["interruption"] for one in moves] or gaps
        longest = max(gaps, key=lambda one: one["gap_seconds"], default=None)
        told = next((one for one in operation["outcome"]["migrations"] if one["operator"] == DETECTOR), None)
        found.append(
            Migration(
                kind=kind,
                tasks=len(moves),
                of_tasks=tasks,
                bytes=sum(one["state_bytes"] for one in moves),
                of_bytes=told["state_bytes"] if told else sizes.get(operation["id"], 0),
                seconds=operation["outcome"]["seconds"],
                gap=longest["gap_seconds"] if longest else None,
                usual_gap=longest["usual_gap_seconds"] if longest else None,
                began=operation["began_at"] or 0.0,
                phases={phase: told[f"{phase}_seconds"] for phase in PHASES} if told else {},
                others=tuple(map(_other, told["others"])) if told else (),
            )
        )
    return found


def _other(told: Json) -> OtherFlow:
    gaps = told["gap_seconds"], told["usual_gap_seconds"]
    rates = told["rows_per_second_before"], told["rows_per_second_during"]
    return OtherFlow(told["operator"], *gaps, *rates, told["behind"])


def state_size(snapshot: Json) -> int:
    """Bytes of the detector's state, by `penstock snapshot`; 0 if a task's size is not known."""
    [one] = [one for one in snapshot["operators"] if one["name"] == DETECTOR]
    sizes = [task["bytes"] for task in one["state"].values()]
    return sum(sizes) if sizes and None not in sizes else 0
