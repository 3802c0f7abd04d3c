"""The segments of one channel in memory: found by row, with the bytes and the age of what is behind a row."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence

from penstock.channels.records import Segment


class ChannelIndex:
    """Contiguous segments in the order of their rows. All questions are answered in logarithmic time.

    It is not safe for several threads; its owner is."""

    def __init__(self, segments: Sequence[Segment] = (), end: int = 0) -> None:
        self._end = segments[0].first_row if segments else end
        self._segments: list[Segment] = []
        self._first_rows: list[int] = []
        #: The bytes before each segment, counted from the first one that was ever in this index.
        self._first_bytes: list[int] = []
        self._end_bytes = 0
        #: First rows and births of the segments that nothing behind them is older than: the minimum from any segment
        #: on is the first entry at or behind it.
        self._oldest_rows: list[int] = []
        self._oldest_born: list[float] = []
        self.paths: set[str] = set()
        for segment in segments:
            self.append(segment)
        if self._end != end:
            raise ValueError(f"the channel ends at row {end}, but its segments at row {self._end}")

    @property
    def first(self) -> int:
        """The first row that is still kept; the end if none is."""
        return self._first_rows[0] if self._segments else self._end

    @property
    def end(self) -> int:
        return self._end

    def append(self, segment: Segment) -> None:
        if segment.first_row != self._end:
            raise ValueError(f"{segment.path} starts at row {segment.first_row}, but the channel ends at {self._end}")
        self._segments.append(segment)
        self._first_rows.append(segment.first_row)
        self._first_bytes.append(self._end_bytes)
        self._end, self._end_bytes = segment.stop_row, self._end_bytes + segment.bytes
        while self._oldest_born and self._oldest_born[-1] >= segment.born_from:
            self._oldest_rows.pop()
            self._oldest_born.pop()
        self._oldest_rows.append(segment.first_row)
        self._oldest_born.append(segment.born_from)
        self.paths.add(segment.path)

    def between(self, start: int, stop: int) -> list[Segment]:
        """The segments that overlap rows [start, stop)."""
        if start >= stop:
            return []
        return self._segments[self._at(start) : bisect_left(self._first_rows, stop)]

    def bytes_from(self, row: int) -> int:
        """The bytes from a row to the end; a segment that is read in part counts in proportion to its rows."""
        if row >= self._end:
            return 0
        index = self._at(row)
        segment = self._segments[index]
        read = segment.bytes * max(row - segment.first_row, 0) // segment.rows
        return self._end_bytes - self._first_bytes[index] - read

    def oldest_from(self, row: int) -> float | None:
        """The earliest birth of what is from a row to the end; None if nothing is."""
        if row >= self._end:
            return None
        return self._oldest_born[bisect_left(self._oldest_rows, self._first_rows[self._at(row)])]

    def wholly_before(self, row: int) -> list[Segment]:
        """The segments without a row at or behind `row`."""
        return list(self._segments) if row >= self._end else self._segments[: self._at(row)]

    def drop_before(self, row: int) -> None:
        """Forget the segments that start before `row`."""
        count = bisect_left(self._first_rows, row)
        self.paths.difference_update(segment.path for segment in self._segments[:count])
        del self._segments[:count], self._first_rows[:count], self._first_bytes[:count]
        old = bisect_left(self._oldest_rows, row)
        del self._oldest_rows[:old], self._oldest_born[:old]

    def _at(self, row: int) -> int:
        """Where the segment that holds a row stands; the first one for a row that is no longer kept."""
        return max(bisect_right(self._first_rows, row) - 1, 0)
