"""One driver writes to a topology's catalog, and all that it wrote stays: on SQLite and on PostgreSQL."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as StillWaiting
from pathlib import Path

import pytest
import sqlalchemy as sa
from catalog_samples import QUICK, Open, lose_commits, new

from penstock.channels import database, tables
from penstock.channels.catalog import Catalog
from penstock.channels.records import CatalogState
from penstock.errors import PenstockError

#: What a restart of the server does to those who are connected. Waits for up to 30 s until they are gone.
END_SESSIONS = sa.text(
    "SELECT pg_terminate_backend(pid, 30000) FROM pg_stat_activity "
    "WHERE application_name = 'penstock' AND pid <> pg_backend_pid()"
)


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database, "HOLD_SECONDS", 0.0)


@pytest.fixture
def lose_lock(url: str, tmp_path: Path, open_catalog: Open) -> Callable[[], None]:
    """What takes the lock from a driver that lives: sessions are ended, or somebody deletes the file."""

    def of_session() -> None:
        other = open_catalog("bystander", retries=QUICK)
        ended = other._database.run(lambda connection: connection.execute(END_SESSIONS).all())
        assert (True,) in ended

    def of_file() -> None:
        [lock] = tmp_path.glob("*.lock")
        lock.unlink()

    return of_file if url.startswith("sqlite") else of_session


def name_of(work: Callable[[], object]) -> str:
    with pytest.raises(PenstockError) as caught:
        work()
    return caught.value.name


# The lock


def test_a_lock_that_was_lost_is_taken_again(
    open_catalog: Open, lose_lock: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = open_catalog(), open_catalog()
    first.hold()
    lose_lock()
    first.keep_hold()
    assert name_of(second.hold) == "STATE_IN_USE"
    first.publish("read", 0, [new("a")], "{}", {})
    first.keep_hold()
    first.close()
    monkeypatch.setattr(database, "HOLD_SECONDS", 5.0)  # a busy server takes a moment to notice
    second.hold()


@pytest.mark.parametrize("still_there", [True, False])
def test_a_driver_whose_lock_another_has_taken_ends(
    open_catalog: Open, lose_lock: Callable[[], None], still_there: bool
) -> None:
    first, second = open_catalog(), open_catalog()
    first.hold()
    first.keep_hold()
    lose_lock()
    second.hold()
    if not still_there:
        second.close()
    assert name_of(first.keep_hold) == "STATE_TAKEN_OVER"


# The fence


def test_nothing_is_taken_from_a_driver_that_was_replaced(open_catalog: Open, lose_lock: Callable[[], None]) -> None:
    first, second = open_catalog(), open_catalog()
    first.hold()
    placed = first.publish("read", 0, [new("a")], "{}", {})
    first.set_meta("key", "first")
    lose_lock()
    second.hold()
    second.publish("read", 1, [new("b")], "{}", {})
    before = second.load()
    for write in (
        lambda: first.publish("read", 1, [new("c")], "{}", {"lines": 7}),
        lambda: first.publish("read", 2, [new("c")], "{}", {"lines": 7}),
        lambda: first.publish("count", 0, [], "{}", {"lines": 7}),
        lambda: first.commit("count", "lines", 7),
        lambda: first.forget(placed),
        lambda: first.set_meta("key", "second"),
        lambda: first.prune_batches("read", 1),
    ):
        assert name_of(write) == "STATE_TAKEN_OVER"
    assert second.load() == before
    assert second.get_meta("key") == "first"
    assert len(second.manifests("read")) == 2
    assert second.publish("read", 2, [new("d")], "{}", {})[0].first_row == 20


def test_what_is_under_way_is_finished_before_another_takes_over(
    open_catalog: Open, lose_lock: Callable[[], None]
) -> None:
    """Or it would be published after the other one has looked at what there is."""
    inside, go_on = threading.Event(), threading.Event()

    def clock() -> float:
        inside.set()
        assert go_on.wait(30)
        return 1.0

    first, second = open_catalog(clock=clock), open_catalog()
    first.hold()
    lose_lock()
    with ThreadPoolExecutor(2) as threads:
        publishing = threads.submit(first.publish, "read", 0, [new("a")], "{}", {})
        assert inside.wait(30)
        holding = threads.submit(second.hold)
        with pytest.raises(StillWaiting):
            holding.result(timeout=0.3)
        go_on.set()
        assert publishing.result(timeout=30) is not None
        holding.result(timeout=30)
    assert second.load().last_batches == {"read": 0}
    assert name_of(lambda: first.publish("read", 1, [], "{}", {})) == "STATE_TAKEN_OVER"


def test_of_two_drivers_that_publish_at_once_one_is_taken(open_catalog: Open, lose_lock: Callable[[], None]) -> None:
    """Every batch is published by the newest driver or before it took over, whatever the moment."""
    first = open_catalog()
    first.hold()

    def publish_until_refused() -> int:
        for batch in range(10_000):
            try:
                first.publish("read", batch, [new(f"first-{batch}")], "{}", {})
            except PenstockError as error:
                assert error.name == "STATE_TAKEN_OVER"
                return batch
        raise AssertionError("nobody took over")

    with ThreadPoolExecutor(1) as threads:
        refused = threads.submit(publish_until_refused)
        lose_lock()
        second = open_catalog()
        second.hold()
        found = second.load()
        assert refused.result(timeout=60) == (found.last_batches.get("read", -1) + 1)
    assert second.load() == found


def test_a_topology_beside_it_is_not_fenced(open_catalog: Open) -> None:
    first, other = open_catalog("words"), open_catalog("others")
    first.hold()
    other.hold()
    first.publish("read", 0, [new("a")], "{}", {})
    other.publish("read", 0, [new("a")], "{}", {})
    first.keep_hold()
    other.keep_hold()


# A database that goes back


def everything(catalog: Catalog) -> dict[str, list[dict]]:
    return catalog._database.run(
        lambda connection: {
            table.name: [dict(row) for row in connection.execute(sa.select(table)).mappings()]
            for table in tables.tables.sorted_tables
        }
    )


def put_back(catalog: Catalog, copy: dict[str, list[dict]]) -> None:
    """As if a copy was restored, or a replica that lagged took over."""

    def work(connection: sa.Connection) -> None:
        for table in tables.tables.sorted_tables:
            connection.execute(sa.delete(table))
            if copy[table.name]:
                connection.execute(sa.insert(table), copy[table.name])

    catalog._database.run(work)


def test_a_catalog_that_went_back_is_written_to_no_more(open_catalog: Open) -> None:
    catalog = open_catalog()
    catalog.hold()
    placed = catalog.publish("read", 0, [new("a")], "{}", {})
    copy = everything(catalog)
    catalog.publish("read", 1, [new("b")], "{}", {})
    put_back(catalog, copy)
    before = catalog.load()
    # The reader's batch would fit: its own last batch is there. What it has read is not.
    for write in (
        lambda: catalog.publish("count", 0, [], "{}", {"lines": 20}),
        lambda: catalog.publish("read", 2, [new("c")], "{}", {}),
        lambda: catalog.forget(placed),
        catalog.keep_hold,
    ):
        assert name_of(write) == "CATALOG_WENT_BACK"
    assert catalog.load() == before


@pytest.mark.parametrize("empty", [True, False])
def test_a_catalog_from_before_this_driver_is_written_to_no_more(open_catalog: Open, empty: bool) -> None:
    first = open_catalog()
    nothing = everything(first)
    first.hold()
    first.publish("read", 0, [new("a")], "{}", {})
    copy = everything(first)
    first.close()
    second = open_catalog()
    second.hold()
    put_back(second, nothing if empty else copy)
    assert name_of(lambda: second.publish("read", 1, [new("b")], "{}", {})) == "CATALOG_WENT_BACK"


def test_an_epoch_that_is_given_again_is_another_drivers(open_catalog: Open) -> None:
    """After a database went back, the number of an epoch may come twice."""
    first, second = open_catalog(), open_catalog()
    nothing = everything(first)
    first.hold()
    put_back(first, nothing)
    first._database._hold.release()
    second.hold()
    assert name_of(lambda: first.publish("read", 0, [new("b")], "{}", {})) == "STATE_TAKEN_OVER"


# Trouble on the way


def test_a_commit_that_nobody_heard_of_is_no_other_driver(open_catalog: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    catalog = open_catalog(retries=QUICK)
    catalog.hold()
    for batch in range(3):
        lose_commits(catalog, monkeypatch, batch)
        placed = catalog.publish("read", batch, [new(f"{batch}")], "{}", {})
        assert [it.first_row for it in placed] == [batch * 10]
    catalog.keep_hold()


def test_nor_is_one_after_which_the_database_was_away_for_long(
    open_catalog: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog = open_catalog(retries=QUICK)
    catalog.hold()
    lose_commits(catalog, monkeypatch, QUICK.times + 1)
    assert name_of(lambda: catalog.set_meta("key", "value")) == "CATALOG_UNREACHABLE"
    monkeypatch.undo()
    catalog.keep_hold()
    catalog.publish("read", 0, [new("a")], "{}", {})


# Catalogs of an older Penstock


def test_a_catalog_of_the_first_version_gets_what_it_lacks(open_catalog: Open, url: str) -> None:
    old = open_catalog()
    old.publish("read", 0, [new("a")], "{}", {"lines": 4})
    before: CatalogState = old.load()

    def back_to_the_first(connection: sa.Connection) -> None:
        tables.drivers.drop(connection)
        version = sa.update(tables.meta).where(tables.meta.c.topology == "", tables.meta.c.key == "schema_version")
        connection.execute(version.values(value="1"))

    old._database.run(back_to_the_first)
    old.close()
    for _ in range(2):
        catalog = open_catalog()
        assert catalog.load() == before
        catalog.hold()
        catalog.keep_hold()
        catalog.close()
    assert open_catalog().publish("read", 1, [new("b")], "{}", {})[0].first_row == 10


# What one publish leaves for the next


def questions(catalog: Catalog) -> list[str]:
    """The questions that the catalog's connections are asked from now on."""
    asked: list[str] = []

    def note(connection: object, cursor: object, statement: str, *others: object) -> None:
        if statement.lstrip().upper().startswith("SELECT"):
            asked.append(statement)

    sa.event.listen(catalog._database._engine, "before_cursor_execute", note)
    return asked


