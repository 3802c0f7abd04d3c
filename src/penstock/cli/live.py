"""The live table: every operator with its rates, its backlog and where it runs; every sink with its latency."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from penstock.cli.display import Display, OperatorDisplay
from penstock.cli.numbers import NOTHING, count, milliseconds, seconds

_BAR_WIDTH = 30


def live_table(display: Display) -> RenderableType:
    return Group(_heading(display), *_notices(display), _operators(display), _sinks(display))


def _heading(display: Display) -> RenderableType:
    title = Text.assemble((display.topology, "bold"), f" on {display.cluster}  ")
    if display.seconds is None:
        return title + Text(f"{display.elapsed:.0f} s")
    line = Table.grid(padding=(0, 1))
    done = min(display.elapsed, display.seconds)
    bar = ProgressBar(total=display.seconds, completed=done, width=_BAR_WIDTH)
    line.add_row(title, bar, f"{done:.0f} of {display.seconds:.0f} s")
    return line


def _notices(display: Display) -> list[Text]:
    """What a user should know beside the figures."""
    notices = []
    if display.stopping:
        notices.append(Text(display.stopping, style="yellow"))
    if display.throttled:
        notices.append(
            Text(f"throttled: {', '.join(display.throttled)} waits for the operators behind it", style="yellow")
        )
    if display.unplaced_because:
        notices.append(Text(f"unplaced because {display.unplaced_because}", style="yellow"))
    return notices


def _operators(display: Display) -> Table:
    bad, late = any(one.bad_rows for one in display.operators), any(one.late_rows for one in display.operators)
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column("operator", no_wrap=True)
    table.add_column("kind", no_wrap=True)
    table.add_column("inst.", justify="right", no_wrap=True)
    table.add_column("slots", overflow="fold")
    for heading in ("rows in/s", "out/s", "backlog", "batch ms", *(["bad rows"] * bad), *(["late rows"] * late)):
        table.add_column(heading, justify="right", no_wrap=True)
    for one in display.operators:
        table.add_row(*_row(one, bad, late))
    return table


def _row(one: OperatorDisplay, bad: bool, late: bool) -> list[RenderableType]:
    return [
        one.name,
        one.kind,
        str(one.instances),
        "\n".join(f"{slot} x{instances}" for slot, instances in one.places.items()),
        NOTHING if one.rows_in is None else count(one.rows_in),
        NOTHING if one.rows_out is None else count(one.rows_out),
        count(one.backlog),
        milliseconds(one.batch_seconds),
        *([Text(count(one.bad_rows), style="red" if one.bad_rows else "")] if bad else []),
        *([Text(count(one.late_rows), style="yellow" if one.late_rows else "")] if late else []),
    ]


def _sinks(display: Display) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column("sink")
    for heading in ("latency p50", "p99"):
        table.add_column(heading, justify="right")
    for one in display.operators:
        if one.kind == "sink":
            table.add_row(one.name, seconds(one.latency_p50), seconds(one.latency_p99))
    return table


def plain_line(display: Display) -> str:
    """The same in one line, for a log."""
    operators = [_plain(one) for one in display.operators]
    notices = [text.plain for text in _notices(display)]
    return f"{display.elapsed:.0f} s: " + " | ".join([*operators, *notices])


def _plain(one: OperatorDisplay) -> str:
    words = [one.name]
    if one.rows_in is not None:
        words.append(f"in {count(one.rows_in)}/s")
    if one.rows_out is not None:
        words.append(f"out {count(one.rows_out)}/s")
    if one.backlog:
        words.append(f"backlog {count(one.backlog)}")
    if one.bad_rows:
        words.append(f"bad rows {count(one.bad_rows)}")
    if one.late_rows:
        words.append(f"late rows {count(one.late_rows)}")
    if one.latency_p50 is not None:
        words.append(f"latency p50 {seconds(one.latency_p50)} p99 {seconds(one.latency_p99)}")
    return " ".join(words)
