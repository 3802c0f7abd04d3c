"""What is true of an operator in a fluid cluster. A controller never sees it: it sees only what is measured."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Truth:
    """An operator's service rate and what it emits."""

    #: Rows a second of one instance that has a core to itself.
    rate: float
    #: Whether its rows need a core. An instance that waits (for a service, a disk) needs next to none.
    works: bool = True
    #: Rows emitted for a row executed.
    selectivity: float = 1.0
    #: Rows a second of all instances together, however many there are: what a service behind them can take.
    most: float = math.inf
    #: Of streams whose selectivity is another one, by their names.
    selectivities: Mapping[str, float] = field(default_factory=dict)

    def emits(self, stream: str) -> float:
        return self.selectivities.get(stream, self.selectivity)
