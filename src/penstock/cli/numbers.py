"""How numbers are written for people: short, and the same everywhere."""

from __future__ import annotations

NOTHING = "-"


def count(number: float) -> str:
    """Whole, with separators: 1,234,567."""
    return f"{number:,.0f}"


def seconds(duration: float | None) -> str:
    """Milliseconds below a second."""
    if duration is None:
        return NOTHING
    return f"{duration * 1000:.0f} ms" if duration < 1 else f"{duration:.1f} s"


def milliseconds(duration: float | None) -> str:
    return NOTHING if duration is None else f"{duration * 1000:,.0f}"


def plural(number: int, what: str) -> str:
    return f"{count(number)} {what}" if number == 1 else f"{count(number)} {what}s"
