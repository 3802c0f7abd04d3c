"""Where a file can be cut into parts: always between two rows, so that a part is read without looking at any other.

JSON lines are cut at a line break, Parquet between row groups. A line break of CSV may lie within quotes, so what is
before it has to be looked at: once, from cut to cut. Compressed text cannot be cut. It runs on the driver, and what
cannot be cut (now) is read whole.
"""

from __future__ import annotations

import bisect
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray
from pyarrow import fs as pafs

from penstock.sources.csv_rows import CsvOptions
from penstock.sources.file_bytes import BLOCK_BYTES, BYTE_ORDER_MARK, FileBytes, Part, compression_of

#: A part is no smaller than this.
PART_BYTES = 4 << 20
#: Of CSV that was looked at, one begin of a row is remembered in so many bytes.
STEP_BYTES = 1 << 20
#: The end of a line is looked for in pieces of this size: most often the first has it.
LINE_BYTES = 1 << 16
_QUOTE = 0x22


class Cutter:
    """Cuts files of one format. It remembers what it found out about the file that it cut last."""

    def __init__(self, fs: pafs.FileSystem, format: str, options: CsvOptions | None) -> None:
        self._fs = fs
        self._format = format
        self._separator = (options or CsvOptions()).separator
        self._path = ""
        #: Size and modification time of that file: another one may come under its name.
        self._version: tuple[int | None, int | None] = (None, None)
        #: Of the last file: the bytes of its row groups, or places where rows begin, in order.
        self._groups: list[int] = []
        self._starts: list[int] = []

    def can_cut(self, path: str) -> bool:
        return self._format == "parquet" or compression_of(path) is None

    def cut(self, path: str, start: int, least: int) -> int | None:
        """The first cut with at least so many bytes behind `start`, which is a cut itself or 0; None if the rest is
        one part."""
        try:
            self._look_at(path)
            return self._cut(path, start, least)
        except (OSError, pa.ArrowException):
            return None  # Who reads it will say what is wrong.

    def between(self, path: str, start: int, stop: int | None, size: int) -> list[Part]:
        """The same range in parts of about so many bytes."""
        cuts: list[int] = []
        at = start
        while (found := self.cut(path, at, size)) is not None and (stop is None or found < stop):
            cuts.append(found)
            at = found
        return [Part(low, high) for low, high in zip([start, *cuts], [*cuts, stop], strict=True)]

    def bytes_between(self, path: str, start: int, stop: int | None, whole: int) -> int:
        """Bytes of a part; `whole` is the size of the file."""
        if self._format != "parquet":
            return max((whole if stop is None else stop) - start, 1)
        if start == 0 and stop is None:
            return max(whole, 1)
        return max(sum(self._groups_of(path)[start:stop]), 1)

    def _cut(self, path: str, start: int, least: int) -> int | None:
        if self._format == "parquet":
            return _cut_groups(self._groups_of(path), start, least)
        if self._format == "csv":
            return self._cut_csv(path, start, least)
        return self._cut_lines(path, start + least)

    def _look_at(self, path: str) -> None:
        """Forgets what is known, unless it is about this very file."""
        info = self._fs.get_file_info(path)
        version = (info.size, info.mtime_ns)
        if (path, version) != (self._path, self._version):
            self._path, self._version, self._groups, self._starts = path, version, [], []

    def _known_start(self, least: int) -> int | None:
        """The first place at or behind this one where a row of CSV is known to begin."""
        index = bisect.bisect_left(self._starts, least)
        return self._starts[index] if index < len(self._starts) else None

    def _groups_of(self, path: str) -> list[int]:
        """The bytes of each row group; none if the footer cannot be read (now)."""
        if path != self._path or not self._groups:
            try:
                self._look_at(path)
                with FileBytes(self._fs, path).random_access() as file:
                    metadata = pq.ParquetFile(file).metadata
                    groups = [metadata.row_group(index) for index in range(metadata.num_row_groups)]
            except (OSError, pa.ArrowException):  # who reads it will say what is wrong
                return []
            self._groups = [_stored_bytes(group) for group in groups]
        return self._groups

    def _cut_lines(self, path: str, at: int) -> int | None:
        with FileBytes(self._fs, path).random_access() as file:
            size = file.size()
            if at >= size:
                return None
            file.seek(at - 1)
            at -= 1
            while block := file.read(LINE_BYTES):
                if (found := block.find(b"\n")) >= 0:
                    return at + found + 1 if at + found + 1 < size else None
                at += len(block)
        return None

    def _cut_csv(self, path: str, start: int, least: int) -> int | None:
        known = self._known_start(start + least)
        if known is not None:
            return known
        # From the last place where a row is known to begin.
        index = bisect.bisect_right(self._starts, start + least)
        at = max(start, self._starts[index - 1] if index else 0)
        scan = RowScan(self._separator)
        with FileBytes(self._fs, path).random_access() as file:
            size = file.size()
            if at == 0 and file.read(len(BYTE_ORDER_MARK)) == BYTE_ORDER_MARK:
                at = len(BYTE_ORDER_MARK)  # A quote behind it stands where a value begins.
            file.seek(at)
            target = at + STEP_BYTES
            while block := file.read(BLOCK_BYTES):
                for found in scan.row_starts(block, target - at, STEP_BYTES):
                    place = at + found
                    target = place + STEP_BYTES
                    if place < size and (not self._starts or place > self._starts[-1]):
                        self._starts.append(place)
                at += len(block)
                known = self._known_start(start + least)
                if known is not None:
                    return known
        return None


