"""The driver's index over the catalog: positions, bounds, waiting, sweeping, and what a crash leaves."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from penstock.channels import log
from penstock.channels.catalog import Catalog
from penstock.channels.log import Bound, ChannelBacklog, Channels, Swept
from penstock.channels.publishing import NewBatch
from penstock.channels.records import NewSegment
from penstock.channels.segments import SegmentStore, segment_name
from penstock.errors import PenstockError

SCHEMA = pa.schema([("n", pa.int64())])
READERS = {"lines": ["count", "copy"]}
WRITERS = {"lines": "read"}
BOUND = Bound(rows=100, bytes=1 << 30)


class World:
    """A catalog and a store that outlive the Channels opened on them, as they outlive a driver."""

    def __init__(self, folder: Path) -> None:
        self.catalog = Catalog.open(f"sqlite:///{folder}/catalog.db", "words")
        self.store = SegmentStore(str(folder / "segments"))

    def channels(self, readers=READERS, writers=WRITERS, bound=BOUND) -> Channels:
        return Channels(self.catalog, self.store, readers, writers, bound)

    def segment(self, batch: int, rows: int, born: float = 0.0, partition: int = 0) -> NewSegment:
        written = self.store.write(
            "lines", segment_name(batch, partition), [pa.record_batch([list(range(rows))], schema=SCHEMA)], SCHEMA
        )
        return NewSegment("lines", written.path, written.rows, written.bytes, "local/0", born, born + 1)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path)
    yield world
    world.catalog.close()


def test_an_empty_channel(world: World) -> None:
    channels = world.channels()
    assert channels.end("lines") == 0
    assert channels.segments("lines", 0, 0) == []
    assert channels.read_position("count", "lines") == 0
    assert channels.backlog("count", "lines") == ChannelBacklog(0, 0, None)
    assert channels.last_batch("read") is None
    assert channels.sweep(startup=True) == Swept(0, 0, 0)


def test_segments_that_overlap_a_range(world: World) -> None:
    channels = world.channels()
    for batch in range(5):
        assert channels.publish("read", batch, [world.segment(batch, 10)], "{}", {})
    assert channels.end("lines") == 50
    assert channels.last_batch("read") == 4

    def found(start: int, stop: int) -> list[int]:
        return [segment.first_row for segment in channels.segments("lines", start, stop)]

    assert found(0, 50) == [0, 10, 20, 30, 40]
    assert found(9, 11) == [0, 10]
    assert found(10, 20) == [10]
    assert found(49, 50) == [40]
    assert found(20, 20) == []


@pytest.mark.parametrize(("start", "stop"), [(0, 20), (9, 20), (10, 31)])
def test_rows_that_are_not_in_the_log_are_an_error_and_never_left_out(world: World, start: int, stop: int) -> None:
    channels = world.channels()
    for batch in range(3):
        channels.publish("read", batch, [world.segment(batch, 10)], "{}", {})
    for operator in READERS["lines"]:
        channels.publish(operator, 0, [], "{}", {"lines": 10})
        channels.commit(operator, "lines", 10)
    channels.sweep()
    with pytest.raises(PenstockError) as caught:
        channels.segments("lines", start, stop)
    assert caught.value.name == "SEGMENT_UNREADABLE"


def test_a_backlog_counts_parts_of_segments(world: World) -> None:
    channels = world.channels()
    first, second, third = world.segment(0, 10, 7.0), world.segment(0, 10, 5.0, 1), world.segment(0, 10, 6.0, 2)
    channels.publish("read", 0, [first, second, third], "{}", {})
    everything = first.bytes + second.bytes + third.bytes
    assert channels.backlog("count", "lines") == ChannelBacklog(30, everything, 5.0)
    channels.publish("count", 0, [], "{}", {"lines": 4})
    assert channels.backlog("count", "lines") == ChannelBacklog(26, everything - first.bytes * 4 // 10, 5.0)
    channels.publish("count", 1, [], "{}", {"lines": 20})
    assert channels.backlog("count", "lines") == ChannelBacklog(10, third.bytes, 6.0)
    assert channels.backlog("copy", "lines").rows == 30


def test_a_channel_is_full_when_any_reader_is_behind(world: World) -> None:
    channels = world.channels(bound=Bound(20, 1 << 30))
    channels.publish("read", 0, [world.segment(0, 19)], "{}", {})
    assert not channels.full("lines")
    channels.publish("count", 0, [], "{}", {"lines": 19})
    channels.publish("read", 1, [world.segment(1, 1)], "{}", {})
    assert channels.full("lines")
    channels.publish("copy", 0, [], "{}", {"lines": 1})
    assert not channels.full("lines")
    assert world.channels(bound=Bound(1000, 100)).full("lines")


def test_a_replay_changes_nothing_and_its_files_go(world: World) -> None:
    channels = world.channels()
    kept = world.segment(0, 10)
    assert channels.publish("read", 0, [kept], "{}", {})
    assert not channels.publish("read", 0, [world.segment(0, 10)], "{}", {})
    assert not channels.publish("read", 0, [kept], "{}", {})
    assert world.store.list("lines") == [kept.path]
    assert channels.end("lines") == 10


def test_only_the_declared_operators_write_and_read(world: World) -> None:
    channels = world.channels()
    with pytest.raises(ValueError, match="does not write"):
        channels.publish("count", 0, [world.segment(0, 1)], "{}", {})
    with pytest.raises(ValueError, match="does not read"):
        channels.publish("read", 0, [], "{}", {"lines": 1})


def test_an_attempt_whose_outcome_was_unknown_is_found(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The catalog has the batch, the driver got an error, and Spark runs the batch again."""
    channels = world.channels()
    publish = world.catalog.publish_all

    def broken(*arguments: object) -> None:
        publish(*arguments)
        raise PenstockError("CATALOG_UNREACHABLE", "gone.", "wait.")

    first = world.segment(0, 10)
    with monkeypatch.context() as patch, pytest.raises(PenstockError):
        patch.setattr(world.catalog, "publish_all", broken)
        channels.publish("read", 0, [first], "{}", {})
    assert channels.end("lines") == 0
    channels.commit("count", "lines", 3)
    assert not channels.publish("read", 0, [world.segment(0, 10)], "{}", {})
    assert channels.end("lines") == 10
    assert world.store.list("lines") == [first.path]
    assert channels.publish("read", 1, [world.segment(1, 5)], "{}", {})
    assert channels.end("lines") == 15


