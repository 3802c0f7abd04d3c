"""The files that a source has found, each with its number, in the catalog: what it has read once it never reads again.

It has a row for every file that is there now, and for those that went away a short while ago. So its cost is that of
listing the folder, however many files have ever come and gone.
"""

from __future__ import annotations

import json
import threading
from collections import OrderedDict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import astuple, dataclass, replace
from itertools import accumulate

from penstock.errors import PenstockError
from penstock.kinds import Notes

#: A file that is gone for so long is forgotten: one of the same name that comes then is another file. Until then it may
#: be back, with a network drive that was away for a while.
FORGET_SECONDS = 3600.0


@dataclass(frozen=True)
class Found:
    path: str
    bytes: int
    seen: float


@dataclass(frozen=True)
class Known:
    """What the catalog says of a file, by its path."""

    number: int
    bytes: int
    seen: float
    #: Since when it is not there; None while it is.
    gone: float | None = None


class FileList:
    """Numbers are given in the order in which files are found, and are written down before anybody hears of them.

    In memory are the names of all files that are known, and what is left of the list from the first file on that may
    still be asked for."""

    def __init__(self, catalog: Notes, operator: str) -> None:
        self._catalog = catalog
        self._operator = operator
        self._adopt_older()
        rows = {path: json.loads(value) for path, value in catalog.metas(self._key("")).items()}
        self._known = {path: Known(*row) for path, row in rows.items()}
        #: The number that the next file gets.
        self.stop = int(catalog.get_meta(self._next_key) or 0)
        #: The first one in `_files`. Numbers from here on have no gaps: what may be asked for is never forgotten.
        self.first = self.stop
        by_number = {one.number: Found(path, one.bytes, one.seen) for path, one in self._known.items()}
        while self.first - 1 in by_number:
            self.first -= 1
        self._files = [by_number[number] for number in range(self.first, self.stop)]
        #: Bytes of all files before each in `_files`, and of all.
        self._before = [0, *accumulate(max(found.bytes, 1) for found in self._files)]
        #: Bytes are counted by any thread, also while another one adds files or cuts the list.
        self._counting = threading.Lock()
        #: Files with lower numbers are never asked for again.
        self._needed_from = 0
        #: Files that were there when the folder was listed last, and when that was.
        self._there = {path for path, one in self._known.items() if one.gone is None}
        self._noted_at = 0.0
        #: Since when the others are gone, those that went first at the head...
        away = sorted((one.gone, path) for path, one in self._known.items() if one.gone is not None)
        self._gone = OrderedDict((path, gone) for gone, path in away)
        #: ... and those that are gone for long, but may still be asked for.
        self._long_gone: set[str] = set()

    def __len__(self) -> int:
        """How many files are known."""
        return len(self._known)

    def __contains__(self, path: str) -> bool:
        return path in self._known

    def check(self, stop: int) -> None:
        """Files with numbers below this one are in the list, or were: nobody counts what is not."""
        if stop > self.stop:
            raise PenstockError(
                "CATALOG_WENT_BACK",
                f'"{self._operator}" has read up to file {stop}, but the catalog lists only {self.stop} files.',
                "Restore checkpoints and catalog of the same moment, or start with a new state folder.",
            )

    def files(self, start: int, stop: int) -> Sequence[Found]:
        """Those with numbers [start, stop)."""
        self.check(stop)
        if start < min(stop, self.first):
            raise PenstockError(
                "STATE_DOES_NOT_FIT",
                f'"{self._operator}" should read file {start} again, but by the catalog it has finished that file: its '
                "checkpoint is older than the catalog.",
                "Restore checkpoints and catalog of the same moment, or start with a new state folder.",
            )
        return self._files[start - self.first : stop - self.first]

    def bytes_from(self, number: int) -> int:
        """Of all files with this number or a higher one."""
        with self._counting:
            return self._before[-1] - self._before[min(max(number - self.first, 0), len(self._files))]

    def add(self, fresh: Sequence[Found]) -> None:
        self._write({one.path: Known(number, one.bytes, one.seen) for number, one in enumerate(fresh, self.stop)})
        self._there.update(one.path for one in fresh)
        sizes = accumulate((max(one.bytes, 1) for one in fresh), initial=self._before[-1])
        with self._counting:
            self._files += fresh
            self._before += list(sizes)[1:]

    def need_from(self, number: int) -> None:
        """Nobody will ask for files with lower numbers again."""
        if number <= self._needed_from:
            return
        self._needed_from = number
        count = min(max(number - self.first, 0), len(self._files))
        with self._counting:
            del self._files[:count], self._before[:count]
            self.first += count
        self._forget(list(self._long_gone))

    def note(self, listed: Collection[str], now: float) -> None:
        """Which files are there now. Those that are gone for long are forgotten, unless the folder is empty: that is
        also what is left of a network drive when it is away."""
        if not listed:
            return
        if self._gone and next(reversed(self._gone.values())) > now:
            # The clock was ahead in an earlier run. Files that go from now on would wait behind those that went then.
            self._gone = OrderedDict((path, min(gone, now)) for path, gone in self._gone.items())
        there = set(listed)
        missed = self._there - there
        back = [path for path in there if path in self._known and path not in self._there]
        if missed or back:
            went = {path: replace(self._known[path], gone=now) for path in missed}
            self._write({**went, **{path: replace(self._known[path], gone=None) for path in back}})
        self._there = (self._there - missed).union(back)
        self._long_gone.difference_update(back)
        for path in back:
            self._gone.pop(path, None)
        self._gone.update(dict.fromkeys(missed, now))
        self._noted_at = now
        self._forget()

    def _forget(self, waiting: Sequence[str] = ()) -> None:
        """What is gone for long and never asked for again: of those that were waiting for that, and of those that are
        gone for long since now. Nobody goes through the others, so a look costs the same however many there are."""
        before = self._noted_at - FORGET_SECONDS
        since_now: list[str] = []
        while self._gone and next(iter(self._gone.values())) <= before:
            since_now.append(self._gone.popitem(last=False)[0])
        self._long_gone.update(since_now)
        old = [path for path in (*waiting, *since_now) if self._known[path].number < self._needed_from]
        if old:
            self._write({}, old)
            self._long_gone.difference_update(old)

    def _write(self, rows: Mapping[str, Known], gone: Sequence[str] = ()) -> None:
        stop = max([self.stop, *(one.number + 1 for one in rows.values())])
        values = {self._key(path): json.dumps(astuple(one)) for path, one in rows.items()}
        self._catalog.change_metas({**values, self._next_key: str(stop)}, [self._key(path) for path in gone])
        self._known.update(rows)
        for path in gone:
            del self._known[path]
        self.stop = stop

    def _adopt_older(self) -> None:
        """What an older Penstock wrote: lists of files, in parts, that were numbered by their place."""
        count = int(self._catalog.get_meta(f"files/{self._operator}/parts") or 0)
        if not count:
            return
        keys = [f"files/{self._operator}/{part}" for part in range(count)]
        entries = [entry for key in keys for entry in json.loads(self._catalog.get_meta(key) or "[]")]
        rows = {self._key(path): json.dumps([number, size, seen]) for number, (path, size, seen) in enumerate(entries)}
        values = {**rows, self._next_key: str(len(entries))}
        self._catalog.change_metas(values, [*keys, f"files/{self._operator}/parts"])

    def _key(self, path: str) -> str:
        return f"files/{self._operator}/at:{path}"

    @property
    def _next_key(self) -> str:
        return f"files/{self._operator}/next"
