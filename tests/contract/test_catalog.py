"""What every catalog promises, on SQLite and on PostgreSQL."""

from __future__ import annotations

import random
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import sqlalchemy as sa
from catalog_samples import QUICK, Open, lose_commits, new
from publish_forever import CHANNELS, SIZES

from penstock.channels import database, tables
from penstock.channels.catalog import Catalog
from penstock.channels.publishing import NewBatch
from penstock.channels.records import Position, Segment
from penstock.channels.segments import SegmentStore
from penstock.errors import PenstockError

# Publishing


def test_segments_are_placed_one_behind_the_other(catalog: Catalog) -> None:
    first = catalog.publish("read", 0, [new("a", 3), new("b", 4), new("c", 5, "other")], "{}", {})
    second = catalog.publish("read", 1, [new("d", 6, "other"), new("e", 7)], "{}", {})
    assert [(it.path, it.first_row, it.stop_row) for it in first] == [("a", 0, 3), ("b", 3, 7), ("c", 0, 5)]
    assert [(it.path, it.first_row, it.stop_row) for it in second] == [("d", 5, 11), ("e", 7, 14)]
    assert first[0] == Segment("lines", "a", 3, 100, "local/0", 1.25, 2.5, 0, "read", 0)
    state = catalog.load()
    assert sorted(state.segments, key=lambda it: it.path) == [*first, *second]
    assert state.ends == {"lines": 14, "other": 11}
    assert state.last_batches == {"read": 1}


def test_a_batch_is_published_once(catalog: Catalog) -> None:
    catalog.publish("read", 0, [new("a")], "first", {"lines": 5})
    before = catalog.load()
    assert catalog.publish("read", 0, [new("b")], "second", {"lines": 9}) is None
    assert catalog.publish("read", 0, [new("a")], "first", {"lines": 5}) is None
    assert catalog.load() == before
    assert [it.manifest for it in catalog.manifests("read")] == ["first"]


def following(*batches: int) -> list[NewBatch]:
    """Batches of one operator, the second of which writes nothing."""
    return [
        NewBatch("read", batch, [new(f"{batch}")] if batch != 1 else [], f"{batch}", {"in": batch}) for batch in batches
    ]


