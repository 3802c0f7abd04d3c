"""What the instances of each operator do with their time: on the page for people, and on that for Prometheus."""

from __future__ import annotations

import io
from copy import deepcopy
from typing import Any

from fake_steering import STATUS
from rich.console import Console

from penstock.api.prometheus import exposition
from penstock.cli.running_pages import print_times

SHARES = {"utilisation": 0.25, "waiting_input": 0.5, "waiting_room": 0.125}


def status(**shares: float | None) -> dict[str, Any]:
    """The operator `split` is measured."""
    found: dict[str, Any] = deepcopy(STATUS)
    found["operators"][1] |= shares
    return found


def page(operators: list[dict[str, Any]]) -> list[str]:
    console = Console(width=140, record=True, file=io.StringIO())
    print_times(console, operators)
    return console.export_text().splitlines()


def test_operators_show_what_their_instances_wait_for() -> None:
    heading, line = page(status(**SHARES)["operators"])
    assert heading.split() == ["operator", "busy", "waits", "for", "input", "waits", "for", "room"]
    assert line.split() == ["split", "25%", "50%", "12%"]


def test_what_was_not_measured_is_no_share() -> None:
    assert page(STATUS["operators"]) == []
    [_, line] = page(status(utilisation=0.25)["operators"])
    assert line.split() == ["split", "25%", "-", "-"]


def test_an_older_penstock_says_nothing_of_waiting() -> None:
    older = status(utilisation=0.25)["operators"]
    for one in older:
        del one["waiting_input"], one["waiting_room"]
    [_, line] = page(older)
    assert line.split() == ["split", "25%", "-", "-"]


def test_prometheus_gets_them_too() -> None:
    lines = exposition(status(**SHARES)).decode().splitlines()
    assert 'penstock_operator_waiting_input_ratio{operator="split",topology="word_count"} 0.5' in lines
    assert 'penstock_operator_waiting_room_ratio{operator="split",topology="word_count"} 0.125' in lines
    assert "penstock_operator_waiting_input_ratio{" not in exposition(STATUS).decode()
