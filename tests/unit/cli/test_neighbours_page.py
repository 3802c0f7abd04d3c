"""The neighbours of a topology, on the page for people."""

from __future__ import annotations

import io

from rich.console import Console

from penstock.channels.leases import Neighbour
from penstock.cli.running_pages import print_neighbours


def page(*neighbours: Neighbour) -> list[list[str]]:
    console = Console(width=140, record=True, file=io.StringIO())
    print_neighbours(console, [one.as_json() for one in neighbours])
    return [line.split() for line in console.export_text().splitlines()]


def test_each_neighbour_with_what_it_uses_on_each_machine() -> None:
    busy = Neighbour("words", "process 7 on here (1)", 3, {"m2": 0.25, "m1": 1.5})
    lines = page(busy, Neighbour("quiet", "process 8 on here (2)", None))
    wants = ["changes,", "or", "is", "in", "line", "to", "change"]
    assert lines[1:] == [["words", "m1", "1.50", *wants], ["words", "m2", "0.25", *wants], ["quiet", "-", "0.00"]]


def test_without_neighbours_there_is_nothing_to_show() -> None:
    assert page() == []
