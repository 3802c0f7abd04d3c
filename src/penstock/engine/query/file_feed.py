"""The feed behind a file source: which files there are, in an order that is kept, and how much of them was read.

The order is written to the catalog before Spark sees an offset that counts it, and a file is only ever cut between two
rows, at a place that the offset names: so a replay reads the same rows. See docs/design/0014-files-of-any-size.md.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyarrow import fs as pafs

from penstock.channels.catalog import Catalog
from penstock.channels.segments import open_filesystem
from penstock.clock import run_time
from penstock.engine.message.shares import Share, runs
from penstock.engine.query.feeds import Batch, Partitions, Seats, SourceFeed
from penstock.engine.query.file_list import FileList, Found
from penstock.engine.query.intake import Intake
from penstock.errors import PenstockError
from penstock.sources import cutting
from penstock.sources.file_bytes import Part
from penstock.sources.specs import FileSource
from penstock.topology.definition import Source

#: How often the folder is looked at for new files.
LOOK_SECONDS = 1.0
#: Looking takes no more than this part of the time: a large folder is looked at less often.
LOOK_SHARE = 0.1
#: Of a folder that is followed, so many looks in a row may fail.
PATIENT_LOOKS = 30


@dataclass(frozen=True, order=True)
class Place:
    """How far a source has read: all files with lower numbers, and of this one what lies before `at`."""

    file: int = 0
    at: int = 0

    @property
    def value(self) -> int | list[int]:
        """As Spark keeps it, in JSON: a number between files, a pair within one."""
        return [self.file, self.at] if self.at else self.file

    @property
    def text(self) -> str:
        return json.dumps(self.value)

    @staticmethod
    def parse(text: str | None) -> Place:
        value = json.loads(text) if text else 0
        return Place(*value) if isinstance(value, list) else Place(value)


@dataclass(frozen=True)
class Piece:
    """A file or a part of it, as one instance reads it."""

    found: Found
    part: Part
    bytes: int


class FileFeed(SourceFeed):
    """The offset is a place in the list of files. A part of a file is read by one instance, in one micro-batch."""

    def __init__(
        self,
        operator: Source,
        spec: FileSource,
        catalog: Catalog,
        intake: Intake,
        seats: Seats,
        clock: Callable[[], float] = run_time,
    ) -> None:
        super().__init__(intake, seats, clock)
        self._operator = operator
        self._spec = spec
        self._list = FileList(catalog, operator.name)
        self._filesystem, self._root = open_filesystem(spec.path)
        self._cutter = cutting.Cutter(self._filesystem, spec.format, spec.options)
        self._place = Place()
        #: Bytes of the file at that place that lie before it.
        self._read_of_file = 0
        #: Where the batch before began that Spark asked for last.
        self._last_start: Place | None = None
        self._next_look = 0.0
        #: Looks that failed one after the other.
        self._failed_looks = 0
        self._complete = False
        self.last_bytes = 0
        intake.add(self)
        self.look()

    def available(self) -> int:
        """In bytes: rows are not known before a file is read. Of a file that is not read to its end, something is
        left."""
        return max(self._list.bytes_from(self._place.file) - self._read_of_file, 1 if self._place.at else 0)

    def due_in(self) -> float | None:
        return None if self._complete else max(self._next_look - self._clock(), 0.0)

    @property
    def drained(self) -> bool:
        return self._complete and self._place >= Place(self._list.stop)

    @property
    def told(self) -> Mapping[str, Any]:
        """Where Spark says that its newest batch ends, of the only input that a source has."""
        return {"0": self._place.value} if self.found else {}

    def seek(self, start: str) -> None:
        self._go_to(Place.parse(start))

    def latest(self) -> str | None:
        end = self._end_of_batch(self._intake.admits(self))
        return end.text if end > Place() else None

    def partitions(self, start: str | None, end: str) -> Partitions:
        first, stop = Place.parse(start), Place.parse(end)
        self._list.need_from((self._last_start or first).file)
        self._last_start = first
        self._go_to(stop)
        bundles = self._seats.bundles()
        pieces = list(self._pieces(first, stop, self._seats.instances()))
        self.last_bytes = sum(piece.bytes for piece in pieces)
        self.batch = Batch({}, 0, *_seen(pieces))
        # In the order of the files: so their rows are published (see splitting.py). Who is first goes around.
        turn = first.file % len(bundles)
        bundles = [*bundles[turn:], *bundles[:turn]]
        parts = runs([piece.bytes for piece in pieces], [bundle.instances for bundle in bundles])
        shares = []
        for bundle, part in zip(bundles, parts, strict=True):
            if load := [pieces[index] for index in part]:
                files = [[one.found.path, one.bytes, one.part.start, one.part.stop] for one in load]
                shares.append(Share(bundle, load={"files": files, "born": _seen(load)}))
        return self._seats.partitions(shares)

    def look(self) -> None:
        began = self._clock()
        if self._complete or began < self._next_look:
            return
        self._next_look = began + LOOK_SECONDS
        try:
            listed = self._listed()
        except PenstockError:
            # Of a folder that could be read before, this may pass.
            self._failed_looks += 1
            if not len(self._list) or not self._spec.follow or self._failed_looks > PATIENT_LOOKS:
                raise
            return
        self._failed_looks = 0
        self._list.note([one.path for one in listed], began)
        # By modification time, then name.
        fresh = sorted(
            (one for one in listed if one.path not in self._list), key=lambda one: (one.mtime_ns or 0, one.path)
        )
        if fresh:
            self._list.add([Found(one.path, one.size, began) for one in fresh])
        self._complete = not self._spec.follow
        ended = self._clock()
        self._next_look = max(self._next_look, ended + (ended - began) / LOOK_SHARE)

    def _listed(self) -> list[pafs.FileInfo]:
        """The files that are there; hidden ones, which others are still writing, are passed over."""
        root, spec = self._root, self._spec
        try:
            info = self._filesystem.get_file_info(root)
            if info.type == pafs.FileType.File:
                return [info]
            listed = self._filesystem.get_file_info(
                pafs.FileSelector(root, recursive=True, allow_not_found=spec.follow)
            )
        except OSError as error:
            raise PenstockError(
                "FILE_NOT_FOUND",
                f'the source "{self._operator.name}" cannot read {spec.path}: {error}.',
                "Create the folder first, or correct the path.",
                self._operator.where,
            ) from None
        return [one for one in listed if one.type == pafs.FileType.File and not _hidden(one.path[len(root) :])]

    # What a batch reads

    def _go_to(self, place: Place) -> None:
        """The position is now here: Spark has said so."""
        self._list.check(place.file + bool(place.at))
        self._read_of_file = 0
        if place.at:
            [found] = self._list.files(place.file, place.file + 1)
            self._read_of_file = self._size(found, Part(0, place.at))
        self._place, self.position, self.found = place, place.file, True

    def _end_of_batch(self, admitted: int) -> Place:
        """Up to where a batch reads that may have so many bytes: the files that fit, and of the first that does not as
        much as there is room for."""
        number, at, done = self._place.file, self._place.at, self._read_of_file
        # Few as they may be: a file for every instance, or some would have nothing to do.
        least = number + self._seats.instances() if admitted else 0
        while (admitted > 0 or number < least) and number < self._list.stop:
            [found] = self._list.files(number, number + 1)
            size = max(found.bytes - done, 1)
            if size > max(admitted, 2 * cutting.PART_BYTES) and self._cutter.can_cut(found.path):
                cut = self._cutter.cut(found.path, at, max(admitted, cutting.PART_BYTES))
                if cut is not None:
                    return Place(number, cut)
            admitted -= size
            number, at, done = number + 1, 0, 0
        return Place(number, at)

    def _pieces(self, first: Place, stop: Place, instances: int) -> Iterator[Piece]:
        """What lies between two places, large files in as many pieces as there are instances."""
        last = stop.file + 1 if stop.at else stop.file
        ranges = []
        for number, found in enumerate(self._list.files(first.file, last), first.file):
            start = first.at if number == first.file else 0
            part = Part(start, stop.at if number == stop.file else None)
            ranges.append(Piece(found, part, self._size(found, part)))
        share = max(sum(one.bytes for one in ranges) // instances, cutting.PART_BYTES)
        for one in ranges:
            path = one.found.path
            if one.bytes < 2 * share or not self._cutter.can_cut(path):
                yield one
                continue
            for part in self._cutter.between(path, one.part.start, one.part.stop, share):
                yield Piece(one.found, part, self._size(one.found, part))

    def _size(self, found: Found, part: Part) -> int:
        return self._cutter.bytes_between(found.path, part.start, part.stop, found.bytes)


def _seen(pieces: Sequence[Piece]) -> tuple[float, float]:
    """When the first and the last of them were found."""
    times = [piece.found.seen for piece in pieces]
    return min(times, default=0.0), max(times, default=0.0)


def _hidden(path: str) -> bool:
    return any(part.startswith((".", "_")) for part in path.split("/"))
