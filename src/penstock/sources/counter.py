"""Random numbers by counter: the number at a place depends on the seed and the place alone.

A generator that keeps a state would give other rows when the range is split in another way, on another machine or
after a restart. SplitMix64 (Steele, Lea, Flood 2014) needs no state: its n-th output is a function of n.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Draws = NDArray[np.uint64]

_GAMMA = 0x9E3779B97F4A7C15
_FIRST, _SECOND = 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
_MASK = (1 << 64) - 1


def places(first: int, count: int) -> Draws:
    """The counters first, first + 1, ..."""
    return np.arange(first, first + count, dtype=np.uint64)


def draws(seed: int, lane: int, at: Draws) -> Draws:
    """64 random bits for each counter; lanes of one seed (say, one per column) have nothing to do with each other."""
    z = at * np.uint64(_GAMMA)
    z += np.uint64(_start(seed, lane))
    z ^= z >> np.uint64(30)
    z *= np.uint64(_FIRST)
    z ^= z >> np.uint64(27)
    z *= np.uint64(_SECOND)
    z ^= z >> np.uint64(31)
    return z


def unit(bits: Draws) -> NDArray[np.float64]:
    """As numbers from 0 up to, not including, 1: the upper 53 bits, all that a double holds."""
    return (bits >> np.uint64(11)).astype(np.float64) * 2.0**-53


def below(bits: Draws, bound: int) -> Draws:
    """As whole numbers from 0 up to, not including, a bound of at most 2**32: a multiplication and a shift."""
    return ((bits >> np.uint64(32)) * np.uint64(bound)) >> np.uint64(32)


def ranked(bits: Draws, count: int, skew: float) -> NDArray[np.int64]:
    """As ranks 0 .. count - 1, where rank k is drawn in proportion to 1 / (k + 1) ** skew (Zipf); 0 is even."""
    if skew == 0:
        return below(bits, count).astype(np.int64)
    weights = 1.0 / np.arange(1, count + 1, dtype=np.float64) ** skew
    cumulated = np.cumsum(weights)
    # Rounding may leave a draw just above the last sum.
    drawn = np.searchsorted(cumulated, unit(bits) * cumulated[-1], side="right")
    ranks: NDArray[np.int64] = np.minimum(drawn, count - 1).astype(np.int64)
    return ranks


def _start(seed: int, lane: int) -> int:
    """Where a lane begins; plain integers, because numpy warns when a single number overflows."""
    z = (seed * _GAMMA + lane * _FIRST + _SECOND) & _MASK
    z = ((z ^ (z >> 30)) * _FIRST) & _MASK
    z = ((z ^ (z >> 27)) * _SECOND) & _MASK
    return z ^ (z >> 31)
