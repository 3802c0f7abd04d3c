"""All channels of a topology as the driver sees them: an index in memory, whose changes are written to the catalog.

Reading costs no SQL: the engine asks for ends, segments and backlogs several times a micro-batch.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from penstock.channels.catalog import Catalog
from penstock.channels.index import ChannelIndex
from penstock.channels.joint_publishing import JointPublishing, Publication
from penstock.channels.publishing import NewBatch
from penstock.channels.records import CatalogState, NewSegment, Segment
from penstock.channels.segments import SegmentStore, batch_of_name
from penstock.errors import PenstockError
from penstock.logs import traced

#: The last sweep waits so long for a thread that is still publishing.
END_SECONDS = 5.0
#: Whoever starts a query again waits so long for batches that are being published: the catalog may be restarting.
CATCH_UP_SECONDS = 180.0
#: A sweep lists the folder of one channel, and of each channel at most once in so many sweeps: looking for files of
#: attempts that failed costs the same however many channels and segments there are.
SWEEPS_A_ROUND = 15


@dataclass(frozen=True)
class Bound:
    """How long the backlog of a reader may get before its channel is full: in rows or in bytes, what comes first."""

    rows: int
    bytes: int


@dataclass(frozen=True)
class ChannelBacklog:
    """What waits in a channel for one reader."""

    rows: int
    bytes: int
    #: The earliest birth among the segments that wait, in seconds since the epoch.
    oldest_born: float | None


@dataclass(frozen=True)
class Swept:
    """What a sweep deleted."""

    segments: int
    bytes: int
    orphans: int


class Channels:
    """Any thread may call it. The catalog must belong to this process alone: nobody tells it of changes by others.

    Channels that the catalog knows and the topology does not are left as they are."""

    def __init__(
        self,
        catalog: Catalog,
        store: SegmentStore,
        readers: Mapping[str, Sequence[str]],
        writers: Mapping[str, str],
        bound: Bound,
    ) -> None:
        self.catalog = catalog
        self._store = store
        #: By channel, the operator whose query writes it: its producer, or the first of the chain that one is in.
        self._writers = dict(writers)
        self._readers = {channel: tuple(readers.get(channel, ())) for channel in {**writers, **readers}}
        self._bound = bound
        #: Guards all that follows; notified when a batch is published, for those who did not say who they are.
        self.lock = threading.RLock()
        self._changed = threading.Condition(self.lock)
        #: The same lock, by operator: notified when a batch is published that concerns it.
        self._concerned: dict[str, threading.Condition] = {}
        self._indexes: dict[str, ChannelIndex] = {}
        #: Channels that somebody has found full since a reader last made room in them.
        self._found_full: set[str] = set()
        self._last_batches: dict[str, int] = {}
        # By operator and channel.
        self._read: dict[tuple[str, str], int] = {}
        self._committed: dict[tuple[str, str], int] = {}
        self._committed_in_catalog: dict[tuple[str, str], int] = {}
        self._publishing = JointPublishing(self._enter_all)
        #: Whether the catalog may have batches that are not known here: a transaction was never answered. Whoever
        #: publishes guards it.
        self._may_be_behind = False
        #: Whether the last sweep has found that no thread publishes any more.
        self.nobody_publishes = False
        self._sweeping = threading.Lock()
        self._sweeps = 0
        self._adopt(catalog.load())

    # Reading

    def end(self, channel: str) -> int:
        with self._changed:
            return self._indexes[channel].end

    def segments(self, channel: str, start: int, stop: int) -> list[Segment]:
        """The segments that overlap rows [start, stop); an error, never fewer rows, if some are not in the log."""
        with self._changed:
            index = self._indexes[channel]
            if start < stop and (start < index.first or stop > index.end):
                raise PenstockError(
                    "SEGMENT_UNREADABLE",
                    f"Rows {start} to {stop} of channel {channel} are not there: it has only {index.first} to "
                    f"{index.end}.",
                    "The reader's checkpoint and the catalog do not belong together: restore both, or use a new state "
                    "folder.",
                )
            return index.between(start, stop)

    def read_position(self, operator: str, channel: str) -> int:
        """How far the operator's published batches have read. A new reader starts at the first row that is kept."""
        with self._changed:
            return self._read[operator, channel]

    def committed_position(self, operator: str, channel: str) -> int:
        """The first row that the operator may still ask for; an operator that has read nothing starts there."""
        with self._changed:
            return self._committed[operator, channel]

    def backlog(self, operator: str, channel: str) -> ChannelBacklog:
        with self._changed:
            index, row = self._indexes[channel], self._read[operator, channel]
            return ChannelBacklog(index.end - row, index.bytes_from(row), index.oldest_from(row))

    def full(self, channel: str, coming: Sequence[NewSegment] = ()) -> bool:
        """Whether some reader's backlog is at or over the bound, with segments that are about to be published."""
        rows, size = sum(segment.rows for segment in coming), sum(segment.bytes for segment in coming)
        with self._changed:
            waiting = [self.backlog(operator, channel) for operator in self._readers[channel]]
            found = any(it.rows + rows >= self._bound.rows or it.bytes + size >= self._bound.bytes for it in waiting)
            if found:
                self._found_full.add(channel)
        return found

    def last_batch(self, operator: str) -> int | None:
        with self._changed:
            return self._last_batches.get(operator)

    @property
    def last_batches(self) -> dict[str, int]:
        """By operator, the last batch that was published."""
        with self._changed:
            return dict(self._last_batches)

    def wait(self, predicate: Callable[[], bool], timeout: float | None = None, operator: str = "") -> bool:
        """Wait until a predicate over these channels holds; whether it held when the time was over. The predicate must
        be quick: nobody else can ask the channels while it is evaluated. That happens after every publish or, for an
        operator, after every publish that has rows for it or that has made room where it found none."""
        with self._changed:
            return self._waited_for_by(operator).wait_for(predicate, timeout)

    def pause(self, operator: str, timeout: float) -> None:
        """Wait until something happens that concerns an operator, or the time is over. Who holds the lock does not hold
        it meanwhile."""
        with self._changed:
            self._waited_for_by(operator).wait(timeout)

    def notify(self, operator: str = "") -> None:
        """Have the predicates of those who wait evaluated again: of an operator, or of those that are none."""
        with self._changed:
            self._waited_for_by(operator).notify_all()

    def seen_by(self, operator: str) -> SeenChannels:
        return SeenChannels(self, operator)

    def _waited_for_by(self, operator: str) -> threading.Condition:
        if not operator:
            return self._changed
        if operator not in self._concerned:
            self._concerned[operator] = threading.Condition(self.lock)
        return self._concerned[operator]

    def _notify_concerned(self, written: Iterable[str], read: Iterable[str]) -> None:
        operators = {reader for channel in written for reader in self._readers[channel]}
        # Who writes a channel waits for its readers only if it has found the channel full. To wake a thread that waits
        # for something else would cost the driver time, for nothing.
        with self._changed:
            emptier = self._found_full.intersection(read)
            self._found_full -= emptier
        operators |= {self._writers[channel] for channel in emptier if channel in self._writers}
        for operator in operators:
            self.notify(operator)
        self.notify()

    # Writing

    def publish(
        self,
        operator: str,
        batch: int,
        segments: Sequence[NewSegment],
        manifest: str,
        read_to: Mapping[str, int],
    ) -> bool:
        """Publish a batch; False if it was published before, and then the files of this replay are deleted."""
        [is_new] = self.publish_all([NewBatch(operator, batch, segments, manifest, read_to)])
        return is_new

    def publish_all(self, batches: Sequence[NewBatch]) -> list[bool]:
        """Publish the next batches of one operator in one transaction, all of them or none. False for one that was
        published before, and for all behind it: their files are deleted."""
        for one in batches:
            self._check(one.operator, one.segments, one.read_to)
        publications = [Publication(one) for one in batches]
        self._publishing.publish(*publications)
        for publication in publications:
            if publication.placed is None:
                # If a file cannot be deleted now, a sweep finds it.
                with traced("segments of a batch that was published before could not be deleted", OSError):
                    self._store.delete(publication.unknown)
        return [publication.placed is not None for publication in publications]

    def _enter_all(self, waiting: Sequence[Publication]) -> None:
        was_behind, self._may_be_behind = self._may_be_behind, True
        placed = self.catalog.publish_all([one.batch for one in waiting])
        lost = [
            one
            for one, found in zip(waiting, placed, strict=True)
            if found is None and one.batch.number > self._last_batches.get(one.batch.operator, -1)
        ]
        adopts = was_behind or bool(lost)
        if adopts:
            # An earlier attempt reached the catalog, but the connection broke before we heard of it.
            self._adopt(self.catalog.load())
            self._notify_concerned(self._readers, self._readers)
        with self._changed:
            for one, found in zip(waiting, placed, strict=True):
                batch = one.batch
                if found is not None and not adopts:
                    self._enter(batch.operator, batch.number, found, batch.read_to)
                one.placed = found
                one.unknown = [
                    segment.path
                    for segment in batch.segments
                    if segment.path not in self._indexes[segment.channel].paths
                ]
                one.is_done = True
            written = {segment.channel for one in waiting for segment in one.batch.segments}
            self._notify_concerned(written, {channel for one in waiting for channel in one.batch.read_to})
        self._may_be_behind = False

    def catch_up(self) -> None:
        """Adopt what the catalog has, if a transaction was never answered. Whoever starts a query calls this first: it
        takes the number of its next batch and its position from here, and the query before it may have published more
        than anybody heard of. A batch that is being published is waited for: that query may have sent it."""
        with self._publishing.held(CATCH_UP_SECONDS) as nobody_publishes:
            if not nobody_publishes:
                raise PenstockError(
                    "CATALOG_UNREACHABLE",
                    f"{self.catalog!r} has not finished a transaction in {CATCH_UP_SECONDS:g} s.",
                    "Look what holds the database up. With --state, the topology then goes on where it was.",
                )
            if self._may_be_behind:
                self._adopt(self.catalog.load_settled())
                self._may_be_behind = False
                self._notify_concerned(self._readers, self._readers)

    def written_by(self, channel: str, operator: str) -> None:
        """From now on the batches of this operator's query write the channel."""
        with self._changed:
            self._writers[channel] = operator

    def commit(self, operator: str, channel: str, row: int) -> None:
        """Note that Spark will never again ask the operator for rows below `row`; `sweep` writes it down.

        A commit that is lost in a crash only keeps segments for longer."""
        with self._changed:
            self._committed[operator, channel] = max(row, self._committed[operator, channel])

    def sweep(self, *, startup: bool = False, thorough: bool = False) -> Swept:
        """Delete segments that all readers have committed past, and files that no published batch names: those in one
        channel, the next one at the next sweep; in all of them if it is to be thorough.

        At startup, before anything runs, all files that the catalog does not name are leftovers. Later, those of a
        batch that is not published yet may be about to be. Deletes nothing if the catalog is another driver's by now,
        or lacks what was published."""
        with self._sweeping:
            self.catalog.keep_hold()  # files that another driver needs must not be deleted
            self._write_commits()
            deleted = self._delete_consumed()
            due = self._readers if startup or thorough else self._next_in_turn()
            orphans = sum(self._delete_orphans(channel, startup) for channel in due)
        return Swept(len(deleted), sum(segment.bytes for segment in deleted), orphans)

    def sweep_at_the_end(self) -> Swept:
        """The last sweep, when all queries have ended: nothing is published any more, so every file that the catalog
        does not name is a leftover, whatever its number. An attempt at a batch that a chain was to publish may have a
        higher number than any batch of the operator that writes the channel since. If a thread is still publishing,
        which the database holds up, what that one may be about to name stays."""
        self.nobody_publishes = self._publishing.end(END_SECONDS)
        if self.nobody_publishes:
            # The catalog may have a batch of which this process never heard: the connection broke at the commit, and
            # all further attempts failed.
            self._adopt(self.catalog.load_settled() if self._may_be_behind else self.catalog.load())
        return self.sweep(startup=self.nobody_publishes, thorough=True)

    # Parts of the above

    def _next_in_turn(self) -> list[str]:
        channels = list(self._readers)
        turn = self._sweeps % max(len(channels), SWEEPS_A_ROUND)
        self._sweeps += 1
        return channels[turn : turn + 1]

    def _check(self, operator: str, segments: Sequence[NewSegment], read_to: Mapping[str, int]) -> None:
        for channel in {segment.channel for segment in segments}:
            if self._writers.get(channel) != operator:
                raise ValueError(f"{operator} does not write channel {channel}")
        for channel in read_to:
            if operator not in self._readers.get(channel, ()):
                raise ValueError(f"{operator} does not read channel {channel}")

    def _enter(self, operator: str, batch: int, placed: Sequence[Segment], read_to: Mapping[str, int]) -> None:
        for segment in placed:
            index = self._indexes[segment.channel]
            if segment.first_row != index.end:
                raise PenstockError(
                    "STATE_IN_USE",
                    f"Another process published to channel {segment.channel} of the same topology.",
                    "Stop one of the two processes, or give one of them another state folder or topology name.",
                )
            index.append(segment)
        for channel, row in read_to.items():
            self._read[operator, channel] = max(row, self._read[operator, channel])
        self._last_batches[operator] = batch

    def _adopt(self, state: CatalogState) -> None:
        """Build the index from the catalog; what was committed and not yet written stays."""
        by_channel: dict[str, list[Segment]] = defaultdict(list)
        for segment in state.segments:
            by_channel[segment.channel].append(segment)
        with self._changed:
            self._last_batches = dict(state.last_batches)
            for channel, operators in self._readers.items():
                index = ChannelIndex(by_channel[channel], state.ends.get(channel, 0))
                self._indexes[channel] = index
                for key in ((operator, channel) for operator in operators):
                    position = state.positions.get(key)
                    # A reader that is new, or was away for a while, finds no more than what the others left.
                    self._read[key] = max(index.first, position.read_rows if position else 0)
                    self._committed_in_catalog[key] = position.committed_rows if position else 0
                    committed = max(index.first, self._committed_in_catalog[key])
                    self._committed[key] = max(committed, self._committed.get(key, 0))

    def _write_commits(self) -> None:
        with self._changed:
            pending = {key: row for key, row in self._committed.items() if row > self._committed_in_catalog[key]}
        self.catalog.commit_all(pending)
        self._committed_in_catalog.update(pending)

    def _delete_consumed(self) -> list[Segment]:
        # First the catalog, then the files: a crash in between leaves files that no one names, which the next sweep
        # finds, and never a name without its file.
        with self._changed:
            keep_from = {channel: self._needed_from(channel) for channel in self._readers}
            consumed = [
                segment for channel, row in keep_from.items() for segment in self._indexes[channel].wholly_before(row)
            ]
        self.catalog.forget(consumed)
        with self._changed:
            for channel, stop_row in {segment.channel: segment.stop_row for segment in consumed}.items():
                self._indexes[channel].drop_before(stop_row)
        self._store.delete(segment.path for segment in consumed)
        return consumed

    def _needed_from(self, channel: str) -> int:
        """The first row that some reader may still ask for. Without any reader nothing is needed."""
        # A commit may come before the batch is published, after which a crash would have it read again.
        needed = (min(self._committed[it, channel], self._read[it, channel]) for it in self._readers[channel])
        return min(needed, default=self._indexes[channel].end)

    def _delete_orphans(self, channel: str, startup: bool) -> int:
        # The folder is listed before the index is asked: what is published in between is then known.
        found = [(path, batch) for path in self._store.list(channel) if (batch := batch_of_name(path)) is not None]
        with self._changed:
            paths = self._indexes[channel].paths
            last = self._last_batches.get(self._writers.get(channel, ""), -1)
            orphans = [path for path, batch in found if path not in paths and (startup or batch <= last)]
        self._store.delete(orphans)
        return len(orphans)


@dataclass(frozen=True)
class SeenChannels:
    """All channels as one operator waits for them: it is woken by what concerns it."""

    channels: Channels
    operator: str

    @property
    def lock(self) -> threading.RLock:
        """What guards all channels. Whoever waits holds it while the predicate is evaluated."""
        return self.channels.lock

    @property
    def last_batch(self) -> int | None:
        """The last batch of the operator that was published."""
        return self.channels.last_batch(self.operator)

    def full(self, channel: str, coming: Sequence[NewSegment] = ()) -> bool:
        return self.channels.full(channel, coming)

    def wait(self, predicate: Callable[[], bool], timeout: float | None = None) -> bool:
        return self.channels.wait(predicate, timeout, self.operator)

    def pause(self, timeout: float) -> None:
        self.channels.pause(self.operator, timeout)

    def notify(self) -> None:
        self.channels.notify(self.operator)
