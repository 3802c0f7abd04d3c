"""What always holds of channels: against a simple model for any order of calls, and of any split by key."""

from __future__ import annotations

import tempfile
from collections import Counter

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from penstock.channels.catalog import Catalog
from penstock.channels.keys import drop_groups, group_of_rows, rows_of_groups, sort_by_group
from penstock.channels.log import Bound, ChannelBacklog, Channels
from penstock.channels.records import NewSegment
from penstock.channels.segments import SegmentStore, segment_name

SCHEMA = pa.schema([("n", pa.int64())])
READERS = ("count", "copy")


class ChannelMachine(RuleBasedStateMachine):
    """One channel, one writer and two readers. The model is a list of all rows ever published, a number each."""

    @initialize()
    def start(self) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.catalog = Catalog.open("sqlite://", "model")
        self.store = SegmentStore(self.folder.name, max_batch_rows=4)
        self.bound = Bound(rows=25, bytes=1 << 40)
        self.rows = 0
        self.files: list[tuple[int, NewSegment]] = []
        self.batch = -1
        self.read = dict.fromkeys(READERS, 0)
        self.reader_batch = dict.fromkeys(READERS, -1)
        self.committed = dict.fromkeys(READERS, 0)
        self.committed_for_good = dict(self.committed)
        self.open()

    def teardown(self) -> None:
        if hasattr(self, "folder"):
            self.catalog.close()
            self.folder.cleanup()

    def open(self) -> None:
        self.channels = Channels(self.catalog, self.store, {"lines": READERS}, {"lines": "read"}, self.bound)

    def write(self, batch: int, sizes: list[int], born: float) -> list[NewSegment]:
        row, segments = self.rows, []
        for part, size in enumerate(sizes):
            rows = pa.record_batch([list(range(row, row + size))], schema=SCHEMA)
            file = self.store.write("lines", segment_name(batch, part), [rows], SCHEMA)
            segments.append(NewSegment("lines", file.path, file.rows, file.bytes, "local/0", born - part, born))
            row += size
        return segments

    @rule(sizes=st.lists(st.integers(1, 12), max_size=3), born=st.floats(0, 100), skip=st.integers(1, 2))
    def publish(self, sizes: list[int], born: float, skip: int) -> None:
        self.batch += skip
        segments = self.write(self.batch, sizes, born)
        assert self.channels.publish("read", self.batch, segments, "{}", {})
        for segment in segments:
            self.files.append((self.rows, segment))
            self.rows += segment.rows

    @precondition(lambda self: self.batch >= 0)
    @rule(sizes=st.lists(st.integers(1, 12), max_size=3), back=st.integers(0, 3))
    def replay(self, sizes: list[int], back: int) -> None:
        batch = max(self.batch - back, 0)
        assert not self.channels.publish("read", batch, self.write(batch, sizes, 0.0), "{}", {})

    @rule(reader=st.sampled_from(READERS), share=st.floats(0, 1), again=st.booleans())
    def consume(self, reader: str, share: float, again: bool) -> None:
        start = self.read[reader]
        stop = start + int((self.rows - start) * share)
        values = [
            value
            for segment in self.channels.segments("lines", start, stop)
            for batch in self.store.read(
                segment.path, max(start - segment.first_row, 0), min(stop - segment.first_row, segment.rows)
            )
            for value in batch.column("n").to_pylist()
        ]
        assert values == list(range(start, stop))
        self.reader_batch[reader] += 1
        assert self.channels.publish(reader, self.reader_batch[reader], [], "{}", {"lines": stop})
        if again:
            assert not self.channels.publish(reader, self.reader_batch[reader], [], "{}", {"lines": self.rows})
        self.read[reader] = stop

    @rule(reader=st.sampled_from(READERS), share=st.floats(0, 1))
    def commit(self, reader: str, share: float) -> None:
        row = int(self.read[reader] * share)
        self.channels.commit(reader, "lines", row)
        self.committed[reader] = max(row, self.committed[reader])

    @rule(leftover=st.booleans())
    def sweep(self, leftover: bool) -> None:
        """A task that was given up may have left a file, of a batch that is published; one to come has files too."""
        if leftover and self.batch >= 0:
            self.write(self.batch, [1], 0.0)
        coming = self.write(self.batch + 1, [1], 0.0)
        swept = self.channels.sweep(thorough=True)
        self.committed_for_good = dict(self.committed)
        gone = [it for it in self.files if it[0] + it[1].rows <= min(self.committed.values())]
        self.files = self.files[len(gone) :]
        assert (swept.segments, swept.bytes) == (len(gone), sum(it.bytes for _, it in gone))
        assert swept.orphans == (leftover and self.batch >= 0)
        assert set(self.store.list("lines")) == {it.path for it in (*coming, *(it for _, it in self.files))}
        self.store.delete(it.path for it in coming)

    @rule()
    def crash(self) -> None:
        """The driver ends in mid-batch: commits that no sweep wrote down are forgotten, all else is there again."""
        self.write(self.batch + 1, [2, 3], 0.0)
        self.committed = dict(self.committed_for_good)
        self.open()
        assert self.channels.sweep(startup=True).orphans == 2
        assert set(self.store.list("lines")) == {it.path for _, it in self.files}

    @invariant()
    def rows_are_contiguous(self) -> None:
        if not hasattr(self, "channels"):
            return
        assert self.channels.end("lines") == self.rows
        first = self.files[0][0] if self.files else self.rows
        found = self.channels.segments("lines", first, self.rows)
        assert [(it.first_row, it.path) for it in found] == [(row, it.path) for row, it in self.files]
        assert first <= min(self.read.values())

    @invariant()
    def backlogs_are_exact(self) -> None:
        if not hasattr(self, "channels"):
            return
        expected = {}
        for reader in READERS:
            row = self.read[reader]
            unread = [(first, it) for first, it in self.files if first + it.rows > row]
            size = sum(it.bytes - it.bytes * max(row - first, 0) // it.rows for first, it in unread)
            oldest = min((it.born_from for _, it in unread), default=None)
            expected[reader] = ChannelBacklog(self.rows - row, size, oldest)
            assert self.channels.read_position(reader, "lines") == row
            assert self.channels.backlog(reader, "lines") == expected[reader]
        assert self.channels.full("lines") == any(it.rows >= self.bound.rows for it in expected.values())


ChannelMachine.TestCase.settings = settings(max_examples=settings.default.max_examples * 4 // 5, stateful_step_count=25)
TestChannels = ChannelMachine.TestCase


WORDS = st.one_of(st.none(), st.text(max_size=3))
NUMBERS = st.one_of(st.none(), st.integers(-3, 3))
KEYS = st.lists(st.tuples(WORDS, NUMBERS), max_size=40)


def batch_of(keys: list[tuple[str | None, int | None]]) -> pa.RecordBatch:
    words, numbers = [word for word, _ in keys], [number for _, number in keys]
    return pa.record_batch(
        [pa.array(words, pa.string()), pa.array(numbers, pa.int64()), pa.array(range(len(keys)), pa.int64())],
        names=["word", "number", "row"],
    )


@given(KEYS, KEYS, st.integers(1, 20))
def test_a_key_has_one_group_whatever_else_is_in_its_batch(one: list, two: list, groups: int) -> None:
    seen: dict[object, int] = {}
    for keys in (one, two, one + two):
        for key, group in zip(keys, group_of_rows(batch_of(keys), ["word", "number"], groups), strict=True):
            assert seen.setdefault(key, group) == group
            assert 0 <= group < groups


@given(KEYS, st.integers(1, 20), st.data())
def test_a_split_is_a_partition_that_keeps_the_order_within_a_key(keys: list, groups: int, data: st.DataObject) -> None:
    split = sort_by_group(batch_of(keys), ["word", "number"], groups)
    cuts = data.draw(st.lists(st.integers(0, groups), max_size=4).map(sorted))
    parts = [rows_of_groups(split, first, stop) for first, stop in zip([0, *cuts], [*cuts, groups], strict=True)]
    rows = [row for part in parts for row in part.to_pylist()]
    assert rows == drop_groups(split).to_pylist()
    assert sorted(row["row"] for row in rows) == list(range(len(keys)))
    owners = Counter(key for part in parts for key in {(row["word"], row["number"]) for row in part.to_pylist()})
    assert set(owners.values()) <= {1}
    for key in owners:
        order = [row["row"] for row in rows if (row["word"], row["number"]) == key]
        assert order == sorted(order)
