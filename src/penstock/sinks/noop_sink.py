"""A sink that counts its rows and forgets them."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.kinds import SinkKind


def noop() -> NoopSink:
    """Rows are counted and forgotten: to measure a topology, not a database."""
    return NoopSink()


@dataclass(frozen=True)
class NoopSink(SinkKind):
    kind = "noop"