def _cut_groups(groups: Sequence[int], start: int, least: int) -> int | None:
    seen = 0
    for index in range(start, len(groups) - 1):
        seen += groups[index]
        if seen >= least:
            return index + 1
    return None


def _stored_bytes(group: pq.RowGroupMetaData) -> int:
    return sum(int(group.column(index).total_compressed_size) for index in range(group.num_columns))


class RowScan:
    """Follows CSV from the begin of a row, block by block, and tells line breaks that end a row from those within
    quotes. Quotes count as they do for pyarrow: only at the begin of a value, and doubled within one."""

    def __init__(self, separator: str) -> None:
        self._before = tuple(f"{separator}\r\n".encode())
        self._quoted = False
        #: The byte before the next block, and whether it is a quote that has ended a value.
        self._last = ord("\n")
        self._just_closed = False

    def row_starts(self, block: bytes, first: int, apart: int) -> list[int]:
        """Places in this block (or right behind it) where rows begin: the first one at or behind `first`, which may
        be behind the block, and then one every `apart` bytes."""
        quotes = self._effective_quotes(block)
        quoted = self._quoted
        starts: list[int] = []
        at = max(first - 1, 0)
        while (found := block.find(b"\n", at)) >= 0:
            before = int(np.searchsorted(quotes, found))
            if quoted ^ bool(before % 2):
                if before == len(quotes):
                    break  # The quotes end in a later block.
                at = int(quotes[before]) + 1
                continue
            starts.append(found + 1)
            at = found + apart
        self._quoted = quoted ^ bool(len(quotes) % 2)
        self._just_closed = bool(len(quotes)) and int(quotes[-1]) == len(block) - 1 and not self._quoted
        self._last = block[-1]
        return starts

    def _effective_quotes(self, block: bytes) -> NDArray[np.int64]:
        """The quotes that begin or end a quoted value, in turn. A doubled one ends it and begins it anew."""
        data = np.frombuffer(block, np.uint8)
        quotes = np.flatnonzero(data == _QUOTE)
        if not len(quotes):
            return quotes
        # If they begin and end values in turn, every second one begins one, or follows the other half of a doubled one.
        openers = quotes[self._quoted :: 2]
        follows = np.zeros(len(openers), np.bool_)
        if self._quoted:
            follows[:] = openers - quotes[:-1:2] == 1
        else:
            follows[1:] = openers[1:] - quotes[1:-1:2] == 1
            follows[:1] = self._just_closed and quotes[0] == 0
        if (self._after_separator(data, openers) | follows).all():
            return quotes
        return self._one_by_one(quotes, self._after_separator(data, quotes))

    def _after_separator(self, data: NDArray[np.uint8], quotes: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which quotes stand where a value begins."""
        before = data[quotes - 1]
        if len(quotes) and quotes[0] == 0:
            before[0] = self._last
        separator, carriage_return, line_feed = self._before
        begins: NDArray[np.bool_] = (before == separator) | (before == line_feed) | (before == carriage_return)
        return begins

    def _one_by_one(self, quotes: NDArray[np.int64], after_separator: NDArray[np.bool_]) -> NDArray[np.int64]:
        """Where some quote stands in the middle of a value without quotes, and means nothing."""
        quoted, closed_at = self._quoted, -1 if self._just_closed else -2
        effective: list[int] = []
        places: Sequence[int] = quotes.tolist()
        for place, begins in zip(places, after_separator.tolist(), strict=True):
            if quoted:
                quoted, closed_at = False, place
            elif begins or closed_at == place - 1:
                quoted = True
            else:
                continue
            effective.append(place)
        return np.array(effective, np.int64)
