"""A processor is tested without Spark: rows in, rows out, its state, its timers by a clock, its values expire."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from penstock import PenstockError, Topology, sinks, sources, state, testing

START = datetime(2026, 1, 1, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


class Visits(state.Processor):
    """Counts clicks; after a minute without one it says so, and forgets."""

    seen = state.value("n long, last timestamp")
    pages = state.map("page string", "n long")
    latest = state.list("page string")

    def rows(self, key: state.Declared, rows: Iterator[dict]) -> Iterator[dict]:
        seen = self.seen.get({"n": 0, "last": None})
        for at in self.timers:
            self.timers.cancel(at)
        for row in rows:
            seen["n"] += 1
            seen["last"] = self.now
            self.pages.set(row["page"], self.pages.get(row["page"], 0) + 1)
            self.latest.append(row["page"])
        self.seen.set(seen)
        self.timers.set(self.now + MINUTE)
        yield {**key, "n": seen["n"], "ended": False}

    def timer(self, key: dict, at: datetime) -> Iterator[dict]:
        yield {**key, "n": self.seen.get()["n"], "ended": True}
        for one in (self.seen, self.pages, self.latest):
            one.clear()


CLICKS = "user string, page string, at timestamp"


def declared(processor: Any, schema: str = "user string, n long, ended boolean", **options: Any) -> Topology:
    topology = Topology("clicks")
    clicks = topology.source("clicks", sources.files("/data/clicks", format="json", schema=CLICKS))
    visits = topology.stateful("visits", processor, inputs=clicks, key="user", schema=schema, **options)
    topology.sink("out", sinks.noop(), inputs=visits)
    return topology


def click(user: str, page: str = "/", seconds: float = 0) -> dict[str, Any]:
    return {"user": user, "page": page, "at": START + timedelta(seconds=seconds)}


def test_rows_state_and_timers_of_processing_time() -> None:
    trial = testing.stateful(declared(Visits), "visits")
    first = trial.rows([click("ann", "/a"), click("bob"), click("ann", "/b"), click("ann", "/a")])
    assert first == [{"user": "ann", "n": 3, "ended": False}, {"user": "bob", "n": 1, "ended": False}]
    assert trial.state("seen", user="ann") == {"n": 3, "last": START}
    assert trial.state("pages", user="ann") == {"/a": 2, "/b": 1}
    assert trial.state("latest", user="ann") == ["/a", "/b", "/a"]
    assert trial.timers(user="ann") == [START + MINUTE]

    assert trial.advance(59.999) == [], "a timer does not come before its moment"
    assert trial.rows([click("ann")]) == [{"user": "ann", "n": 4, "ended": False}]
    assert trial.advance(0.001) == [{"user": "bob", "n": 1, "ended": True}], "Ann's was set anew"
    assert trial.state("seen", user="bob") is None
    assert trial.state("pages", user="bob") == {}
    assert trial.state("latest", user="bob") == []
    assert trial.timers(user="bob") == []
    assert trial.advance(60) == [{"user": "ann", "n": 4, "ended": True}]
    assert trial.advance(3600) == []


class Sessions(state.Processor):
    """Clicks by event time: a visit ends a minute after its last click."""

    last = state.value("last timestamp, n long")

    def rows(self, key: dict, rows: Iterator[dict]) -> Iterator[dict]:
        held = self.last.get({"last": None, "n": 0})
        for row in rows:
            held = {"last": max(row["at"], held["last"] or row["at"]), "n": held["n"] + 1}
        self.last.set(held)
        self.timers.set(held["last"] + MINUTE)
        return iter(())

    def timer(self, key: dict, at: datetime) -> Iterator[dict]:
        held = self.last.get()
        if held is not None and at == held["last"] + MINUTE:
            self.last.clear()
            yield {**key, "n": held["n"], "ended": True}


def test_timers_of_event_time_come_with_the_watermark() -> None:
    trial = testing.stateful(declared(Sessions, event_time="at", lateness=10), "visits")
    assert trial.watermark is None
    assert trial.rows([click("ann"), click("ann", seconds=30)]) == []
    assert trial.watermark == START + timedelta(seconds=20)
    assert trial.advance(3600) == [], "the clock is not asked"
    assert trial.rows([click("bob", seconds=99)]) == []
    assert trial.rows([click("bob", seconds=100)]) == [{"user": "ann", "n": 2, "ended": True}], "at 90 s it has come"
    assert trial.timers(user="ann") == []
    assert trial.rows([click("ann", seconds=90), click("bob", seconds=91)]) == []
    assert trial.late_rows == 1, "the watermark is at 90 s: what is not after it is too late"
    assert trial.pass_to(START + timedelta(seconds=159.999)) == []
    assert trial.pass_to(START + timedelta(seconds=160)) == [{"user": "bob", "n": 3, "ended": True}]


def test_the_whole_topology_runs_without_spark() -> None:
    rows = [click("ann"), click("bob"), click("ann", seconds=30), click("bob", seconds=200)]
    results = testing.run(declared(Sessions, event_time="at"), {"clicks": rows})
    assert results["out"] == [{"user": "ann", "n": 2, "ended": True}]
    counted = testing.run(declared(Visits), {"clicks": rows})["out"]
    assert counted == [{"user": "ann", "n": 2, "ended": False}, {"user": "bob", "n": 2, "ended": False}]


class Recent(state.Processor):
    value = state.value("n long", ttl=10)
    list = state.list("n long", ttl=10)
    map = state.map("page string, user string", "n long", ttl=10)

    def rows(self, key: dict, rows: Iterator[dict]) -> Iterator[dict]:
        for row in rows:
            self.value.set(self.value.get(0) + 1)
            self.list.append(len(list(self.list)))
            self.map.set((row["page"], key["user"]), 1)
        yield {**key, "n": self.value.get()}


def test_what_has_a_time_to_live_is_gone_after_it() -> None:
    trial = testing.stateful(declared(Recent, "user string, n long"), "visits")
    trial.rows([click("ann", "/a")])
    trial.advance(6)
    assert trial.rows([click("ann", "/b")]) == [{"user": "ann", "n": 2}]
    trial.advance(4)
    assert trial.state("value", user="ann") == 2, "setting it again has given it new time"
    assert trial.state("list", user="ann") == [1], "each element has its own time"
    assert trial.state("map", user="ann") == {("/b", "ann"): 1}
    trial.advance(6)
    assert trial.state("value", user="ann") is None
    assert trial.state("list", user="ann") == []
    assert trial.state("map", user="ann") == {}


class Forgetful(state.Processor):
    held = state.value("n long")

    def __init__(self, step: int = 1) -> None:
        self.step = step
        self.kept = 0

    def rows(self, key: dict, rows: Iterator[dict]) -> Iterator[dict]:
        self.kept += self.step
        self.held.set(self.held.get(0) + self.step)
        yield {"user": key["user"], "n": self.kept * 100 + self.held.get()}


def test_attributes_are_lost_after_a_batch_and_state_is_not() -> None:
    trial = testing.stateful(declared(Forgetful(2), "user string, n long"), "visits")
    assert [trial.rows([click("ann")])[0]["n"] for _ in range(3)] == [202, 204, 206]


class Broken(state.Processor):
    held = state.value("n long")

    def __init__(self, fault: Any) -> None:
        self.fault = fault

    def rows(self, key: dict, rows: Iterator[dict]) -> Iterator[dict]:
        yield self.fault(self)


def assign(processor: Broken) -> None:
    processor.held = 3


@pytest.mark.parametrize(
    ("fault", "name", "says"),
    [
        (lambda self: 1 // 0, "OPERATOR_FAILED", "ZeroDivisionError"),
        (lambda self: {"user": "ann", "count": 1}, "FUNCTION_SCHEMA", "user, count"),
        (lambda self: "ann", "FUNCTION_SCHEMA", "a str"),
        (lambda self: {"user": 3}, "FUNCTION_SCHEMA", "does not fit"),
        (lambda self: {"user": "ann", "n": 2.5}, "FUNCTION_SCHEMA", "2.5, a float, which does not fit"),
        (lambda self: {"user": "ann", "n": 2**63}, "FUNCTION_SCHEMA", "9223372036854775808"),
        (lambda self: self.held.set("three"), "BAD_STATE", "'three'"),
        (lambda self: self.held.set(2.5), "BAD_STATE", "2.5"),
        (lambda self: self.timers.set(START), "BAD_STATE", r"no method timer\(\)"),
        (lambda self: self.now, "BAD_STATE", "asks for the time"),
        (assign, "BAD_STATE", "is assigned to"),
    ],
)
def test_what_goes_wrong_is_a_named_error(fault: Any, name: str, says: str) -> None:
    trial = testing.stateful(declared(Broken(fault), "user string, n long"), "visits")
    with pytest.raises(PenstockError, match=says) as caught:
        trial.rows([click("ann")])
    assert caught.value.name == name
    assert caught.value.where is not None
    assert caught.value.where.file == __file__


class Sometimes(state.Processor):
    """Does what a processor can do, and fails after that if it is told so."""

    seen = state.value("n long")
    pages = state.map("page string", "n long")
    latest = state.list("page string")

    def rows(self, key: dict, rows: Iterator[dict]) -> Iterator[dict]:
        pages = [row["page"] for row in rows]
        self.seen.set(self.seen.get(0) + 1)
        self.pages.set(pages[0], 1)
        self.latest.append(pages[0])
        self.timers.set(self.now + MINUTE)
        yield {**key, "n": "many" if "wrong" in pages else self.seen.get() // (1 - pages.count("fail"))}

    def timer(self, key: dict, at: datetime) -> Iterator[dict]:
        return iter(())


@pytest.mark.parametrize("page", ["fail", "wrong"])
def test_a_batch_that_failed_has_changed_nothing(page: str) -> None:
    """As on Spark, where such a batch is not committed."""
    trial = testing.stateful(declared(Sometimes, "user string, n long"), "visits")
    trial.rows([click("ann", "/")])
    trial.clock.advance(1)
    with pytest.raises(PenstockError):
        trial.rows([click("ann", "/more"), click("bob"), click("cid", page)])
    assert trial.state("seen", user="ann") == 1
    assert trial.state("pages", user="ann") == {"/": 1}
    assert trial.state("latest", user="ann") == ["/"]
    assert trial.timers(user="ann") == [START + MINUTE]
    assert trial.state("seen", user="bob") is None
    assert trial.rows([click("ann")]) == [{"user": "ann", "n": 2}]


def test_rows_are_late_up_to_the_watermark_to_the_microsecond() -> None:
    """The watermark is a whole millisecond, and Spark compares the time of a row with it as it is."""
    trial = testing.stateful(declared(Sessions, event_time="at"), "visits")
    trial.rows([click("ann", seconds=1.0005)])
    assert trial.watermark == START + timedelta(seconds=1)
    trial.rows([click("ann", seconds=1.000001), click("ann", seconds=1)])
    assert trial.late_rows == 1
    assert trial.state("last", user="ann")["n"] == 2


def test_what_a_test_asks_wrongly_is_a_named_error() -> None:
    topology = declared(Visits)
    trial = testing.stateful(topology, "visits")
    for call in (
        lambda: testing.stateful(topology, "clicks"),
        lambda: trial.state("sen", user="ann"),
        lambda: trial.state("seen", usr="ann"),
        lambda: trial.rows([{"usr": "ann"}]),
    ):
        with pytest.raises(PenstockError) as caught:
            call()
        assert caught.value.name == "TEST_ROWS"


def test_state_is_used_only_where_there_is_a_key() -> None:
    with pytest.raises(PenstockError, match="outside of rows") as caught:
        Visits().seen.get()
    assert caught.value.name == "BAD_STATE"


def test_no_spark_is_loaded() -> None:
    code = """
import sys
from penstock import testing, Topology, sources, sinks, state
class P(state.Processor):
    n = state.value("n long")
    def rows(self, key, rows):
        yield {**key, "n": len(list(rows))}
t = Topology("t")
s = t.source("s", sources.files("/d", format="json", schema="k string"))
t.sink("o", sinks.noop(), inputs=t.stateful("p", P, inputs=s, key="k", schema="k string, n long"))
print(testing.stateful(t, "p").rows([{"k": "a"}]))
assert not [name for name in sys.modules if name.split(".")[0] in ("pyspark", "py4j")]
"""
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert told.stdout == "[{'k': 'a', 'n': 1}]\n", told.stderr


def test_the_example_of_the_guide_is_right(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = (Path(__file__).parents[3] / "docs" / "state.md").read_text()
    visits, test = re.findall(r"```python\n(.*?)```", page, re.DOTALL)[:2]
    (tmp_path / "visits.py").write_text(visits)
    monkeypatch.syspath_prepend(tmp_path)
    names: dict[str, Any] = {}
    exec(test, names)  # the test of the page, as pytest would call it
    names["test_a_visit_ends_after_a_quiet_minute"]()
    sys.modules.pop("visits")
