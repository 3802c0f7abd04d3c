"""The error of a sink that is declared wrongly."""

from __future__ import annotations

from penstock.errors import Location, PenstockError


def bad_sink(message: str, hint: str) -> PenstockError:
    """BAD_SINK at the user's line; the caller raises it."""
    return PenstockError("BAD_SINK", message, hint, Location.of_caller())
