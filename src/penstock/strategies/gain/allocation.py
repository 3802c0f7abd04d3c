"""Which operators get the new instances: groups of instances by their gain of throughput, then single moves.

One instance alone often brings nothing, because the next operator behind is full as well. So instances are given in
groups: one for a saturated operator, one for the operator behind it that is then the fullest, and so on; the group with
the most gain for each of its instances is taken. Such a group is a `Bunch`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations_with_replacement

import numpy as np

from penstock.strategies.fluid import Pipes, Rates, rates_at, throughput_at, throughputs
from penstock.strategies.stela.etp import etp

#: Rates are sums of floating-point numbers: an operator counts as full only if it lacks more than this.
HAIR = 1e-9
#: On a graph with more saturated operators than this, only those with the highest ETP are tried.
MOST_CANDIDATES = 32
#: Two instances are moved together only on graphs with at most so many operators: the pairs grow with their square.
MOST_PAIRED = 16


@dataclass(frozen=True)
class Bunch:
    """Instances that are given together: operators by place, once for each instance, and the gain of all of them."""

    places: tuple[int, ...]
    gain: float

    @property
    def score(self) -> float:
        return self.gain / len(self.places)


@dataclass(frozen=True)
class Allocation:
    """Instances by operator, and the bunches that led there before the moves."""

    instances: tuple[int, ...]
    bunches: tuple[Bunch, ...]
    throughput: float
    #: New instances that would bring nothing.
    left_out: int


def allocate(pipes: Pipes, first: Sequence[int], new: int, most: Sequence[float]) -> Allocation:
    """Give up to `new` instances to operators that have `first`, no more than `most` to each."""
    counts, bunches = list(first), []
    left = new
    while left > 0:
        bunch = _best_bunch(pipes, counts, left, most)
        if bunch is None:
            break
        for place in bunch.places:
            counts[place] += 1
        left -= len(bunch.places)
        bunches.append(bunch)
    _move_while_it_helps(pipes, counts, first, most)
    while _move_two(pipes, counts, first, most):
        _move_while_it_helps(pipes, counts, first, most)
    left += _drop_idle(pipes, counts, first)
    return Allocation(tuple(counts), tuple(bunches), throughput(pipes, counts), left)


def throughput(pipes: Pipes, instances: Sequence[int]) -> float:
    return throughput_at(pipes, rates_at(pipes, instances))


def full(pipes: Pipes, rates: Rates) -> list[int]:
    """The operators that get more than they can handle."""
    return [place for place in range(len(pipes.rates)) if rates.overfull(place) > 1 + HAIR]


def next_count(pipes: Pipes, place: int, count: int, most: float) -> int | None:
    """The next higher number of instances that makes an operator faster; None if there is none. With 8 tasks and 4
    instances that is 8: with 5 to 7 some instance still has two tasks."""
    speed, step = pipes.speed(place, count), count + 1
    while step <= most:
        if pipes.speed(place, step) > speed * (1 + HAIR):
            return step
        if not pipes.tasks or pipes.tasks[place] is None:
            return None
        step += 1
    return None


def _best_bunch(pipes: Pipes, counts: Sequence[int], left: int, most: Sequence[float]) -> Bunch | None:
    rates = rates_at(pipes, counts)
    now = throughput_at(pipes, rates)
    found: Bunch | None = None
    for place in _candidates(pipes, counts, rates, most):
        for bunch in _bunches(pipes, counts, place, left, most, now):
            if bunch.gain > HAIR * now and (found is None or bunch.score > found.score * (1 + HAIR)):
                found = bunch
    return found


def _candidates(pipes: Pipes, counts: Sequence[int], rates: Rates, most: Sequence[float]) -> list[int]:
    places = [place for place in full(pipes, rates) if counts[place] < most[place]]
    if len(places) <= MOST_CANDIDATES:
        return places
    shut = [rates.overfull(place) > 1 + HAIR for place in range(len(counts))]
    shares = etp(pipes.load, shut)
    return sorted(places, key=lambda place: (-shares[place], -rates.overfull(place), place))[:MOST_CANDIDATES]


def _bunches(
    pipes: Pipes, counts: Sequence[int], first: int, left: int, most: Sequence[float], now: float
) -> Iterator[Bunch]:
    """The bunches that begin with an operator: each is the one before and the fullest operator behind the first."""
    behind = _behind(pipes, first)
    tried, places = list(counts), list[int]()
    target: int | None = first
    while target is not None:
        step = next_count(pipes, target, tried[target], most[target])
        if step is None or len(places) + step - tried[target] > left:
            return
        places += [target] * (step - tried[target])
        tried[target] = step
        rates = rates_at(pipes, tried)
        yield Bunch(tuple(places), throughput_at(pipes, rates) - now)
        open_ = [one for one in behind if rates.overfull(one) > 1 + HAIR and tried[one] < most[one]]
        target = max(open_, key=lambda one: (rates.overfull(one), -one), default=None)


def _behind(pipes: Pipes, first: int) -> list[int]:
    found, open_ = {first}, [first]
    while open_:
        for child in pipes.load.children[open_.pop()]:
            if child not in found:
                found.add(child)
                open_.append(child)
    return sorted(found - {first})


def _move_while_it_helps(pipes: Pipes, counts: list[int], first: Sequence[int], most: Sequence[float]) -> None:
    """Move new instances from one operator to another, the best such move first, while the throughput rises."""
    now = throughput(pipes, counts)
    while True:
        best: tuple[float, int, int, int] | None = None
        rates = rates_at(pipes, counts)
        takers = _candidates(pipes, counts, rates, most)
        givers = [place for place in range(len(counts)) if counts[place] > first[place]]
        for taker in takers:
            step = next_count(pipes, taker, counts[taker], most[taker])
            for giver in givers:
                if step is None or giver == taker or counts[giver] - first[giver] < (many := step - counts[taker]):
                    continue
                tried = list(counts)
                tried[giver] -= many
                tried[taker] += many
                after = throughput(pipes, tried)
                if after > now * (1 + HAIR) and (best is None or after > best[0] * (1 + HAIR)):
                    best = (after, giver, taker, many)
        if best is None:
            return
        now, giver, taker, many = best
        counts[giver] -= many
        counts[taker] += many


def _move_two(pipes: Pipes, counts: list[int], first: Sequence[int], most: Sequence[float]) -> bool:
    """Move two new instances at once where that raises the throughput and no single move does; returns whether it did.

    The best score may lead past the best assignment: two instances for one sink, say, where one for the operator before
    both sinks and one for the other sink bring more."""
    givers = [place for place in range(len(counts)) if counts[place] > first[place]]
    takers = [place for place in range(len(counts)) if counts[place] < most[place]]
    if len(givers) > MOST_PAIRED or len(takers) > MOST_PAIRED:
        return False
    tried = []
    for given in combinations_with_replacement(givers, 2):
        for taken in combinations_with_replacement(takers, 2):
            one = list(counts)
            for giver, taker in zip(given, taken, strict=True):
                one[giver] -= 1
                one[taker] += 1
            if all(least <= count <= bound for least, count, bound in zip(first, one, most, strict=True)):
                tried.append(one)
    if not tried:
        return False
    found = throughputs(pipes, np.array(tried, dtype=np.intp))
    best = int(found.argmax())
    if found[best] <= throughput(pipes, counts) * (1 + HAIR):
        return False
    counts[:] = tried[best]
    return True


def _drop_idle(pipes: Pipes, counts: list[int], first: Sequence[int]) -> int:
    """Take away new instances without which the throughput is the same; returns how many."""
    dropped = 0
    now = throughput(pipes, counts)
    for place in range(len(counts)):
        while counts[place] > first[place]:
            counts[place] -= 1
            if throughput(pipes, counts) < now * (1 - HAIR):
                counts[place] += 1
                break
            dropped += 1
    return dropped
