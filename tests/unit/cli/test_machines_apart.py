"""What machines that are really apart use: on the page for people, and on that for Prometheus."""

from __future__ import annotations

import io
from copy import deepcopy
from typing import Any

from fake_steering import STATUS
from rich.console import Console

from penstock.api.prometheus import exposition
from penstock.cli.running_pages import print_uses
from penstock.cluster.readings import MachineUse

USE = MachineUse(10.0, 0.2, 0.5, 300 << 20, 1e6, 6.25e6, 0.25, 600 << 20, 12.5e6)


def status(used: dict[str, float] | None) -> dict[str, Any]:
    found: dict[str, Any] = deepcopy(STATUS)
    found["machines"][0]["used"] = used
    return found


def page(machines: list[dict[str, Any]]) -> list[str]:
    console = Console(width=140, record=True, file=io.StringIO())
    print_uses(console, machines)
    return console.export_text().splitlines()


def test_a_machine_shows_what_it_uses_of_what_it_has():
    [_, line] = page(status(USE.as_json())["machines"])
    assert line.split() == ["127.0.0.2", "80%", "0.25", "50%", "50%", "600", "50%", "8.0", "50.0", "100.0"]


def test_machines_that_share_everything_show_nothing():
    assert page(status(None)["machines"]) == []
    assert page(STATUS["machines"]) == []


def test_prometheus_gets_them_too():
    text = exposition(status(USE.as_json())).decode()
    assert 'penstock_machine_cpu_ratio{machine="127.0.0.2",topology="word_count"} 0.8' in text
    assert 'penstock_machine_throttled_ratio{machine="127.0.0.2",topology="word_count"} 0.5' in text
    assert "penstock_machine_cpu_ratio{" not in exposition(status(None)).decode()
