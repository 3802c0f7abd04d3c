"""Kinds of sources and sinks: what one class says about itself, so that nobody else has to know it.

A kind is a frozen dataclass that derives from `SourceKind` or `SinkKind`. The value that a user gives to
`topology.source` or `topology.sink` is an instance of it. Penstock's own kinds are in penstock.sources and
penstock.sinks; a stranger's kind is used in the same way, directly or by the name of its entry point.

Nothing here imports Spark, and nothing here imports another part of Penstock but its errors.
"""

from penstock.kinds.sink import BatchWriter, FileWriter, SinkKind, SinkPlace
from penstock.kinds.source import BadRow, Notes, Offset, Offsets, Range, SourceKind, SourcePlace, Unit

__all__ = [
    "BadRow",
    "BatchWriter",
    "FileWriter",
    "Notes",
    "Offset",
    "Offsets",
    "Range",
    "SinkKind",
    "SinkPlace",
    "SourceKind",
    "SourcePlace",
    "Unit",
]
