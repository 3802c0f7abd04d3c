"""The plan beside what was observed: equal, different, or not known."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from rich.console import Console

from penstock.cli.summary import OperatorSummary, Summary, nothing_ran
from penstock.cli.summary_page import print_summary, verdict
from penstock.monitor.kept_state import KeptState, Kind
from penstock.monitor.latency import Latency
from penstock.monitor.statistics import OperatorRates
from penstock.running import BundlePlace, Places, TaskPlace

RIGHT = Places((BundlePlace("m1/0", 2, "0", ("0",)),), (), {"m1/0": ("0",)})
IDLE = Places((BundlePlace("m1/0", 2, "0", ("0",)), BundlePlace("m2/0", 1, "1", ())), (), {"m1/0": ("0",)})
WRONG = Places((BundlePlace("m1/0", 2, "0", ("0", "1")),), (), {"m1/0": ("0", "1")})
STRAY = Places((BundlePlace("m1/0", 2, "0", ("0",)),), (), {"m1/0": ("0",), "m2/0": ("1",)})
LOGICAL = Places((BundlePlace("local/0", 1, None, ()),), (), {})
UNSEEN = Places((BundlePlace("m1/0", 1, "0", ()),), (), {})


def frames(executor: str) -> Places:
    """A map over DataFrames reports by Spark task."""
    return Places((BundlePlace("m1/0", 1, "0", ()),), (), {"task/0": (executor,)})


def keyed(observed: str, location: str | None) -> Places:
    task = TaskPlace(0, "m1/0", "0", (observed,), location, "executor_m1_0")
    return Places((BundlePlace("m1/0", 1, "0", ()),), (task,), {"task/0": (observed,)})


@pytest.mark.parametrize("places", [RIGHT, IDLE, frames("0"), keyed("0", "executor_m1_0"), keyed("0", None)])
def test_as_planned(places):
    assert places.known
    assert places.differences() == []


@pytest.mark.parametrize(
    "places", [WRONG, STRAY, frames("1"), keyed("1", "executor_m1_0"), keyed("0", "executor_m2_1")]
)
def test_not_as_planned(places):
    assert len(places.differences()) == 1


@pytest.mark.parametrize("places", [LOGICAL, UNSEEN])
def test_not_known(places):
    assert not places.known
    assert places.differences() == []


LATENCY = Latency(rows=10, mean=0.5, p50=0.25, p90=1.0, p99=1.5)


def summary(*places: Places, drained: bool = True, unplaced: str = "") -> Summary:
    operators = [
        OperatorSummary(f"op{index}", "sink", 1, 10, 0, OperatorRates(5.0, 0.0, 0.1, 3), 0, 4, one, LATENCY)
        for index, one in enumerate(places)
    ]
    return Summary("flow", "standalone", {"m1": 1, "m2": 1}, 12.3, tuple(operators), drained, unplaced)


def test_the_last_line_says_whether_it_ran_as_planned():
    assert "equals the plan." in verdict(summary(RIGHT, IDLE))
    assert "equals the plan (op1: " in verdict(summary(RIGHT, UNSEEN))
    assert "NOT as planned: op1: m1/0 is executor 0" in verdict(summary(RIGHT, WRONG))
    assert "nothing to compare" in verdict(summary(LOGICAL))
    assert "because of this." in verdict(summary(RIGHT, unplaced="of this"))


@pytest.mark.parametrize(
    ("one", "as_planned"),
    [(summary(RIGHT), True), (summary(RIGHT, WRONG), False), (summary(LOGICAL), None), (summary(UNSEEN), None)],
)
def test_json_says_the_same(one, as_planned):
    answer = json.loads(json.dumps(one.as_json()))
    assert answer["as_planned"] is as_planned
    assert answer["sinks"][0] == {"name": "op0", "rows_per_second": 5.0, "latency_p50": 0.25, "latency_p99": 1.5}


def page(one: Summary) -> str:
    console = Console(record=True, width=120, force_terminal=False, quiet=True)
    with console.capture() as captured:
        console.quiet = False
        print_summary(one, console)
    return captured.get()


def test_the_page_shows_plan_and_observation_side_by_side():
    text = page(summary(RIGHT, keyed("0", "executor_m1_0")))
    assert "250 ms" in text
    assert "1.5 s" in text
    assert ["op0", "2", "m1/0", "executor", "0", "executor", "0"] in [line.split() for line in text.splitlines()]
    assert "executor_m1_0" in text
    assert text.rstrip().endswith("Placement: the observed placement equals the plan.")


def test_what_did_not_get_through_is_said():
    assert "Not drained: 4 rows" in page(summary(RIGHT, drained=False))
    assert "before any row" in page(nothing_ran("flow", "local"))


def test_an_end_that_is_not_in_the_catalog_is_said():
    one = replace(summary(RIGHT, drained=False), unwritten_because="the catalog was away")
    assert "But the catalog was away." in page(one)
    assert one.as_json()["unwritten"] == "the catalog was away"
    assert "But" not in page(summary(RIGHT))
    assert summary(RIGHT).as_json()["unwritten"] is None


def holding(*kept: KeptState, late_rows: int = 0, resumable: bool = False, drained: bool = True) -> Summary:
    one = summary(RIGHT, drained=drained)
    operator = replace(one.operators[0], name="windows", kind="keyed", kept=kept, late_rows=late_rows)
    return replace(one, operators=(operator,), resumable=resumable)


OPEN = KeptState(Kind.AGGREGATE, 1200, open=True)


def test_windows_that_are_still_open_are_not_delivered():
    text = page(holding(OPEN))
    assert "everything that the sources emitted has reached the sinks" not in text
    assert 'Left inside, in windows that are still open: 1,200 results in "windows"' in text
    assert "they are never emitted" in text
    assert "the next run on this state emits them" in page(holding(OPEN, resumable=True))
    assert holding(OPEN).as_json()["left_inside"] == {"windows": 1200}
    undrained = page(holding(OPEN, drained=False))
    assert "Not drained: 4 rows" in undrained
    assert "1,200 results" in undrained


def test_state_that_is_kept_by_design_is_told_of_and_not_missed():
    text = page(holding(KeptState(Kind.AGGREGATE, 1200)))
    assert "Drained: everything that the sources emitted has reached the sinks." in text
    assert 'State: "windows" keeps 1,200 rows of results, all of which were emitted.' in text
    assert holding(KeptState(Kind.AGGREGATE, 1200)).as_json()["left_inside"] == {}


def test_what_may_not_have_given_all_its_results_is_not_called_delivered():
    """Rows that an outer join emits without a partner, or that a processor keeps until a timer is due."""
    one = holding(KeptState(Kind.JOIN, 12), resumable=True)
    one = replace(one, operators=(replace(one.operators[0], may_give_more=True),))
    text = page(one)
    assert "everything that the sources emitted has reached the sinks" not in text
    assert "Drained: no row is on its way any more." in text
    says = 'Rows that are kept in "windows" may not have given all of their results'
    assert f"{says}." in text
    assert f"{says}; the state of this run is temporary, so they never come" in page(replace(one, resumable=False))
    assert "may not have given" not in page(holding(OPEN))


def test_what_is_not_known_to_have_been_emitted_is_not_called_delivered():
    one = replace(holding(), unknown_inside=("windows",))
    text = page(one)
    assert "everything that the sources emitted has reached the sinks" not in text
    assert 'It is not known whether results are left inside "windows"' in text
    assert one.as_json()["left_inside_unknown"] == ["windows"]
    assert "not known" not in page(holding())
    assert "It is not known" in page(replace(holding(OPEN), unknown_inside=("others",)))


def test_late_rows_are_told_of():
    assert 'Late: "windows" dropped 7 rows that came after its watermark had passed.' in page(holding(late_rows=7))
    assert "Late:" not in page(holding())
