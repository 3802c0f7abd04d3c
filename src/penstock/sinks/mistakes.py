"""The one way in which a sink complains about how it was declared."""

from __future__ import annotations

from penstock.errors import Location, PenstockError


def bad_sink(message: str, hint: str) -> PenstockError:
    """To be raised: it points at the user's line."""
    return PenstockError("BAD_SINK", message, hint, Location.of_caller())
