"""The rows of files: those that are there, and, when the source follows its folder, those that come.

Which files there are, and in which order, is written to the catalog before Spark sees an offset that counts them. A
file is only ever cut between two rows, at a place that the offset names. So a replay reads the same rows. See
docs/design/0014-files-of-any-size.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from os import fspath
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import fs as pafs

from penstock.channels.segments import open_filesystem
from penstock.errors import Location, PenstockError
from penstock.failing import may_pass
from penstock.kinds import BadRow, Offset, Offsets, Range, SourceKind, SourcePlace, Unit
from penstock.schema import Schema, parse_schema
from penstock.sources import cutting
from penstock.sources.csv_rows import CsvOptions
from penstock.sources.file_bytes import Part
from penstock.sources.file_list import FileList, Found
from penstock.sources.mistakes import bad_source
from penstock.sources.reading import FORMATS, check_types, read_rows, unknown_format

#: How often the folder is looked at for new files.
LOOK_SECONDS = 1.0
#: Looking takes no more than this part of the time: a large folder is looked at less often.
LOOK_SHARE = 0.1
#: Of a folder that is followed, so many looks in a row may fail.
PATIENT_LOOKS = 30
#: What the memory of the run says once the folder was listed.
_LISTED = "listed"


def files(
    path: str | Path,
    *,
    format: str,
    schema: Schema,
    header: bool | None = None,
    separator: str | None = None,
    follow: bool = True,
) -> FileSource:
    """A source that reads a file, or all files in a folder. `format` is "json" (one object on each line), "csv" or
    "parquet".

    A column that a file lacks is null. Penstock ignores columns that the schema does not have. For CSV, `header` says
    whether the first line names the columns (the default is True), and `separator` what stands between two values (the
    default is a comma). With `follow=True`, the source also reads files that appear later. With `follow=False`, it ends
    after the files that are there when it starts."""
    where = Location.of_caller()
    if format not in FORMATS:
        raise unknown_format(format)
    if not fspath(path):
        raise bad_source("the source has an empty path.", "Give a file or a folder.")
    if format != "csv" and (header is not None or separator is not None):
        raise bad_source(f"header and separator are given for {format} files.", 'They are for format="csv" only.')
    if separator is not None and (len(separator) != 1 or not separator.isascii() or separator in '"\r\n'):
        raise bad_source(f"the separator is {separator!r}.", 'Give one character, such as ";" or "\\t".')
    parsed = parse_schema(schema, where)
    check_types(format, parsed)
    options = CsvOptions(header is not False, separator or ",") if format == "csv" else None
    return FileSource(fspath(path), format, parsed, options, follow)


@dataclass(frozen=True)
class FileSource(SourceKind):
    path: str
    format: str
    schema: pa.Schema
    #: For CSV; None for other formats.
    options: CsvOptions | None
    follow: bool

    kind = "files"
    #: How many rows there are in a file is not known before it is read.
    unit = Unit.BYTES
    #: A file or two, to learn what they cost.
    first_batch = 1 << 20

    @property
    def ends(self) -> bool:
        return not self.follow

    def describe(self) -> Mapping[str, Any]:
        csv = {} if self.options is None else {"header": self.options.header, "separator": self.options.separator}
        return {"kind": self.kind, "path": self.path, "format": self.format, "follow": self.follow, **csv}

    def offsets(self, place: SourcePlace) -> FileOffsets:
        return FileOffsets(self, place)

    def read(self, load: Any, bad_row: BadRow | None) -> Iterator[pa.RecordBatch]:
        """A file, or a part of it. A file that cannot be read counts as one bad row, so that others go on."""
        path, part = load[0], Part(*load[1:])
        filesystem, _ = open_filesystem(self.path)
        try:
            yield from read_rows(filesystem, path, self.format, self.schema, self.options, bad_row, part)
        except (OSError, pa.ArrowException, PenstockError) as error:
            if may_pass(error) or isinstance(error, pa.ArrowCancelled):
                raise  # so that Spark tries again; nothing of this attempt is kept
            why = error.message if isinstance(error, PenstockError) else str(error)
            if bad_row is not None:
                bad_row(path, f"the file cannot be read (further{_within(part)}): {why}")
            elif isinstance(error, PenstockError):
                raise
            else:
                raise bad_source(
                    f'"{path}" cannot be read: {why}.',
                    'Restore the file, or declare the source with on_error="skip" or "dead_letter".',
                ) from error


def _within(part: Part) -> str:
    """Parts behind this one are read nevertheless."""
    return "" if part.stop is None else f", up to {part.stop}"


@dataclass(frozen=True, order=True)
class Place:
    """How far a source has read: all files with lower numbers, and of this one what lies before `at`."""

    file: int = 0
    at: int = 0

    @property
    def value(self) -> int | list[int]:
        """As Spark keeps it, in JSON: a number between files, a pair within one."""
        return [self.file, self.at] if self.at else self.file

    @staticmethod
    def of(offset: Offset | None) -> Place:
        return Place(*offset) if isinstance(offset, list) else Place(offset or 0)


class FileOffsets(Offsets):
    """The offset is a place in the list of files. A part of a file is read by one instance, in one micro-batch."""

    def __init__(self, spec: FileSource, place: SourcePlace) -> None:
        self._spec = spec
        self._at = place
        self._clock = place.clock
        self._list = FileList(place.notes, place.operator)
        self._filesystem, self._root = open_filesystem(spec.path)
        self._cutter = cutting.Cutter(self._filesystem, spec.format, spec.options)
        self._place = Place()
        self.position: Offset = self._place.value
        #: Bytes of the file at that place that lie before it.
        self._read_of_file = 0
        #: Where the last two batches end that are over, the older one first; at a start, where the source goes on.
        #: Spark shows the last of them once more when a query is started again.
        self._over: tuple[Place, Place] | None = None
        self._next_look = 0.0
        #: Looks that failed one after the other.
        self._failed_looks = 0
        #: Without `follow`, the first look of the run says which files there are, also for queries that come later.
        self._complete = not spec.follow and _LISTED in place.memory
        self._closed = False
        self.look()

    def available(self) -> int:
        """Of a file that is not read to its end, something is left."""
        return max(self._list.bytes_from(self._place.file) - self._read_of_file, 1 if self._place.at else 0)

    def due_in(self) -> float | None:
        return None if self._complete else max(self._next_look - self._clock(), 0.0)

    @property
    def ended(self) -> bool:
        return self._complete and self._place >= Place(self._list.stop)

    def go_to(self, offset: Offset) -> None:
        place = Place.of(offset)
        self._list.check(place.file + bool(place.at))
        self._read_of_file = 0
        if place.at:
            [found] = self._list.files(place.file, place.file + 1)
            self._read_of_file = self._size(found, Part(0, place.at))
        self._place, self.position = place, place.value

    def end(self, most: int, instances: int) -> Offset | None:
        end = self._end_of_batch(most, instances)
        return end.value if end > Place() else None

    def ranges(self, start: Offset | None, end: Offset, instances: int) -> Sequence[Range]:
        first, stop = Place.of(start), Place.of(end)
        self._over = self._over or (first, first)
        self._list.need_from(self._over[0].file)
        return list(self._cut(first, stop, instances))

    def committed(self, end: Offset) -> None:
        """Batches are cut ahead, so what is cut may be asked for again. Another thread calls it than the one that cuts:
        the list forgets files when the next batch is cut."""
        place = Place.of(end)
        self._over = (self._over[1] if self._over else place, place)

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
        if self._closed:
            return  # listing took long, and another query numbers the files now
        self._list.note([one.path for one in listed], began)
        # By modification time, then name.
        fresh = sorted(
            (one for one in listed if one.path not in self._list), key=lambda one: (one.mtime_ns or 0, one.path)
        )
        if fresh:
            self._list.add([Found(one.path, one.size, began) for one in fresh])
        self._complete = not self._spec.follow
        self._at.memory[_LISTED] = True
        ended = self._clock()
        self._next_look = max(self._next_look, ended + (ended - began) / LOOK_SHARE)

    def close(self) -> None:
        self._closed = True

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
                f'the source "{self._at.operator}" cannot read {spec.path}: {error}.',
                "Create the folder first, or correct the path.",
                self._at.where,
            ) from None
        return [one for one in listed if one.type == pafs.FileType.File and not _hidden(one.path[len(root) :])]

    # What a batch reads

    def _end_of_batch(self, admitted: int, instances: int) -> Place:
        """Up to where a batch reads that may have so many bytes: the files that fit, and of the first that does not as
        much as there is room for."""
        number, at, done = self._place.file, self._place.at, self._read_of_file
        # Few as they may be: a file for every instance, or some would have nothing to do.
        least = number + instances if admitted else 0
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

    def _cut(self, first: Place, stop: Place, instances: int) -> Iterator[Range]:
        """What lies between two places, large files in as many parts as there are instances."""
        last = stop.file + 1 if stop.at else stop.file
        parts = []
        for number, found in enumerate(self._list.files(first.file, last), first.file):
            start = first.at if number == first.file else 0
            part = Part(start, stop.at if number == stop.file else None)
            parts.append((found, part, self._size(found, part)))
        share = max(sum(size for _, _, size in parts) // instances, cutting.PART_BYTES)
        for found, part, size in parts:
            if size < 2 * share or not self._cutter.can_cut(found.path):
                yield _range(found, part, size)
                continue
            for smaller in self._cutter.between(found.path, part.start, part.stop, share):
                yield _range(found, smaller, self._size(found, smaller))

    def _size(self, found: Found, part: Part) -> int:
        return self._cutter.bytes_between(found.path, part.start, part.stop, found.bytes)


def _range(found: Found, part: Part, size: int) -> Range:
    return Range([found.path, part.start, part.stop], size, found.seen, found.seen)


def _hidden(path: str) -> bool:
    return any(part.startswith((".", "_")) for part in path.split("/"))
