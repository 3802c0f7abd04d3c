"""The feed behind a file source: which files there are, in an order that is kept, and how many were read.

The order is written to the catalog before Spark sees an offset that counts it, so that a replay reads the same files.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

from pyarrow import fs as pafs

from penstock.channels.catalog import Catalog
from penstock.channels.segments import open_filesystem
from penstock.clock import run_time
from penstock.engine.feeds import Batch, Partitions, Seats, SourceFeed
from penstock.engine.intake import Intake
from penstock.engine.splitting import Share, runs
from penstock.errors import PenstockError
from penstock.sources.specs import FileSource
from penstock.topology.definition import Source

#: How often the folder is looked at for new files.
LOOK_SECONDS = 1.0
#: Of a folder that is followed, so many looks in a row may fail.
PATIENT_LOOKS = 30


@dataclass(frozen=True)
class Found:
    path: str
    bytes: int
    seen: float


class FileFeed(SourceFeed):
    """The offset is the number of files read. A file is read whole, in one micro-batch, by one bundle."""

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
        self._catalog = catalog
        self._files: list[Found] = [Found(*entry) for entry in self._recorded()]
        self._known = {found.path for found in self._files}
        self._looked = -LOOK_SECONDS
        #: Looks that failed one after the other.
        self._failed_looks = 0
        self._complete = False
        self.last_bytes = 0
        #: Bytes of all files before each, and of all.
        self._bytes_before = [0, *accumulate(max(found.bytes, 1) for found in self._files)]
        intake.add(self)
        self.look()

    def available(self) -> int:
        """In bytes: rows are not known before a file is read."""
        return self._bytes_before[-1] - self._bytes_before[self.position]

    def due_in(self) -> float | None:
        return None if self._complete else max(self._looked + LOOK_SECONDS - time.monotonic(), 0.0)

    @property
    def drained(self) -> bool:
        return self._complete and self.position >= len(self._files)

    def latest(self) -> str | None:
        admitted = self._intake.admits(self)
        end = self.position
        # Few as they may be: a file for every instance, or some would have nothing to do.
        least = self.position + self._seats.instances() if admitted else 0
        while (admitted > 0 or end < least) and end < len(self._files):
            admitted -= max(self._files[end].bytes, 1)
            end += 1
        return json.dumps(end) if end else None

    def seek(self, start: str) -> None:
        super().seek(start)
        self._check_listed(self.position)

    def partitions(self, start: str | None, end: str) -> Partitions:
        first, stop = self._go(start, end)
        self._check_listed(stop)
        chosen = self._files[first:stop]
        self.last_bytes = sum(found.bytes for found in chosen)
        self.batch = Batch({}, 0, *_seen(chosen))
        bundles = self._seats.bundles()
        # In the order of the files: so their rows are published (see splitting.py). Who is first goes around.
        turn = first % len(bundles)
        bundles = [*bundles[turn:], *bundles[:turn]]
        parts = runs([max(found.bytes, 1) for found in chosen], [bundle.instances for bundle in bundles])
        shares = []
        for bundle, part in zip(bundles, parts, strict=True):
            if load := [chosen[index] for index in part]:
                files = [[found.path, max(found.bytes, 1)] for found in load]
                shares.append(Share(bundle, load={"files": files, "born": _seen(load)}))
        return self._seats.partitions(shares)

    def _check_listed(self, count: int) -> None:
        """The catalog listed as many files before Spark counted them. A file that has come into the place of one that
        is no longer listed would never be read."""
        if count > len(self._files):
            raise PenstockError(
                "CATALOG_WENT_BACK",
                f'Spark has counted {count} files of "{self._operator.name}", the catalog lists {len(self._files)}.',
                "Restore checkpoints and catalog of the same moment, or start with a new state folder.",
                self._operator.where,
            )

    def look(self) -> None:
        now = time.monotonic()  # clocks may be set back
        if self._complete or now < self._looked + LOOK_SECONDS:
            return
        self._looked = now
        try:
            listed = list(_list(self._spec, self._operator, self._clock()))
        except PenstockError:
            # Of a folder that could be read before, this may pass.
            self._failed_looks += 1
            if not self._files or not self._spec.follow or self._failed_looks > PATIENT_LOOKS:
                raise
            return
        self._failed_looks = 0
        fresh = [found for found in listed if found.path not in self._known]
        if fresh:
            self._record(fresh)
            self._files += fresh
            self._bytes_before += list(
                accumulate((max(one.bytes, 1) for one in fresh), initial=self._bytes_before[-1])
            )[1:]
            self._known.update(found.path for found in fresh)
        self._complete = not self._spec.follow

    def _recorded(self) -> list[tuple[str, int, float]]:
        count = int(self._catalog.get_meta(self._key("parts")) or 0)
        entries: list[tuple[str, int, float]] = []
        for part in range(count):
            entries += json.loads(self._catalog.get_meta(self._key(str(part))) or "[]")
        return entries

    def _record(self, fresh: Sequence[Found]) -> None:
        count = int(self._catalog.get_meta(self._key("parts")) or 0)
        self._catalog.set_meta(self._key(str(count)), json.dumps([list(vars(found).values()) for found in fresh]))
        self._catalog.set_meta(self._key("parts"), str(count + 1))

    def _key(self, name: str) -> str:
        return f"files/{self._operator.name}/{name}"


def _list(spec: FileSource, operator: Source, now: float) -> Iterator[Found]:
    """Files by modification time, then name; hidden ones, which others are still writing, are passed over."""
    filesystem, root = open_filesystem(spec.path)
    try:
        info = filesystem.get_file_info(root)
        if info.type == pafs.FileType.File:
            yield Found(root, info.size, now)
            return
        listed = filesystem.get_file_info(pafs.FileSelector(root, recursive=True, allow_not_found=spec.follow))
    except OSError as error:
        raise PenstockError(
            "FILE_NOT_FOUND",
            f'the source "{operator.name}" cannot read {spec.path}: {error}.',
            "Create the folder first, or correct the path.",
            operator.where,
        ) from None
    files = [one for one in listed if one.type == pafs.FileType.File and not _hidden(one.path[len(root) :])]
    for one in sorted(files, key=lambda one: (one.mtime_ns or 0, one.path)):
        yield Found(one.path, one.size, now)


def _seen(files: Sequence[Found]) -> tuple[float, float]:
    """When the first and the last of them were found."""
    times = [found.seen for found in files]
    return min(times, default=0.0), max(times, default=0.0)


def _hidden(path: str) -> bool:
    return any(part.startswith((".", "_")) for part in path.split("/"))