def test_batches_of_one_operator_are_published_together(world: World) -> None:
    channels = world.channels()
    batches = [NewBatch("read", batch, [world.segment(batch, 10)], "{}", {}) for batch in range(3)]
    assert channels.publish_all(batches) == [True, True, True]
    assert channels.end("lines") == 30
    assert channels.last_batch("read") == 2
    assert [one.batch for one in channels.segments("lines", 0, 30)] == [0, 1, 2]
    reads = [NewBatch("count", batch, [], "{}", {"lines": 10 * (batch + 1)}) for batch in range(2)]
    assert channels.publish_all(reads) == [True, True]
    assert channels.read_position("count", "lines") == 20


def test_a_batch_without_segments_among_several_is_known_though_nobody_heard_of_their_commit(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second attempt tells the catalog's batches from others by their segments."""
    channels, publish = world.channels(), world.catalog.publish_all

    def answered_late(batches: Sequence[NewBatch]) -> list[Any]:
        placed = publish(batches)
        return [own or None for own in placed]

    monkeypatch.setattr(world.catalog, "publish_all", answered_late)
    wrote = [[world.segment(0, 10)], [], [world.segment(2, 5)]]
    batches = [NewBatch("read", number, own, "{}", {}) for number, own in enumerate(wrote)]
    assert channels.publish_all(batches) == [True, False, True]
    assert channels.end("lines") == 15
    assert channels.last_batch("read") == 2
    assert len(world.store.list("lines")) == 2


def test_files_of_batches_behind_one_that_another_has_published_go(world: World) -> None:
    channels = world.channels()
    kept = world.segment(0, 10)
    assert channels.publish("read", 0, [kept], "{}", {})
    batches = [NewBatch("read", number, [world.segment(number, 10)], "{}", {}) for number in range(3)]
    assert channels.publish_all(batches) == [False, False, False]
    assert channels.end("lines") == 10
    assert world.store.list("lines") == [kept.path]


def test_a_second_driver_is_noticed(world: World) -> None:
    one, two = world.channels(), world.channels()
    one.publish("read", 0, [world.segment(0, 10)], "{}", {})
    with pytest.raises(PenstockError) as caught:
        two.publish("read", 1, [world.segment(1, 10)], "{}", {})
    assert caught.value.name == "STATE_IN_USE"


# Sweeping


def test_what_all_readers_committed_is_deleted(world: World) -> None:
    channels = world.channels()
    segments = [world.segment(batch, 10) for batch in range(3)]
    for batch, segment in enumerate(segments):
        channels.publish("read", batch, [segment], "{}", {})
    for operator in READERS["lines"]:
        channels.publish(operator, 0, [], "{}", {"lines": 25})
    channels.commit("count", "lines", 25)
    assert channels.sweep() == Swept(0, 0, 0)
    channels.commit("copy", "lines", 19)
    assert channels.sweep() == Swept(1, segments[0].bytes, 0)
    assert world.store.list("lines") == [segment.path for segment in segments[1:]]
    channels.commit("copy", "lines", 25)
    channels.sweep()
    assert [segment.first_row for segment in channels.segments("lines", 20, 30)] == [20]
    again = world.channels()
    assert again.read_position("copy", "lines") == 25
    assert again.backlog("copy", "lines").rows == 5
    assert again.sweep(startup=True) == Swept(0, 0, 0)


def test_a_commit_ahead_of_the_published_batch_deletes_nothing_unread(world: World) -> None:
    channels = world.channels()
    channels.publish("read", 0, [world.segment(0, 10)], "{}", {})
    for operator in READERS["lines"]:
        channels.commit(operator, "lines", 10)
    assert channels.sweep().segments == 0


def test_numbering_and_positions_go_on_when_everything_was_deleted(world: World) -> None:
    channels = world.channels()
    channels.publish("read", 0, [world.segment(0, 10)], "{}", {})
    for operator in READERS["lines"]:
        channels.publish(operator, 0, [], "{}", {"lines": 10})
        channels.commit(operator, "lines", 10)
    assert channels.sweep().segments == 1
    again = world.channels()
    assert again.end("lines") == 10
    assert again.backlog("count", "lines") == ChannelBacklog(0, 0, None)
    again.publish("read", 1, [world.segment(1, 5)], "{}", {})
    assert again.backlog("count", "lines").rows == 5


def test_a_new_reader_starts_at_the_first_row_that_is_kept(world: World) -> None:
    channels = world.channels(readers={"lines": ["count"]})
    for batch in range(3):
        channels.publish("read", batch, [world.segment(batch, 10)], "{}", {})
    channels.publish("count", 0, [], "{}", {"lines": 30})
    channels.commit("count", "lines", 15)
    channels.sweep()
    more = world.channels(readers={"lines": ["count", "late"]})
    assert more.read_position("late", "lines") == 10
    assert more.backlog("late", "lines").rows == 20
    more.commit("count", "lines", 30)
    assert more.sweep().segments == 0


def test_a_channel_without_readers_keeps_nothing(world: World) -> None:
    channels = world.channels(readers={})
    channels.publish("read", 0, [world.segment(0, 10)], "{}", {})
    assert channels.sweep().segments == 1
    assert channels.end("lines") == 10


def test_orphans_of_published_batches_are_deleted_and_work_in_progress_is_not(world: World) -> None:
    channels = world.channels()
    channels.publish("read", 3, [kept := world.segment(3, 10)], "{}", {})
    world.segment(2, 1)
    world.segment(3, 1)
    coming = world.segment(4, 1)
    foreign = Path(world.store.root) / "lines" / "README"
    foreign.write_text("not ours")
    assert channels.sweep() == Swept(0, 0, 2)
    assert set(world.store.list("lines")) == {kept.path, coming.path, "lines/README"}
    assert world.channels().sweep(startup=True) == Swept(0, 0, 1)
    assert set(world.store.list("lines")) == {kept.path, "lines/README"}


def test_at_the_end_nothing_is_left_that_the_catalog_does_not_name(world: World) -> None:
    """A chain that wrote the channel before counted other batches than the operator that writes it now."""
    channels = world.channels()
    channels.publish("read", 3, [kept := world.segment(3, 10)], "{}", {})
    late = world.segment(500, 1)
    assert channels.sweep(thorough=True) == Swept(0, 0, 0)
    assert channels.sweep_at_the_end() == Swept(0, 0, 1)
    assert world.store.list("lines") == [kept.path]
    with pytest.raises(RuntimeError, match="has ended"):
        channels.publish("read", 4, [late], "{}", {})


def test_at_the_end_a_batch_stays_that_is_in_the_catalog_though_nobody_was_told(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The connection broke at the commit, and the database did not answer again until the run was about to end."""
    channels, publish = world.channels(), world.catalog.publish_all

    def unanswered(batches: Any) -> Any:
        publish(batches)
        raise PenstockError("CATALOG_UNREACHABLE", "The connection was lost.", "Try again.")

    with monkeypatch.context() as patch, pytest.raises(PenstockError, match="lost"):
        patch.setattr(world.catalog, "publish_all", unanswered)
        channels.publish("read", 0, [published := world.segment(0, 10)], "{}", {})
    world.segment(1, 1)
    assert channels.sweep_at_the_end() == Swept(0, 0, 1)
    assert world.store.list("lines") == [published.path] == [one.path for one in world.catalog.load().segments]


def test_at_the_end_what_a_thread_is_still_publishing_stays(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The database holds it up for longer than anybody waits for it."""
    monkeypatch.setattr(log, "END_SECONDS", 0.05)
    channels, publish = world.channels(), world.catalog.publish_all
    begun, may_go_on = threading.Event(), threading.Event()

    def held_up(batches: Any) -> Any:
        begun.set()
        assert may_go_on.wait(5)
        return publish(batches)

    monkeypatch.setattr(world.catalog, "publish_all", held_up)
    coming = world.segment(0, 10)
    thread = threading.Thread(target=lambda: channels.publish("read", 0, [coming], "{}", {}), daemon=True)
    thread.start()
    assert begun.wait(5)
    channels.sweep_at_the_end()
    assert not channels.nobody_publishes
    may_go_on.set()
    thread.join(5)
    assert world.store.list("lines") == [coming.path]
    assert channels.backlog("count", "lines").rows == 10


def test_a_crash_between_catalog_and_files_leaves_only_orphans(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    channels = world.channels()
    channels.publish("read", 0, [world.segment(0, 10)], "{}", {})
    for operator in READERS["lines"]:
        channels.publish(operator, 0, [], "{}", {"lines": 10})
        channels.commit(operator, "lines", 10)

    def crash(_paths: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(world.store, "delete", crash)
        channels.sweep()
    assert world.catalog.load().segments == ()
    assert world.channels().sweep() == Swept(0, 0, 1)
    assert world.store.list("lines") == []


# Waiting


def test_a_publish_wakes_who_waits(world: World) -> None:
    channels = world.channels()
    waiting = threading.Event()

    def arrived() -> bool:
        waiting.set()
        return channels.end("lines") > 0

    results: list[bool] = []
    thread = threading.Thread(target=lambda: results.append(channels.wait(arrived, 30)))
    thread.start()
    waiting.wait()
    channels.publish("read", 0, [world.segment(0, 1)], "{}", {})
    thread.join()
    assert results == [True]


def test_waiting_ends_by_notify_and_by_time(world: World) -> None:
    channels = world.channels()
    waiting, stop = threading.Event(), threading.Event()

    def stopped() -> bool:
        waiting.set()
        return stop.is_set()

    assert not channels.wait(stopped, 0.01)
    waiting.clear()
    results: list[bool] = []
    thread = threading.Thread(target=lambda: results.append(channels.wait(stopped)))
    thread.start()
    waiting.wait()
    stop.set()
    channels.notify()
    thread.join()
    assert results == [True]


def test_threads_publish_read_and_sweep_at_once(world: World) -> None:
    readers = {"lines": ["count"]}
    channels = world.channels(readers=readers)
    total = 300

    def write() -> None:
        for batch in range(30):
            channels.publish("read", batch, [world.segment(batch, 10)], "{}", {})

    def consume() -> None:
        row = batch = 0
        while row < total:
            channels.wait(lambda row=row: channels.end("lines") > row, 30)
            stop = channels.end("lines")
            for segment in channels.segments("lines", row, stop):
                assert sum(it.num_rows for it in world.store.read(segment.path, 0, segment.rows)) == segment.rows
            channels.publish("count", batch, [], "{}", {"lines": stop})
            channels.commit("count", "lines", row)
            row, batch = stop, batch + 1

    done = threading.Event()

    def clean() -> None:
        while not done.is_set():
            channels.sweep()

    errors: list[BaseException] = []

    def guarded(work) -> None:
        try:
            work()
        except BaseException as error:
            errors.append(error)

    cleaner = threading.Thread(target=guarded, args=(clean,))
    workers = [threading.Thread(target=guarded, args=(work,)) for work in (write, consume)]
    for thread in (cleaner, *workers):
        thread.start()
    for thread in workers:
        thread.join()
    done.set()
    cleaner.join()
    assert errors == []
    assert channels.backlog("count", "lines").rows == 0


def test_nothing_is_swept_when_another_driver_has_taken_over(world: World, tmp_path: Path) -> None:
    world.catalog.hold()
    channels = world.channels()
    channels.publish("read", 0, [world.segment(0, 10)], "{}", {})
    orphan = world.segment(0, 5, partition=1)
    [lock] = tmp_path.glob("*.lock")
    lock.unlink()
    other = Catalog.open(f"sqlite:///{tmp_path}/catalog.db", "words")
    other.hold()
    with pytest.raises(PenstockError) as caught:
        channels.sweep()
    assert caught.value.name == "STATE_TAKEN_OVER"
    assert orphan.path in world.store.list("lines")
    other.close()


# What it costs while nothing happens

MANY = [f"c{index}" for index in range(100)]


def many(world: World) -> Channels:
    return world.channels({name: [f"reads {name}"] for name in MANY}, {name: f"writes {name}" for name in MANY})


def test_a_sweep_lists_one_channel_however_many_there_are(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    channels, listed = many(world), []
    list_channel = world.store.list
    monkeypatch.setattr(world.store, "list", lambda channel: (listed.append(channel), list_channel(channel))[1])
    for count in range(1, len(MANY) + 1):
        channels.sweep()
        assert len(listed) <= count
    assert sorted(listed) == sorted(MANY), "each in its turn"
    listed.clear()
    channels.sweep(thorough=True)
    assert sorted(listed) == sorted(MANY)


def test_a_channel_alone_is_not_listed_at_every_sweep_either(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    channels, listed = world.channels(), []
    monkeypatch.setattr(world.store, "list", lambda channel: listed.append(channel) or [])
    for _ in range(150):
        channels.sweep()
    assert len(listed) <= 10


def test_what_a_failed_attempt_left_is_found_while_it_runs(world: World) -> None:
    channels = world.channels()
    channels.publish("read", 0, [kept := world.segment(0, 10)], "{}", {})
    channels.sweep()
    world.segment(0, 5)  # of an attempt at the same batch that Spark gave up
    assert sum(channels.sweep().orphans for _ in range(15)) == 1
    assert world.store.list("lines") == [kept.path]


def test_a_publish_wakes_those_that_it_concerns(world: World) -> None:
    """The readers of what was written; a writer of what was read only if it has found no room."""
    readers = {"lines": ["count", "copy"], "counts": ["out"]}
    channels = world.channels(readers, {"lines": "read", "counts": "count"})
    asked: dict[str, int] = dict.fromkeys(["read", "count", "copy", "out", "elsewhere"], 0)
    everybody_waits = threading.Semaphore(0)
    over = threading.Event()

    def wait(name: str) -> None:
        def predicate() -> bool:
            asked[name] += 1
            if asked[name] == 1:
                everybody_waits.release()
            return over.is_set()

        channels.wait(predicate, 30, name)

    threads = [threading.Thread(target=wait, args=(name,), daemon=True) for name in asked]
    for thread in threads:
        thread.start()
    for _ in threads:
        assert everybody_waits.acquire(timeout=30)
    channels.publish("read", 0, [world.segment(0, 10)], "{}", {})
    channels.publish("count", 0, [], "{}", {"lines": 10})
    over.set()
    for name in asked:
        channels.notify(name)
    for thread in threads:
        thread.join(30)
    assert not any(thread.is_alive() for thread in threads)
    assert asked["elsewhere"] == asked["out"] == 2, "asked when it began to wait, and when it was told at the end"
    assert asked["copy"] in (2, 3), "and by the publish of what it reads"
    assert asked["read"] == 2, "it has found room, and waits for something else"


def test_who_has_found_no_room_is_woken_by_a_reader_that_makes_some(world: World) -> None:
    channels = world.channels({"lines": ["count"]}, WRITERS, Bound(10, 1 << 30))
    channels.publish("read", 0, [world.segment(0, 10)], "{}", {})
    has_waited = threading.Event()

    def has_room() -> bool:
        full = channels.full("lines")
        has_waited.set()
        return not full

    found: list[bool] = []
    thread = threading.Thread(target=lambda: found.append(channels.wait(has_room, 30, "read")), daemon=True)
    thread.start()
    assert has_waited.wait(30)
    channels.publish("count", 0, [], "{}", {"lines": 4})
    thread.join(10)
    assert found == [True]