def test_batches_of_one_operator_are_published_in_one_transaction(
    open_catalog: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog, commits = open_catalog(), []
    catalog.hold()
    dialect = catalog._database._engine.dialect
    commit = dialect.do_commit
    monkeypatch.setattr(dialect, "do_commit", lambda connection: (commits.append(1), commit(connection)))
    placed = catalog.publish_all(following(0, 1, 2))
    assert len(commits) == 1
    assert [[it.first_row for it in own] for own in placed if own is not None] == [[0], [], [10]]
    assert [it.manifest for it in catalog.manifests("read")] == ["0", "1", "2"]
    state = catalog.load()
    assert (state.ends["lines"], state.last_batches["read"]) == (20, 2)
    assert state.positions["read", "in"].read_rows == 2
    [[fourth]] = catalog.publish_all(following(3))
    assert fourth.first_row == 20


def test_of_batches_whose_commit_was_not_answered_all_are_there(
    open_catalog: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog = open_catalog(retries=QUICK)
    catalog.hold()
    assert lose_commits(catalog, monkeypatch, times=1) == []
    placed = catalog.publish_all(following(0, 1, 2))
    assert [own and [it.first_row for it in own] for own in placed] == [[0], None, [10]], (
        "one has nothing to know it by"
    )
    assert catalog.load().ends == {"lines": 20}
    assert [it.batch for it in catalog.manifests("read")] == [0, 1, 2]


def test_what_was_cut_behind_a_batch_that_was_published_before_is_not_published(catalog: Catalog) -> None:
    """What is in the catalog may be another batch of that number, which ends elsewhere."""
    catalog.publish("read", 0, [new("another", 7)], "another", {})
    before = catalog.load()
    assert catalog.publish_all([*following(0, 1, 2), NewBatch("count", 0, [new("c")], "{}", {})])[:3] == [None] * 3
    assert catalog.load().last_batches == before.last_batches | {"count": 0}
    assert [it.manifest for it in catalog.manifests("read")] == ["another"]


def test_a_batch_below_the_last_is_a_replay_even_if_it_was_pruned(catalog: Catalog) -> None:
    for batch in range(5):
        catalog.publish("read", batch, [new(f"{batch}")], "{}", {})
    catalog.prune_batches("read", 1)
    assert catalog.publish("read", 2, [new("again")], "{}", {}) is None
    assert catalog.load().ends == {"lines": 50}


def test_batches_of_operators_are_apart(catalog: Catalog) -> None:
    assert catalog.last_batch("read") is None
    assert not catalog.published("read", 0)
    catalog.publish("read", 0, [new("a")], "{}", {})
    catalog.publish("count", 7, [], "{}", {"lines": 10})
    assert (catalog.last_batch("read"), catalog.last_batch("count")) == (0, 7)
    assert catalog.published("read", 0)
    assert not catalog.published("read", 1)


def test_nothing_of_a_batch_that_fails_is_kept(catalog: Catalog) -> None:
    catalog.publish("read", 0, [new("a")], "{}", {})
    before = catalog.load()
    with pytest.raises(sa.exc.DBAPIError):
        catalog.publish("read", 1, [new("b"), new(None)], "{}", {"lines": 3})  # a path may not be null
    assert catalog.load() == before
    assert catalog.publish("read", 1, [new("b")], "{}", {"lines": 3}) is not None


def test_read_positions_move_with_the_batch_and_never_back(catalog: Catalog) -> None:
    catalog.publish("count", 0, [], "{}", {"lines": 7, "other": 1})
    catalog.publish("count", 1, [], "{}", {"lines": 3})
    catalog.commit("count", "lines", 5)
    catalog.commit("count", "lines", 4)
    catalog.commit("sink", "counts", 2)
    assert catalog.load().positions == {
        ("count", "lines"): Position(7, 5),
        ("count", "other"): Position(1, 0),
        ("sink", "counts"): Position(0, 2),
    }


def test_large_batches_and_numbers(catalog: Catalog) -> None:
    huge = 1 << 40
    placed = catalog.publish("read", huge, [new(f"{n}", huge, size=huge) for n in range(1500)], "x" * 1_000_000, {})
    assert placed[-1].stop_row == 1500 * huge
    catalog.forget(placed[:1400])
    assert catalog.load().segments == tuple(placed[1400:])
    assert catalog.manifests("read")[0].manifest == "x" * 1_000_000


# Keeping and forgetting


def test_forgotten_segments_are_gone_and_numbering_goes_on(catalog: Catalog) -> None:
    placed = catalog.publish("read", 0, [new("a"), new("b"), new("c", channel="other")], "{}", {})
    catalog.forget(placed)
    catalog.forget([])
    assert catalog.load().segments == ()
    assert catalog.publish("read", 1, [new("d")], "{}", {})[0].first_row == 20


def test_manifests_are_read_in_order_and_pruned(catalog: Catalog) -> None:
    for batch in (0, 1, 2, 5):
        catalog.publish("read", batch, [], f'{{"batch": {batch}}}', {})
    catalog.publish("count", 1, [], "{}", {})
    assert [(it.batch, it.published_at) for it in catalog.manifests("read", 0)] == [
        (1, 1234.5),
        (2, 1234.5),
        (5, 1234.5),
    ]
    assert catalog.prune_batches("read", 2) == 2
    assert [it.manifest for it in catalog.manifests("read")] == ['{"batch": 2}', '{"batch": 5}']
    assert catalog.prune_batches("read", 0) == 1
    assert catalog.prune_batches("read", 3) == 0
    assert catalog.prune_batches("none", 3) == 0
    assert catalog.last_batch("read") == 5
    assert len(catalog.manifests("count")) == 1


def test_meta(catalog: Catalog) -> None:
    assert catalog.get_meta("fingerprint") is None
    catalog.set_meta("fingerprint", "one")
    catalog.set_meta("fingerprint", "two")
    assert catalog.get_meta("fingerprint") == "two"


def test_many_values_at_once(catalog: Catalog) -> None:
    catalog.change_metas({f"list/a_b/{number}": str(number) for number in range(1_200)})
    catalog.change_metas({"list/axb/1": "another list", "list/a_b": "no list"})
    assert catalog.metas("list/a_b/") == {str(number): str(number) for number in range(1_200)}
    gone = [f"list/a_b/{number}" for number in range(2, 1_200)]
    catalog.change_metas({"list/a_b/0": "zero", "list/a_b/new": "one"}, gone)
    assert catalog.metas("list/a_b/") == {"0": "zero", "1": "1", "new": "one"}
    catalog.change_metas({})
    assert catalog.get_meta("list/axb/1") == "another list"


def test_topologies_do_not_see_each_other(open_catalog: Open) -> None:
    one, two = open_catalog("one"), open_catalog("two")
    for catalog in (one, two):
        placed = catalog.publish("read", 0, [new("a")], "{}", {"lines": 1})
        assert placed[0].first_row == 0
        catalog.set_meta("key", repr(catalog))
    one.forget(one.load().segments)
    one.commit("read", "lines", 1)
    one.publish("read", 1, [], "{}", {})
    one.prune_batches("read", 1)
    state = two.load()
    assert len(state.segments) == 1
    assert state.positions == {("read", "lines"): Position(1, 0)}
    assert two.last_batch("read") == 0
    assert len(two.manifests("read")) == 1
    assert two.get_meta("key") == repr(two)


# Life cycle


def test_what_was_written_is_there_after_reopening(open_catalog: Open) -> None:
    first = open_catalog()
    first.publish("read", 0, [new("a")], "{}", {"lines": 4})
    before = first.load()
    first.close()
    assert open_catalog().load() == before


def test_a_catalog_of_a_newer_version_is_left_alone(url: str, open_catalog: Open) -> None:
    catalog = open_catalog()
    newer = sa.update(tables.meta).where(tables.meta.c.topology == "").values(value="99")
    catalog._database.run(lambda connection: connection.execute(newer))
    with pytest.raises(PenstockError) as caught:
        open_catalog()
    assert caught.value.name == "STATE_DOES_NOT_FIT"


def test_several_can_create_the_tables_at_once(open_catalog: Open) -> None:
    with ThreadPoolExecutor(8) as threads:
        catalogs = list(threads.map(open_catalog, [f"topology{n}" for n in range(8)]))
    assert all(catalog.load().segments == () for catalog in catalogs)


# Several threads


def test_publishing_from_eight_threads_leaves_no_gaps(open_catalog: Open) -> None:
    """Two catalogs, as if two processes wrote: all append to one shared channel and one of their own, in any order."""
    catalogs = [open_catalog(), open_catalog()]

    def publish(thread: int) -> None:
        for batch in range(12):
            channels = [f"own{thread}", "shared"] if thread % 2 else ["shared", f"own{thread}"]
            segments = [new(f"{channel}/{thread}-{batch}", batch + 1, channel) for channel in channels]
            assert catalogs[thread % 2].publish(f"op{thread}", batch, segments, "{}", {"in": batch}) is not None

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(publish, range(8)))
    state = catalogs[0].load()
    assert_contiguous(state.segments, state.ends)
    assert state.ends["shared"] == 8 * sum(range(1, 13))
    assert state.last_batches == {f"op{n}": 11 for n in range(8)}


def test_one_of_eight_threads_publishes_a_batch(open_catalog: Open) -> None:
    catalogs = [open_catalog() for _ in range(2)]
    for batch in range(8):
        start = threading.Barrier(8)

        def publish(thread: int, batch: int = batch, start: threading.Barrier = start) -> bool:
            start.wait()
            return catalogs[thread % 2].publish("read", batch, [new(f"{batch}-{thread}")], "{}", {}) is not None

        with ThreadPoolExecutor(8) as threads:
            assert sum(threads.map(publish, range(8))) == 1
    assert catalogs[0].load().ends == {"lines": 80}


def assert_contiguous(segments: tuple[Segment, ...], ends: dict[str, int]) -> None:
    reached = dict.fromkeys(ends, 0)
    for segment in segments:
        assert segment.first_row == reached[segment.channel]
        reached[segment.channel] = segment.stop_row
    assert reached == ends


# Trouble


@pytest.mark.parametrize("together", [1, 3])
def test_a_killed_driver_leaves_only_whole_batches(url: str, tmp_path: Path, open_catalog: Open, together: int) -> None:
    store = SegmentStore(str(tmp_path / "segments"))
    script = Path(__file__).with_name("publish_forever.py")
    chance = random.Random(20)
    published = 0
    for _ in range(2):
        driver = subprocess.Popen([sys.executable, script, url, store.root, str(together)], stdout=subprocess.PIPE)
        try:
            assert driver.stdout.readline() == b"ready\n"
            time.sleep(chance.uniform(0.0, 0.1))
        finally:
            driver.kill()
            driver.communicate()
        catalog = open_catalog("crash")
        state = catalog.load()
        batches = [it.batch for it in catalog.manifests("writer")]
        assert batches == list(range(len(batches)))
        assert len(batches) > published
        assert len(batches) % together == 0, "those of one transaction all, or none"
        published = len(batches)
        assert_contiguous(state.segments, state.ends)
        assert state.positions["writer", "input"].read_rows == published
        for channel in CHANNELS:
            rows = [
                (row["batch"], row["row"])
                for segment in state.segments
                if segment.channel == channel
                for batch in store.read(segment.path, 0, segment.rows)
                for row in batch.to_pylist()
            ]
            assert rows == [(batch, row) for batch in batches for row in range(batch % SIZES + 1)]


def test_a_commit_that_nobody_heard_of_is_not_taken_for_a_replay(
    open_catalog: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Taken for a replay its files would be deleted, though the catalog names them."""
    catalog = open_catalog(retries=QUICK)
    catalog.publish("read", 0, [new("a")], "{}", {})
    lost = lose_commits(catalog, monkeypatch, 1)
    placed = catalog.publish("read", 1, [new("b"), new("c")], "{}", {"in": 3})
    assert lost == ["commit"]
    assert [(it.path, it.first_row) for it in placed] == [("b", 10), ("c", 20)]
    assert catalog.load().ends == {"lines": 30}


# One driver at a time


def test_a_topology_is_held_by_one(open_catalog: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database, "HOLD_SECONDS", 0.0)
    first, second, other = open_catalog(), open_catalog(), open_catalog("other")
    first.hold()
    other.hold()
    with pytest.raises(PenstockError) as error:
        second.hold()
    assert error.value.name == "STATE_IN_USE"
    first.close()
    monkeypatch.setattr(database, "HOLD_SECONDS", 5.0)  # a busy server notices late that a session has ended
    second.hold()


# What a changed declaration gives up


def test_what_is_given_up_goes_and_nothing_else(open_catalog: Open) -> None:
    catalog, other = open_catalog(), open_catalog("other")
    assert catalog.topologies() == set()
    for one in (catalog, other):
        one.publish("read", 0, [new("a", 3), new("b", 4, "kept")], "{}", {})
        one.publish("count", 0, [], "{}", {"lines": 2, "kept": 2})
        one.publish("copy", 0, [], "{}", {"kept": 1})
        for key in ("files/count/0", "files/count2/0", "finished/count", "shape"):
            one.set_meta(key, "old")
    before = other.load()
    catalog.give_up(["count"], ["lines"], {("count", "kept"): 4}, {"shape": "new", "more": "value"})
    after = catalog.load()
    assert after.last_batches == {"read": 0, "copy": 0}
    assert after.ends == {"kept": 4}
    assert [segment.path for segment in after.segments] == ["b"]
    assert after.positions == {("count", "kept"): Position(4, 4), ("copy", "kept"): Position(1, 0)}
    keys = ("files/count/0", "files/count2/0", "finished/count", "shape", "more")
    assert [catalog.get_meta(key) for key in keys] == [None, "old", None, "new", "value"]
    assert other.load() == before
    assert other.get_meta("files/count/0") == "old"
    assert catalog.topologies() == {"words", "other"}
    # Done again, as after a commit that nobody heard of, it is the same.
    catalog.give_up(["count"], ["lines"], {("count", "kept"): 4}, {"shape": "new", "more": "value"})
    assert catalog.load() == after
