"""The samples of the last seconds as they came, for whoever wants to see what happens right now."""

from __future__ import annotations

from collections import deque

from penstock.monitor.sample import Sample

#: How far back they go.
SECONDS = 10.0


class RecentSamples:
    """Nothing is added up before somebody asks. Not safe for several threads; its owner is."""

    def __init__(self) -> None:
        self._samples: dict[str, deque[Sample]] = {}

    def add(self, sample: Sample) -> None:
        samples = self._samples.setdefault(sample.operator, deque())
        samples.append(sample)
        while samples[0].finished < sample.finished - SECONDS:
            samples.popleft()

    def since(self, operator: str, after: float) -> list[Sample]:
        """Those of an operator that finished after a time."""
        return [one for one in self._samples.get(operator, ()) if one.finished > after]
