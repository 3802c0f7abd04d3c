"""Rates as they would be without back-pressure, where no operator waits for a slow one.

Storm of the papers' time had no back-pressure: rows that a slow operator could not take piled up in front of it, so its
input rate showed that it was slow. Penstock throttles producers, so the input rate of every operator equals its
processing rate, and only the source has more to do than it does; but the source is not the cause.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import replace

from penstock.strategies.load import Load


def without_back_pressure(load: Load, held_back: Collection[str]) -> Load:
    """The load without back-pressure. An operator in `held_back` waits for the operators behind it; it gets the rate
    that its input and its capacity allow. Operators that would then get more rows also get a higher rate, if their
    capacity is known."""
    if not held_back:
        return load
    operators = list(load.operators)
    #: What each operator would emit, over what it does emit.
    growth = [1.0] * len(operators)
    streams = list(load.streams)
    incoming: dict[str, list[int]] = {}
    for index, stream in enumerate(streams):
        incoming.setdefault(stream.consumer, []).append(index)
    for place, one in enumerate(operators):
        for index in incoming.get(one.name, ()):
            stream = streams[index]
            streams[index] = replace(stream, rate=stream.rate * growth[load.position[stream.producer]])
        grew = any(growth[load.position[streams[index].producer]] > 1 for index in incoming.get(one.name, ()))
        starved = grew and one.capacity is not None
        if not (one.name in held_back or starved) or not one.processing:
            continue
        fed = [streams[index].rate for index in incoming.get(one.name, ())]
        demand = sum(fed) if fed else one.external
        could = [rate for rate in (demand, one.capacity) if rate is not None]
        processing = max(min(could, default=one.processing), one.processing)
        if not math.isfinite(processing):
            continue
        growth[place] = processing / one.processing
        operators[place] = replace(one, processing=processing)
    return Load(tuple(operators), tuple(streams))
