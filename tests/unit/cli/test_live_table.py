"""The live table and the plain line: what a user looks for is there."""

from __future__ import annotations

import dataclasses
import io

from rich.console import Console

from penstock.cli.display import Display, OperatorDisplay
from penstock.cli.live import live_table, plain_line
from penstock.cli.screen import Lines, Terminal

SPOUT = OperatorDisplay("spout", "source", {"m1/0": 1}, None, 2000.4, 12, 0.5, 0, False)
SPLIT = OperatorDisplay("split", "map", {"m1/0": 1, "m2/0": 2}, 2000.0, 20_000.0, 0, 0.25, 0, False)
OUT = OperatorDisplay("out", "sink", {"m2/0": 1}, 20_000.0, None, 7, None, 0, False, latency_p50=0.4, latency_p99=2.0)
DISPLAY = Display("word_count", "standalone", 12.0, 30.0, (SPOUT, SPLIT, OUT), "")


def drawn(display: Display, width: int = 100) -> list[list[str]]:
    console = Console(width=width, force_terminal=True, color_system=None, file=io.StringIO())
    with console.capture() as captured:
        console.print(live_table(display))
    return [line.split() for line in captured.get().splitlines()]


def test_every_operator_has_its_row():
    lines = drawn(DISPLAY)
    assert ["spout", "source", "1", "m1/0", "x1", "-", "2,000", "12", "500"] in lines
    assert ["split", "map", "3", "m1/0", "x1", "2,000", "20,000", "0", "250"] in lines
    assert ["m2/0", "x2"] in lines
    assert ["out", "sink", "1", "m2/0", "x1", "20,000", "-", "7", "-"] in lines
    assert ["out", "400", "ms", "2.0", "s"] in lines


def test_it_fits_an_ordinary_terminal():
    assert drawn(DISPLAY, 80)[1:] == drawn(DISPLAY, 200)[1:]


def test_how_long_it_is_to_run():
    assert drawn(DISPLAY)[0][-4:] == ["12", "of", "30", "s"]
    assert drawn(dataclasses.replace(DISPLAY, seconds=None))[0][-2:] == ["12", "s"]


def test_bad_rows_only_where_there_are_some():
    assert "bad" not in drawn(DISPLAY)[1]
    bad = dataclasses.replace(DISPLAY, operators=(SPOUT, dataclasses.replace(SPLIT, bad_rows=3), OUT))
    assert "bad" in drawn(bad)[1]
    assert "bad rows 3" in plain_line(bad)


def test_late_rows_only_where_there_are_some():
    assert "late" not in drawn(DISPLAY)[1]
    late = dataclasses.replace(DISPLAY, operators=(SPOUT, dataclasses.replace(SPLIT, late_rows=4), OUT))
    assert "late" in drawn(late)[1]
    assert "late rows 4" in plain_line(late)


def test_what_a_user_should_know():
    throttled = dataclasses.replace(SPOUT, throttled=True)
    display = dataclasses.replace(
        DISPLAY, operators=(throttled, SPLIT, OUT), unplaced_because="of x", stopping="stopping: ..."
    )
    text = "\n".join(" ".join(line) for line in drawn(display))
    for notice in ("throttled: spout", "unplaced because of x", "stopping: ..."):
        assert notice in text
        assert notice in plain_line(display)


def test_the_plain_line():
    assert plain_line(DISPLAY) == (
        "12 s: spout out 2,000/s backlog 12 | split in 2,000/s out 20,000/s | "
        "out in 20,000/s backlog 7 latency p50 400 ms p99 2.0 s"
    )


def test_lines_come_seldom_but_a_stop_is_said_at_once():
    file = io.StringIO()
    with Lines(file) as screen:
        screen.tell("starting Spark")
        for _ in range(10):
            screen.show(DISPLAY)
            screen.show(dataclasses.replace(DISPLAY, stopping="stopping: waiting"))
    assert file.getvalue().splitlines()[:2] == ["starting Spark", "stopping: waiting"]
    assert not any(line.startswith("12 s:") for line in file.getvalue().splitlines())


def test_a_terminal_is_left_clean():
    console = Console(force_terminal=True, width=100, file=io.StringIO())
    with Terminal(console) as screen:
        screen.tell("starting Spark")
        screen.show(DISPLAY)
        screen.tell("stopping Spark")
    drawn = console.file.getvalue()
    assert "starting Spark" in drawn
    assert "word_count" in drawn
    assert drawn.count("\x1b[?25l") == drawn.count("\x1b[?25h")  # the cursor is hidden as often as it is shown again
