"""The values that the catalog records: segments, batches and read positions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class NewSegment:
    """A segment file that is written but not published: it has no place in its channel yet."""

    channel: str
    path: str
    rows: int
    bytes: int
    #: The name of the slot whose bundle wrote it: the traffic between slots is counted from this.
    slot: str
    #: When the oldest and the newest of its rows came into the topology, in seconds since the epoch.
    born_from: float
    born_to: float

    def __post_init__(self) -> None:
        if self.rows < 1:
            raise ValueError(f"{self.path} has no rows: an empty segment would cover no place in its channel")


@dataclass(frozen=True)
class Segment(NewSegment):
    """A published segment: rows [first_row, stop_row) of its channel."""

    first_row: int
    operator: str
    batch: int

    @property
    def stop_row(self) -> int:
        return self.first_row + self.rows


@dataclass(frozen=True)
class BatchManifest:
    """A published batch and its manifest, a JSON text that only its writer and the monitor understand."""

    batch: int
    published_at: float
    manifest: str


@dataclass(frozen=True)
class Position:
    """How far an operator is in a channel."""

    #: How far its published batches have read: the backlog starts here.
    read_rows: int
    #: How far Spark has committed: a batch that ends later may be asked for again, so its rows must be kept.
    committed_rows: int


@dataclass(frozen=True)
class CatalogState:
    """All that the catalog knows of one topology and that the in-memory index is built from."""

    #: Where each channel ends: this outlives its segments.
    ends: Mapping[str, int]
    #: In the order of channel and row.
    segments: tuple[Segment, ...]
    #: By operator and channel.
    positions: Mapping[tuple[str, str], Position]
    last_batches: Mapping[str, int]
