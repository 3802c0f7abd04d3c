"""A sink that counts its rows and forgets them."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.kinds import SinkKind


def noop() -> NoopSink:
    """A sink that counts its rows and forgets them: use it to measure a topology without a database behind it."""
    return NoopSink()


@dataclass(frozen=True)
class NoopSink(SinkKind):
    kind = "noop"