def test_a_driver_does_not_ask_for_what_it_has_just_written(open_catalog: Open) -> None:
    catalog = open_catalog()
    catalog.hold()
    catalog.publish("read", 0, [new("a")], "{}", {})
    asked = questions(catalog)
    [second] = catalog.publish("read", 1, [new("b", rows=5)], "{}", {}) or []
    assert asked == []
    assert second.first_row == 10
    assert catalog.publish("read", 1, [new("c")], "{}", {}) is None, "a replay is known without a question too"
    [other] = catalog.publish("count", 0, [new("d", channel="counts")], "{}", {"lines": 10}) or []
    assert len(asked) > 0 and other.first_row == 0, "of another operator and channel nothing is known yet"
    assert catalog.load().ends == {"lines": 15, "counts": 10}


def test_after_a_commit_that_nobody_heard_of_the_catalog_is_asked_again(
    open_catalog: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog = open_catalog(retries=QUICK)
    catalog.hold()
    catalog.publish("read", 0, [new("a")], "{}", {})
    lost = lose_commits(catalog, monkeypatch, times=1)
    [second] = catalog.publish("read", 1, [new("b")], "{}", {}) or []
    assert lost and second.first_row == 10, "the batch of the first attempt, once"
    [third] = catalog.publish("read", 2, [new("c")], "{}", {}) or []
    assert third.first_row == 20
    assert catalog.load().ends == {"lines": 30}


def test_after_a_publish_that_failed_the_catalog_is_asked_again(
    open_catalog: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog = open_catalog(retries=QUICK)
    catalog.hold()
    catalog.publish("read", 0, [new("a")], "{}", {})
    with monkeypatch.context() as broken:
        lose_writes(catalog, broken)
        assert name_of(lambda: catalog.publish("read", 1, [new("b", rows=7)], "{}", {})) == "CATALOG_UNREACHABLE"
    [again] = catalog.publish("read", 1, [new("b", rows=7)], "{}", {}) or []
    assert again.first_row == 10
    assert catalog.load().ends == {"lines": 17}


def test_what_is_given_up_is_not_remembered(open_catalog: Open) -> None:
    catalog = open_catalog()
    catalog.hold()
    catalog.publish("read", 0, [new("a")], "{}", {})
    catalog.give_up(["read"], ["lines"], {}, {})
    [anew] = catalog.publish("read", 0, [new("b")], "{}", {}) or []
    assert anew.first_row == 0


def lose_writes(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have every commit fail before it is done."""
    engine = catalog._database._engine

    def commit(connection: object) -> None:
        error = engine.dialect.dbapi.OperationalError("connection lost")
        if engine.dialect.name == "sqlite":
            error.sqlite_errorname = "SQLITE_BUSY"
        raise error

    monkeypatch.setattr(engine.dialect, "do_commit", commit)
