"""Arithmetic with what may be unknown: None is never taken for 0."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeVar

Number = TypeVar("Number", int, float)


def plus(one: Number | None, other: Number | None) -> Number | None:
    return None if one is None or other is None else one + other


def largest(one: Number | None, other: Number | None) -> Number | None:
    """Of those that are known."""
    if one is None or other is None:
        return other if one is None else one
    return max(one, other)


def smallest(one: Number | None, other: Number | None) -> Number | None:
    """Of those that are known."""
    if one is None or other is None:
        return other if one is None else one
    return min(one, other)


def total(values: Sequence[Number | None]) -> Number | None:
    """Unknown if one of them is."""
    known = [value for value in values if value is not None]
    return sum(known) if len(known) == len(values) else None


def known_sum(values: Iterable[int | None]) -> int | None:
    """Of those that are known; unknown if none is."""
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def ratio(amount: float | None, of: float | None) -> float | None:
    """Unknown where there is next to nothing to divide by: no clock tells less than a nanosecond from none."""
    return amount / of if amount is not None and of is not None and of > 1e-9 else None
