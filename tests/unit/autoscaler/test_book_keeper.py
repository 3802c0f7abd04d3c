"""The keeper of a controller's book: when it is read and written, how much of it, and what is told when that fails."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from made_up import PLAIN, cluster, decided, placed, seen, view

from penstock.autoscaler import book_form, book_keeper
from penstock.autoscaler.book_form import Remembered, remembered_of
from penstock.autoscaler.book_keeper import KEPT, TOLD, WAIT, BookKeeper, worth_keeping
from penstock.autoscaler.lessons import DAY
from penstock.autoscaler.policy import Decided, Fate, View
from penstock.autoscaler.recollection import Recollection
from penstock.autoscaler.records import Verdict
from penstock.autoscaler.steps import open_steps
from penstock.clock import Clock, replaced_by
from penstock.errors import PenstockError
from penstock.monitor.events import EventKind
from penstock.monitor.kept_book import BookStore, KeptBook
from penstock.monitor.store import StatisticsStore
from penstock.plans.plan import AddMachine, RemoveMachine, SetInstances
from penstock.strategies.memory import Memory

SPEEDS = {"rows": 10_000.0, "work": 100.0, "out": 10_000.0}
ONE, TWO = cluster(1), cluster(2)
BEFORE, AFTER = placed(ONE, rows=1, work=1, out=1), placed(TWO, rows=1, work=3, out=1)
AWAY = PenstockError("STATISTICS_UNREACHABLE", "The statistics store cannot be reached: nobody there.", "Start it.")


def out(number: int = 1, at: float = 0.0, **more: Any) -> Decided:
    actions = AddMachine(TWO.machines[1]), SetInstances("work", AFTER.of("work"))
    return decided(number, seen(BEFORE, ONE, SPEEDS, 100.0), *actions, at=at, **more)


def back(number: int = 2, at: float = 0.0, reverts: tuple[int, ...] = (1,), **more: Any) -> Decided:
    actions = SetInstances("work", BEFORE.of("work")), RemoveMachine("m2")
    return decided(number, seen(AFTER, TWO, SPEEDS, 100.0), *actions, at=at, reverts=reverts, **more)


def scaled_out(now: float = 1000.0) -> View:
    return view(seen(AFTER, TWO, SPEEDS, 100.0), now=now)


class Store:
    """Counts what is written, and may be away."""

    def __init__(self) -> None:
        self.text: str | None = None
        self.writes = 0
        self.away: Exception | None = None

    def book(self) -> str | None:
        if self.away is not None:
            raise self.away
        return self.text

    def write_book(self, text: str) -> None:
        if self.away is not None:
            raise self.away
        self.text = text
        self.writes += 1


class Driver:
    """A keeper in a driver, and what it tells."""

    def __init__(self, store: BookStore) -> None:
        self.told: list[tuple[EventKind, str]] = []
        self.numbers: list[int] = []
        self.keeper = BookKeeper(KeptBook(store), lambda *told: self.told.append(told), self.numbers.append)


@pytest.fixture
def store() -> Store:
    return Store()


def begun(store: BookStore) -> BookKeeper:
    keeper = Driver(store).keeper
    keeper.recall(scaled_out())
    return keeper


def test_the_next_driver_knows_what_the_last_one_wrote(store: Store) -> None:
    first = Driver(store)
    known = first.keeper.recall(scaled_out())
    assert known is not None
    assert known.decided == ()
    assert first.told == []
    first.keeper.note(scaled_out(), (out(7),), 900.0)
    second = Driver(store)
    known = second.keeper.recall(scaled_out(now=2000.0))
    assert known is not None
    [one] = known.decided
    assert (one.operation, one.fate, known.last_ended) == (7, Fate.DONE, 900.0)
    assert second.numbers == [7], "the next operation is another one"
    [(kind, text)] = second.told
    assert kind is EventKind.NOTICE
    assert text == "the controller knows 1 earlier decision from before the restart, and can take back 1 of them"


def test_it_is_read_once(store: Store) -> None:
    keeper = Driver(store).keeper
    assert keeper.recall(scaled_out()) is not None
    assert keeper.recall(scaled_out()) is None


def test_it_is_written_when_something_has_changed(store: Store) -> None:
    keeper, one = begun(store), out()
    keeper.note(scaled_out(), (), None)
    assert store.writes == 0, "nothing is known"
    for _ in range(2):
        keeper.note(scaled_out(), (one,), 900.0)
    assert store.writes == 1
    keeper.note(scaled_out(), (replace(one, reason="other"),), 900.0)
    assert store.writes == 2
    keeper.note(scaled_out(), (replace(one, reason="other"),), 950.0)
    assert store.writes == 3
    keeper.note(view(seen(BEFORE, ONE, SPEEDS, 100.0)), (replace(one, reason="other"),), 950.0)
    assert store.writes == 4, "a person has changed instances"


def test_nothing_is_written_over_what_was_not_read(store: Store) -> None:
    store.text, store.away = "something", AWAY
    keeper = Driver(store).keeper
    with pytest.raises(PenstockError, match="STATISTICS_UNREACHABLE"):
        keeper.recall(scaled_out())
    store.away = None
    keeper.note(scaled_out(), (out(),), None)
    assert store.text == "something"


def test_a_store_that_stays_away_is_not_waited_for_without_end(store: Store) -> None:
    store.away = AWAY
    driver = Driver(store)
    for now in (1000.0, 1010.0, 1000.0 + WAIT - 1):
        with pytest.raises(PenstockError, match="STATISTICS_UNREACHABLE"):
            driver.keeper.recall(scaled_out(now))
    known = driver.keeper.recall(scaled_out(1000.0 + WAIT))
    assert known is not None
    assert known.decided == ()
    [(kind, text)] = driver.told
    assert kind is EventKind.FAULT
    assert text.startswith("STATISTICS_UNREACHABLE")
    assert "begins anew" in text


def test_a_mistake_in_the_store_is_not_waited_for(store: Store) -> None:
    store.away = KeyError("value")
    driver = Driver(store)
    known = driver.keeper.recall(scaled_out())
    assert known is not None
    assert driver.told[0][1].startswith("KeyError: 'value'. The controller begins anew")
    driver.keeper.note(scaled_out(), (out(),), None)
    assert "a restart would lose it: KeyError" in driver.told[1][1]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{", "DECISIONS_UNREADABLE: What the controller remembers of its decisions before the restart cannot be read"),
        ('{"version": 99}', "a newer Penstock has written it (version 99; this one knows 1)"),
    ],
)
def test_what_cannot_be_read_is_told_by_name_and_replaced(
    store: Store, text: str, says: str, caplog: pytest.LogCaptureFixture
) -> None:
    store.text = text
    driver = Driver(store)
    known = driver.keeper.recall(scaled_out())
    assert known is not None
    assert known.decided == ()
    [(kind, told)] = driver.told
    assert kind is EventKind.FAULT
    assert says in told
    assert "The controller begins anew." in told
    assert [(one.levelname, one.getMessage()) for one in caplog.records] == [("WARNING", told)]
    assert "Traceback" not in caplog.text
    driver.keeper.note(scaled_out(), (out(),), None)
    assert store.text != text


def test_what_another_topology_remembers_is_told_and_not_used(store: Store) -> None:
    begun(store).note(scaled_out(), (out(),), None)
    driver = Driver(store)
    other = scaled_out()
    other = replace(other, snapshot=replace(other.snapshot, definition=replace(PLAIN, name="other")))
    known = driver.keeper.recall(other)
    assert known is not None
    assert known.decided == ()
    assert "the topology has other operators or other streams now" in driver.told[0][1]


def test_a_mistake_of_its_own_keeps_no_topology_from_scaling(
    store: Store, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    begun(store).note(scaled_out(), (out(),), None)
    monkeypatch.setattr(book_keeper, "recollection", lambda *_: 1 / 0)
    driver = Driver(store)
    known = driver.keeper.recall(scaled_out())
    assert known is not None
    assert known.decided == ()
    assert "does not fit: ZeroDivisionError" in driver.told[0][1]


def waited_for(driver: Driver, seen_then: View) -> Recollection:
    """What is known once machines that are missing are not waited for any longer."""
    for later in (0.0, WAIT - 1):
        with pytest.raises(PenstockError, match="1 of the 2 machines") as waits:
            driver.keeper.recall(replace(seen_then, now=seen_then.now + later))
        assert waits.value.name == "INCOMPLETE_SNAPSHOT"
    assert driver.told == []
    known = driver.keeper.recall(replace(seen_then, now=seen_then.now + WAIT))
    assert known is not None
    return known


def test_what_is_dropped_is_told_and_logged(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    begun(store).note(scaled_out(), (out(),), None)
    driver = Driver(store)
    waited_for(driver, view(seen(BEFORE, ONE, SPEEDS, 100.0)))
    dropped = driver.told[1][1]
    assert dropped.startswith("operation 1 (1 machine more): it will not be taken back, because")
    assert [one.getMessage() for one in caplog.records] == [f"after the restart, {dropped}"]


def test_a_machine_that_comes_late_is_not_gone(store: Store) -> None:
    begun(store).note(scaled_out(), (out(),), None)
    driver = Driver(store)
    few = view(seen(placed(ONE, rows=1, work=3, out=1), ONE, SPEEDS, 100.0))
    for _ in range(3):
        with pytest.raises(PenstockError, match="the cluster has 1 of the 2 machines that it had"):
            driver.keeper.recall(few)
    known = driver.keeper.recall(scaled_out())
    assert known is not None
    assert known.told == ()
    assert [step.machines for step in open_steps(known.decided)] == [1]


def test_a_machine_that_does_not_come_is_gone(store: Store) -> None:
    begun(store).note(scaled_out(), (out(),), None)
    known = waited_for(Driver(store), view(seen(placed(ONE, rows=1, work=3, out=1), ONE, SPEEDS, 100.0)))
    assert [step.machines for step in open_steps(known.decided)] == [0]


def test_few_sentences_are_told_and_all_are_logged(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    begun(store).note(scaled_out(), [under_way(number) for number in range(1, TOLD + 3)], None)
    driver = Driver(store)
    driver.keeper.recall(scaled_out())
    assert len(driver.told) == 1 + TOLD + 1
    assert driver.told[-1][1] == "the log tells 2 more such changes"
    assert len(caplog.records) == TOLD + 2


def under_way(number: int) -> Decided:
    return replace(out(number, verdict=Verdict.PENDING), fate=Fate.RUNNING, ended=None)


def test_what_cannot_be_written_is_told_once_and_tried_again(store: Store) -> None:
    driver = Driver(store)
    driver.keeper.recall(scaled_out())
    store.away = AWAY
    for _ in range(3):
        driver.keeper.note(scaled_out(), (out(),), None)
    [(kind, text)] = driver.told
    assert kind is EventKind.FAULT
    assert "a restart would lose it: STATISTICS_UNREACHABLE" in text
    store.away = None
    driver.keeper.note(scaled_out(), (out(),), None)
    assert store.writes == 1
    assert driver.told[-1][0] is EventKind.RECOVERY


# Forgetting


class Forgetful(Driver):
    """A driver whose user asks that decisions are forgotten."""

    def __init__(self, store: BookStore) -> None:
        super().__init__(store)
        kept, tell = KeptBook(store), lambda *told: self.told.append(told)
        self.keeper = BookKeeper(kept, tell, self.numbers.append, forget=True)


def test_what_is_forgotten_is_told_and_gone_for_all_later_drivers(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    nothing, harm = out(4, 20.0, verdict=Verdict.NONE), back(5, 30.0, (4,), verdict=Verdict.HARMFUL)
    begun(store).note(scaled_out(), (out(3, 10.0), nothing, harm), 900.0)
    driver = Forgetful(store)
    known = driver.keeper.recall(scaled_out())
    assert known == Recollection()
    assert driver.numbers == [5], "people read of operation 5 in the list of decisions: the next one is 6"
    [(kind, text)] = driver.told
    assert kind is EventKind.NOTICE
    assert text == (
        "as --forget-decisions asks, the controller has forgotten 3 earlier decisions from before the restart "
        "(1 brought nothing, 1 did harm); it will not take back operation 3: what was changed then stays"
    )
    assert [one.getMessage() for one in caplog.records] == [text]
    assert store.text is not None
    assert numbers(read(store)) == [3, 4, 5], "nothing is lost before the round has ended"
    for _ in range(2):
        driver.keeper.note(scaled_out(), (), None)
    assert store.writes == 2
    assert read(store) == ()
    later = Driver(store)
    known = later.keeper.recall(scaled_out())
    assert (known, later.told) == (Recollection(), [])


def test_what_cannot_be_forgotten_now_is_forgotten_as_soon_as_the_store_answers(store: Store) -> None:
    begun(store).note(scaled_out(), (out(3),), 900.0)
    driver = Forgetful(store)
    driver.keeper.recall(scaled_out())
    store.away = AWAY
    driver.keeper.note(scaled_out(), (), None)
    store.away = None
    assert numbers(read(store)) == [3]
    kind, told = driver.told[-1]
    assert kind is EventKind.FAULT
    assert told.startswith(
        "what is forgotten cannot be deleted, and after a restart the controller would know it again"
    )
    driver.keeper.note(scaled_out(), (), None)
    assert read(store) == ()
    assert driver.told[-1] == (EventKind.RECOVERY, "what the controller remembers is written again")


def test_a_decision_that_is_forgotten_before_it_was_judged_is_pending_no_more(store: Store) -> None:
    begun(store).note(scaled_out(), (out(3, verdict=Verdict.PENDING),), 900.0)
    known = Forgetful(store).keeper.recall(scaled_out())
    assert known is not None
    assert known.decided == ()
    assert [(one.operation, one.verdict) for one in known.judged] == [(3, Verdict.UNCLEAR)]


def test_where_nothing_is_known_nothing_is_forgotten(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    driver = Forgetful(store)
    assert driver.keeper.recall(scaled_out()) == Recollection()
    assert driver.told == [(EventKind.NOTICE, "the controller has no earlier decisions to forget")]
    assert caplog.records == []
    driver.keeper.note(scaled_out(), (), None)
    again = Forgetful(store)
    assert again.keeper.recall(scaled_out()) == Recollection()
    assert again.told == driver.told, "what was emptied is as good as nothing"


def test_machines_are_not_waited_for_by_who_knows_nothing_of_them(store: Store) -> None:
    begun(store).note(scaled_out(), (out(3),), 900.0)
    few = view(seen(placed(ONE, rows=1, work=3, out=1), ONE, SPEEDS, 100.0))
    driver = Forgetful(store)
    assert driver.keeper.recall(few) == Recollection()
    driver.keeper.note(scaled_out(), (), None)
    assert Driver(store).keeper.recall(few) == Recollection()


@pytest.mark.parametrize("text", ["{", '{"version": 99}'])
def test_what_cannot_be_read_is_replaced_when_it_is_to_be_forgotten(store: Store, text: str) -> None:
    store.text = text
    driver = Forgetful(store)
    assert driver.keeper.recall(scaled_out()) == Recollection()
    [(kind, told)] = driver.told
    assert (kind, told.split(":")[0]) == (EventKind.FAULT, "DECISIONS_UNREADABLE")
    driver.keeper.note(scaled_out(), (), None)
    assert read(store) == ()


# With a real store


def test_a_store_on_disk_hands_it_from_driver_to_driver(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/statistics.sqlite"
    with closing(StatisticsStore.open(url, "line")) as first:
        begun(first).note(scaled_out(), (out(3),), 900.0)
    with closing(StatisticsStore.open(url, "line")) as second:
        known = Driver(second).keeper.recall(scaled_out())
        assert known is not None
        assert numbers(known.decided) == [3]
    with closing(sqlite3.connect(tmp_path / "statistics.sqlite")) as vandal:
        vandal.execute("update penstock_statistics_meta set value = substr(value, 1, 99) where key = 'controller_book'")
        vandal.commit()
    with closing(StatisticsStore.open(url, "line")) as third:
        driver = Driver(third)
        known = driver.keeper.recall(scaled_out())
        assert known is not None
        assert known.decided == ()
        assert driver.told[0][1].startswith("DECISIONS_UNREADABLE")


def test_a_wall_clock_that_was_set_back_by_a_year_freezes_nothing(store: Store) -> None:
    year = 365 * DAY
    with replaced_by(Clock(lambda: 5 * year, lambda: 0.0)):
        begun(store).note(scaled_out(now=5 * year), (out(at=5 * year - 600),), 5 * year - 60)
    with replaced_by(Clock(lambda: 4 * year, lambda: 0.0)):
        known = Driver(store).keeper.recall(scaled_out(now=4 * year))
    assert known is not None
    assert known.last_ended == 4 * year - 60
    assert [one.at for one in known.decided] == [4 * year - 600]


# How much is kept


def numbers(decided: Sequence[Decided]) -> list[int | None]:
    return [one.operation for one in decided]


def test_old_decisions_are_kept_as_long_as_something_depends_on_them() -> None:
    now = 100 * DAY
    useless = {"verdict": Verdict.UNCLEAR}
    learned = out(3, 30.0, memory=Memory({"work": 100.0}), **useless)
    history = [
        out(1, 10.0, **useless),
        back(2, 20.0, **useless),
        learned,
        back(4, 40.0, (3,), **useless),
        out(5, 50.0, verdict=Verdict.NONE),
        back(6, 60.0, (5,)),
        out(7, 70.0, **useless),
        out(8, now - 20.0, **useless),
        back(9, now - 10.0, (8,)),
    ]
    kept = worth_keeping(history, now)
    # 3 has rates, 5 brought nothing, 7 is an open step; 4 and 6 say that 3 and 5 are open no more.
    assert numbers(kept) == [3, 4, 5, 6, 7, 8, 9]
    assert open_steps(kept) == open_steps(history)


def test_what_a_step_was_made_of_is_kept_with_it() -> None:
    keeps_one = back(2, 20.0, verdict=Verdict.UNCLEAR)
    actions = (SetInstances("work", placed(ONE, rows=1, work=2, out=1).of("work")), RemoveMachine("m2"))
    keeps_one = replace(
        keeps_one, proposal=replace(keeps_one.proposal, plan=replace(keeps_one.proposal.plan, actions=actions))
    )
    history = [out(1, 10.0, verdict=Verdict.UNCLEAR), keeps_one]
    assert numbers(worth_keeping(history, 100 * DAY)) == [1, 2]
    assert [step.instances for step in open_steps(history)] == [{"work": 1}]


def test_no_more_is_written_than_is_allowed(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    pairs = [(out(2 * n + 1, 10.0 * n), back(2 * n + 2, 10.0 * n + 5, (2 * n + 1,))) for n in range(300)]
    history = [one for pair in pairs for one in pair]
    begun(store).note(scaled_out(now=4000.0), history, None)
    assert numbers(read(store))[0] == 601 - KEPT
    assert numbers(read(store))[-1] == 600
    monkeypatch.setattr(book_form, "MOST_BYTES", 20_000)
    begun(store).note(scaled_out(now=4000.0), history, 3999.0)
    assert store.text is not None
    assert 18_000 < len(store.text) < 21_000
    kept = numbers(read(store))
    assert 5 < len(kept) < 100
    assert kept == list(range(601 - len(kept), 601))
    monkeypatch.setattr(book_form, "MOST_BYTES", 300)
    begun(store).note(scaled_out(now=4000.0), history, 3998.0)
    assert read(store) == ()


def read(store: Store) -> tuple[Decided, ...]:
    assert store.text is not None
    known = remembered_of(store.text, PLAIN, TWO, 4000.0, lambda at: at)
    assert isinstance(known, Remembered)
    return known.decided
