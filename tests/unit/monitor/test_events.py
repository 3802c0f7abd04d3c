"""The event log: nothing that happens is lost, and nobody who records has to wait."""

from __future__ import annotations

import json
import threading

import pytest

from penstock.monitor.events import KEPT_BESIDE_STORE, Event, EventKind, EventLog


def event(reason: str = "because", kind: EventKind = EventKind.DECISION) -> Event:
    return Event(1.0, kind, "split", reason, cause="stela", fields={"etp": 0.5})


class BrokenStore:
    """A store whose database is away."""

    def __init__(self) -> None:
        self.away = True
        self.written: list[Event] = []

    def last_event(self) -> int:
        return 40

    def write_events(self, events) -> None:
        if self.away:
            raise ConnectionError("away")
        self.written += events

    def events(self, after: int, limit: int) -> list[Event]:
        return [one for one in self.written if one.id > after][:limit]


def test_events_are_numbered_as_they_are_recorded() -> None:
    log = EventLog()
    assert [log.record(event(str(index))).id for index in range(3)] == [1, 2, 3]
    assert [one.reason for one in log.since(1)] == ["1", "2"]
    assert [one.id for one in log.since(0, limit=2)] == [1, 2]
    assert log.flush() == 0


def test_memory_is_bounded() -> None:
    log = EventLog(kept=3)
    for index in range(10):
        log.record(event(str(index)))
    assert [one.id for one in log.since(0)] == [8, 9, 10]
    assert log.lost == 0  # they were for nobody but memory


def test_an_event_is_json_and_cannot_be_changed() -> None:
    text = json.loads(json.dumps(EventLog().record(event()).as_json()))
    assert text == {
        "id": 1,
        "time": 1.0,
        "kind": "decision",
        "subject": "split",
        "cause": "stela",
        "reason": "because",
        "fields": {"etp": 0.5},
    }
    with pytest.raises(TypeError):
        event().fields["etp"] = 1  # type: ignore[index]


def test_a_store_that_is_away_keeps_nobody_from_recording() -> None:
    store = BrokenStore()
    log = EventLog(store, kept=3)
    for index in range(2):
        log.record(event(str(index)))
    with pytest.raises(ConnectionError):
        log.flush()
    store.away = False
    assert log.flush() == 2
    assert [one.id for one in store.written] == [41, 42]


def test_what_never_could_be_written_is_counted() -> None:
    log = EventLog(BrokenStore(), waiting=3)
    for index in range(5):
        log.record(event(str(index)))
    assert log.lost == 2


def test_beside_a_store_few_events_stay_in_memory_and_none_is_missed() -> None:
    store = BrokenStore()
    log = EventLog(store)
    for index in range(3 * KEPT_BESIDE_STORE):
        log.record(event(str(index)))
    everything = list(range(41, 41 + 3 * KEPT_BESIDE_STORE))
    assert [one.id for one in log.since(40)] == everything, "nothing is written yet"
    assert [one.id for one in log.since(40, limit=5)] == everything[:5]
    store.away = False
    log.flush()
    log.record(event("not written"))
    assert len(log._recent) == KEPT_BESIDE_STORE
    assert [one.id for one in log.since(40)] == [*everything, everything[-1] + 1]
    assert log.lost == 0


def test_who_follows_the_events_does_not_ask_the_store() -> None:
    store = BrokenStore()
    log = EventLog(store)
    store.events = None  # type: ignore[assignment,method-assign]
    assert log.since(40) == []
    log.record(event())
    assert [one.id for one in log.since(40)] == [41]
    assert log.since(41) == []


def test_listeners_hear_every_event_until_they_leave() -> None:
    log, heard = EventLog(), []
    leave = log.listen(lambda one: heard.append(one.id))
    log.record(event())
    log.record(event())
    leave()
    leave()
    log.record(event())
    assert heard == [1, 2]


def test_a_listener_that_fails_is_dropped_and_that_is_an_event() -> None:
    log, heard = EventLog(), []

    def fail(_: Event) -> None:
        raise ValueError("no")

    log.listen(fail)
    log.listen(lambda one: heard.append(one.kind))
    log.record(event())
    log.record(event())
    assert [one.kind for one in log.since(0)] == ["decision", "fault", "decision"]
    assert "ValueError: no" in log.since(1)[0].reason
    assert sorted(heard) == ["decision", "decision", "fault"]


def test_waiting_for_the_next_event() -> None:
    log = EventLog()
    assert not log.wait(0, timeout=0)
    threading.Timer(0.05, lambda: log.record(event())).start()
    assert log.wait(0, timeout=10)
    assert not log.wait(1, timeout=0)


def test_threads_get_ids_of_their_own() -> None:
    log = EventLog()
    threads = [threading.Thread(target=lambda: [log.record(event()) for _ in range(200)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [one.id for one in log.since(0)] == list(range(1, 801))
