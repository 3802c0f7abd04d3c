"""How the instances on a slot share its cores: those that need less than their part leave the rest to the others."""

from __future__ import annotations

from collections.abc import Sequence


def shared(cores: float, wanted: Sequence[float], instances: Sequence[int]) -> list[float]:
    """The cores that each operator on a slot gets. `wanted` is what it could use; parts are fair by instance."""
    if sum(wanted) <= cores:
        return list(wanted)
    got = [0.0] * len(wanted)
    left, open_ones = cores, set(range(len(wanted)))
    while open_ones:
        part = left / sum(instances[one] for one in open_ones)
        modest = [one for one in open_ones if wanted[one] <= part * instances[one]]
        if not modest:
            for one in open_ones:
                got[one] = part * instances[one]
            break
        for one in modest:
            got[one] = wanted[one]
            left -= wanted[one]
            open_ones.remove(one)
    return got
