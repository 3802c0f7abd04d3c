"""What a kind of source says about itself, in one class: what it reads, how far it is, and how a range is read.

A source is read in ranges. The driver holds the source's `Offsets`: they say what there is, where a batch may end, and
which ranges lie between two offsets. The catalog says how far a source was read: the end of a batch is entered there
when the batch is published. After a crash, the ranges of a batch that was not published are read again. The executor
reads one range after the other into Arrow, with `SourceKind.read`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, ClassVar, Protocol

import pyarrow as pa

from penstock.errors import Location

#: How far a source is read: a value of JSON that the kind alone understands.
Offset = Any
#: Takes a row that cannot be read, as text, and what is wrong with it.
BadRow = Callable[[str, str], None]


class Unit(StrEnum):
    """What the sizes of ranges count, and with them the size of a batch."""

    ROWS = "rows"
    BYTES = "bytes"


@dataclass(frozen=True)
class Range:
    """What one instance reads in one go."""

    #: In the kind's own words, in JSON: it travels to the executor.
    load: Any
    #: How much it is, in the kind's unit.
    size: int
    #: When the oldest and the newest of its rows came into the topology, in the time of the run.
    born_from: float = 0.0
    born_to: float = 0.0


class Notes(Protocol):
    """What a source writes down for good, by key, in the topology's catalog."""

    def get_meta(self, key: str) -> str | None: ...

    def metas(self, prefix: str) -> dict[str, str]:
        """All values whose key begins with `prefix`, by the rest of their keys."""

    def change_metas(self, values: Mapping[str, str], gone: Sequence[str] = ()) -> None:
        """Write some values and delete others, in one transaction."""


@dataclass(frozen=True)
class SourcePlace:
    """Where a source stands: what its offsets need of the topology that it is part of."""

    operator: str
    notes: Notes
    #: The clock of the run: run time, in seconds.
    clock: Callable[[], float]
    where: Location | None = None
    #: Every key of the source's notes must begin with this. When the operator begins anew, the catalog forgets exactly
    #: the keys that begin with it.
    prefix: str = ""
    #: What lasts as long as the run, also when the source's query is replaced by another.
    memory: MutableMapping[str, Any] = field(default_factory=dict)
    #: How many seconds rows may linger now before bundles that stand take them. A source that has to be asked for rows
    #: is asked about as often. None where nobody can say.
    lingers: Callable[[], float] | None = None
    #: Has somebody look at once what there is: for a source that is told of rows. Any thread may call it. None where
    #: nobody can be woken.
    wake: Callable[[], None] | None = None


class Offsets:
    """How far a source is read and what there is to read, on the driver. It lives as long as the source's query.

    `look` may ask the world outside; everything else only counts."""

    #: Where the newest batch ends.
    position: Offset

    def look(self) -> None:
        """Find out what there is to read. Penstock calls it often: a kind that must not ask so often skips calls."""

    def available(self) -> int:
        """How much could be read now, in the kind's unit."""
        raise NotImplementedError

    def due_in(self) -> float | None:
        """Seconds until there may be more; None if that never happens."""
        return None

    def go_to(self, offset: Offset) -> None:
        """The newest batch ends here."""
        self.position = offset

    def end(self, most: int, instances: int) -> Offset | None:
        """Where a batch ends that begins at the position and reads about so much, by so many instances: the position
        itself if `most` is 0. None as long as there has never been anything to read."""
        raise NotImplementedError

    def ranges(self, start: Offset | None, end: Offset, instances: int) -> Sequence[Range]:
        """What lies between two offsets, in the order of the rows, cut so that so many instances have something to do.
        The same two offsets always give the same rows. No start is the source's beginning."""
        raise NotImplementedError

    def committed(self, end: Offset) -> None:
        """Nobody will ask again for anything before this offset. Nobody looks what is there because of this: a source
        that has more afterwards says so in `due_in`."""

    @property
    def ended(self) -> bool:
        """Whether the source has ended, and everything was read."""
        return False

    @property
    def unmet(self) -> int | None:
        """Rows that are there and not read: demand that is not met. None if the kind cannot count them."""
        return None

    def close(self) -> None:
        """The query has ended."""


class SourceKind:
    """The base of all kinds of sources. A kind is a frozen dataclass: what a user gives to `topology.source`.

    It travels to the executors, so it must be picklable."""

    #: The name of the kind, as people and the state see it.
    kind: ClassVar[str]
    #: The schema of the rows.
    schema: pa.Schema
    #: Whether bundles read its rows: then it can be chained, throttled, and single rows may be refused. Spark reads
    #: the rows of other kinds, from `stream`.
    read_by_bundles: ClassVar[bool] = True
    unit: ClassVar[Unit] = Unit.ROWS
    #: The size of the first batch, before anything is known about the cost of a row; None is the engine's own.
    first_batch: ClassVar[int | None] = None
    #: Whether the time that an instance needs to read rows counts as its work. Where it does not, an instance of the
    #: source is busy only with what is chained behind it, and the size of batches does not follow the time of reading.
    reading_is_work: ClassVar[bool] = False

    #: Whether a worker that reads a range fetches ahead what comes after it. Then the bundle that read a range gets the
    #: range behind it too; otherwise any bundle may read any range.
    fetches_ahead: ClassVar[bool] = False

    @property
    def ends(self) -> bool:
        """Whether it ends by itself. `penstock show` tells it."""
        return False

    @property
    def replayable(self) -> bool:
        """Whether a range gives the same rows again after a failure. `penstock show` tells it, and so does an event of
        every run with a source that cannot do so."""
        return True

    def describe(self) -> Mapping[str, Any]:
        """What is shown of the source, to people and in JSON. It must hold no secrets."""
        return {"kind": self.kind}

    def check(self, where: Location | None) -> None:
        """Raise a named error if the source cannot be read, for instance because a topic does not exist. Penstock calls
        it before a run touches its state."""

    def offsets(self, place: SourcePlace) -> Offsets:
        """The offsets of this source. The driver asks for them when the query of the source starts."""
        raise NotImplementedError(f"bundles do not read a source of kind {self.kind}")

    def read(self, load: Any, bad_row: BadRow | None) -> Iterator[pa.RecordBatch]:
        """The rows of one range, on an executor. A row that cannot be read goes to `bad_row`; without that it raises
        BAD_ROW."""
        raise NotImplementedError(f"bundles do not read a source of kind {self.kind}")

    def rows_due(self, elapsed: float) -> list[pa.RecordBatch] | None:
        """For a kind that makes its rows by a schedule: all rows that are due this many seconds after the start. Tests
        with a clock use it. Every other kind returns None."""
        return None

    def stream(self, session: Any) -> Any:
        """For a kind that Spark reads: a streaming DataFrame of the SparkSession."""
        raise NotImplementedError(f"Spark does not read a source of kind {self.kind}")
