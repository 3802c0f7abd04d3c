"""The error of a source that is declared wrongly."""

from __future__ import annotations

import math

from penstock.errors import Location, PenstockError


def bad_source(message: str, hint: str) -> PenstockError:
    """BAD_SOURCE at the user's line; the caller raises it."""
    return PenstockError("BAD_SOURCE", message, hint, Location.of_caller())


def check_whole(name: str, value: object, at_least: int = 0) -> None:
    """`value` must be a whole number of at least `at_least`."""
    if isinstance(value, bool) or not isinstance(value, int) or value < at_least:
        raise bad_source(f"{name} is {value!r}.", f"Give a whole number of at least {at_least}.")


def check_number(name: str, value: object, at_least: float = 0.0, at_most: float = math.inf) -> None:
    """`value` must be a finite number between the bounds."""
    number = float(value) if isinstance(value, int | float) and not isinstance(value, bool) else math.nan
    if not math.isfinite(number) or not at_least <= number <= at_most:
        upper = "" if math.isinf(at_most) else f" and at most {at_most:g}"
        raise bad_source(f"{name} is {value!r}.", f"Give a number of at least {at_least:g}{upper}.")
