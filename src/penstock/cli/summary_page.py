"""The last page of a run, for people: what went through, how fast, and where everything ran."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console
from rich.table import Table

from penstock.cli.numbers import NOTHING, count, plural, seconds
from penstock.cli.summary import OperatorSummary, Summary
from penstock.monitor.kept_state import left_in_words, more_in_words, unknown_in_words


def print_summary(summary: Summary, console: Console) -> None:
    slots = sum(summary.machines.values())
    console.print(
        f"\n{summary.topology} on {summary.cluster}: {plural(len(summary.machines), 'machine')}, "
        f"{plural(slots, 'slot')}, {summary.seconds:.1f} s"
    )
    if not summary.operators:
        console.print("It was stopped before any row was read.")
        return
    for table in (_throughput(summary), _latency(summary), _bundles(summary), *_tasks(summary)):
        console.print()
        console.print(table)
    console.print()
    for line in (end(summary), *_inside(summary)):
        console.print(line, soft_wrap=True)
    console.print(verdict(summary), soft_wrap=True)


def verdict(summary: Summary) -> str:
    """Whether everything ran where the plan says, in one line."""
    if summary.unplaced_because:
        return f"Placement: Spark chose where bundles ran, because {summary.unplaced_because}."
    if summary.as_planned is None:
        return "Placement: the slots of a local cluster are one process, so there is nothing to compare."
    if summary.as_planned:
        unseen = [one.name for one in summary.operators if not one.places.known]
        but = f" ({', '.join(unseen)}: written by Spark itself, not observed)" if unseen else ""
        return f"Placement: the observed placement equals the plan{but}."
    return f"Placement: NOT as planned: {'; '.join(summary.differences)}."


def end(summary: Summary) -> str:
    """Whether everything has arrived, and what is still inside, in one line."""
    if not summary.drained:
        rows = sum(one.backlog for one in summary.operators if one.kind != "source")
        text = f"Not drained: {plural(rows, 'row')} still on the way; with --state the next run goes on from there."
    elif summary.left_inside:
        text = "Drained: no row is on its way any more, but operators have not emitted every result."
    elif summary.unknown_inside or summary.may_give_more:
        text = "Drained: no row is on its way any more."
    else:
        text = "Drained: everything that the sources emitted has reached the sinks."
    unknown = _sentence(unknown_in_words(summary.unknown_inside))
    return " ".join(filter(None, (text, _left(summary), unknown, _more(summary), _unwritten(summary))))


def _unwritten(summary: Summary) -> str:
    return f"But {summary.unwritten_because}." if summary.unwritten_because else ""


def _left(summary: Summary) -> str:
    if not summary.left_inside:
        return ""
    becomes = (
        "the next run on this state emits them when later rows move the watermark past their end"
        if summary.resumable
        else "the state of this run is temporary, so they are never emitted; --state keeps them for the next run"
    )
    return f"Left inside, in windows that are still open: {left_in_words(summary.left_inside)}; {becomes}."


def _more(summary: Summary) -> str:
    words = more_in_words(summary.may_give_more)
    if words and not summary.resumable:
        words = f"{words}; the state of this run is temporary, so they never come; --state keeps it for the next run"
    return _sentence(words)


def _sentence(words: str) -> str:
    return f"{words[0].upper()}{words[1:]}." if words else ""


def _inside(summary: Summary) -> Iterator[str]:
    """What operators dropped, and what they keep."""
    for one in summary.operators:
        if one.late_rows:
            yield f'Late: "{one.name}" dropped {plural(one.late_rows, "row")} that came after its watermark had passed.'
    for one in summary.operators:
        if one.kept:
            yield f'State: "{one.name}" keeps {"; ".join(map(str, one.kept))}.'


def _table(title: str, *headings: str) -> Table:
    """Headings that start with > are of numbers."""
    table = Table(
        box=None, pad_edge=False, padding=(0, 2, 0, 0), title=title, title_justify="left", header_style="bold"
    )
    for heading in headings:
        table.add_column(heading.removeprefix(">"), justify="right" if heading.startswith(">") else "left")
    return table


def _throughput(summary: Summary) -> Table:
    table = _table(
        "Throughput",
        "operator",
        "kind",
        ">rows in",
        ">rows out",
        ">in/s",
        ">out/s",
        ">batches",
        ">backlog",
        ">bad rows",
    )
    for one in summary.operators:
        source, sink = one.kind == "source", one.kind == "sink"
        table.add_row(
            one.name,
            one.kind,
            NOTHING if source else count(one.rows_in),
            NOTHING if sink else count(one.rows_out),
            NOTHING if source else count(one.rates.rows_in),
            NOTHING if sink else count(one.rates.rows_out),
            count(one.rates.batches),
            count(one.backlog),
            count(one.bad_rows),
        )
    return table


def _latency(summary: Summary) -> Table:
    table = _table("Latency, end to end", "sink", ">rows/s", ">p50", ">p99")
    for one in summary.sinks:
        latency = one.latency
        p50, p99 = (latency.p50, latency.p99) if latency else (None, None)
        table.add_row(one.name, count(one.rates.rows_in), seconds(p50), seconds(p99))
    return table


def _bundles(summary: Summary) -> Table:
    table = _table("Where each bundle ran", "operator", ">instances", "slot", "planned", "observed")
    for one in summary.operators:
        for place in one.places.bundles:
            planned = f"executor {place.planned}" if place.planned else NOTHING
            observed = f"executor {', '.join(place.observed)}" if place.observed else _unseen(one, place.slot)
            table.add_row(one.name, str(place.instances), place.slot, planned, observed)
    return table


def _unseen(one: OperatorSummary, slot: str) -> str:
    """Why no executor reported this bundle under its slot."""
    if any(task.slot == slot and task.observed for task in one.places.tasks):
        return "by task, below"
    return NOTHING


def _tasks(summary: Summary) -> Iterator[Table]:
    if not any(one.places.tasks for one in summary.operators):
        return
    table = _table("Where each task's state was", "operator", "tasks", "slot", "planned", "observed", "Spark says")
    for one in summary.operators:
        groups: dict[tuple[str, str | None, tuple[str, ...], str | None], list[int]] = {}
        for task in one.places.tasks:
            groups.setdefault((task.slot, task.planned, task.observed, task.location), []).append(task.task)
        for (slot, planned, observed, location), tasks in groups.items():
            table.add_row(
                one.name,
                ", ".join(map(str, tasks)),
                slot,
                f"executor {planned}" if planned else NOTHING,
                f"executor {', '.join(observed)}" if observed else NOTHING,
                location or NOTHING,
            )
    yield table
