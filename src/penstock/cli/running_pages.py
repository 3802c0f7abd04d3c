"""Pages for people: running topologies, their status, history, events and operations."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import click
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from penstock.api.discovery import Running
from penstock.cli.display import display_from
from penstock.cli.live import live_table
from penstock.cli.numbers import NOTHING, plural, seconds
from penstock.cli.screen import PLAIN_WIDTH

_BLOCKS = "▁▂▃▄▅▆▇█"
_PLOT_WIDTH = 40
#: The phases of a migration, in their order.
PHASES = ("pause", "save", "load", "resume")
Json = Mapping[str, Any]


def page_console() -> Console:
    console = Console(highlight=False, markup=False)
    return console if console.is_terminal else Console(highlight=False, markup=False, width=PLAIN_WIDTH)


def page_table(*headings: str, numbers: Sequence[str] = ()) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for heading in headings:
        table.add_column(heading, justify="right" if heading in numbers else "left", overflow="fold")
    return table


def print_running(running: Sequence[Running], now: float) -> None:
    if not running:
        click.echo("No topology of yours runs. Start one with: penstock run FILE")
        return
    table = page_table("topology", "pid", "is", "for", "interface", "state", numbers=("pid", "for"))
    for one in running:
        shown = (str(one.phase), seconds(now - one.started_at), one.url or NOTHING, one.state or NOTHING)
        table.add_row(one.topology, str(one.pid), *shown)
    page_console().print(table)


def print_status(status: Json) -> None:
    console = page_console()
    console.print(live_table(display_from(status)))
    print_times(console, status["operators"])
    table = page_table(
        "machine", "slot", "cores", "instances", "utilisation", numbers=("cores", "instances", "utilisation")
    )
    for machine in status["machines"]:
        for slot in machine["slots"]:
            name = slot["name"] if slot["usable"] else f"{slot['name']} (lost)"
            table.add_row(
                machine["name"], name, str(slot["cores"]), str(slot["instances"]), percent(slot["utilisation"])
            )
    console.print(table)
    print_uses(console, status["machines"])
    print_neighbours(console, status.get("neighbours") or ())
    if status["operation"] is not None:
        print_operation(status["operation"])


def print_times(console: Console, operators: Sequence[Json]) -> None:
    """What the instances of each operator do with their time, where anything of it is measured."""
    headings = {"utilisation": "busy", "waiting_input": "waits for input", "waiting_room": "waits for room"}
    # A topology that an older Penstock runs says nothing of waiting.
    times = {one["name"]: [one.get(name) for name in headings] for one in operators}
    known = {name: shares for name, shares in times.items() if any(share is not None for share in shares)}
    if not known:
        return
    table = page_table("operator", *headings.values(), numbers=tuple(headings.values()))
    for name, shares in known.items():
        table.add_row(name, *map(percent, shares))
    console.print(table)


def print_uses(console: Console, machines: Sequence[Json]) -> None:
    """What machines that are really apart use of what they have."""
    apart = [(one["name"], one["used"]) for one in machines if one.get("used") is not None]
    if not apart:
        return
    headings = ("CPU", "of cores", "held back", "memory", "of MB", "link", "in Mbit/s", "out Mbit/s", "of Mbit/s")
    table = page_table("machine", *headings, numbers=headings)
    for name, used in apart:
        table.add_row(
            name,
            *(percent(used["cpu"]), f"{used['cores']:g}", percent(used["throttled"])),
            *(percent(used["memory"]), f"{used['memory_limit'] / 2**20:.0f}"),
            percent(used["link"]),
            *(_megabits(used[f"{way}_bytes_per_second"]) for way in ("received", "sent", "link")),
        )
    console.print(table)


def print_neighbours(console: Console, neighbours: Sequence[Json]) -> None:
    """Other topologies on the same cluster, and the cores that they use."""
    if not neighbours:
        return
    table = page_table("neighbour", "machine", "cores used", "", numbers=("cores used",))
    for one in neighbours:
        for machine, cores in sorted(one["uses"].items()) or [(NOTHING, 0.0)]:
            in_line = "changes, or is in line to change" if one["in_line"] else ""
            table.add_row(one["topology"], machine, f"{cores:.2f}", in_line)
    console.print(table)


def _megabits(bytes_per_second: float) -> str:
    return f"{bytes_per_second * 8 / 1e6:.1f}"


def percent(share: float | None) -> str:
    return NOTHING if share is None else f"{share:.0%}"


def event_line(event: Json) -> str:
    at = time.strftime("%H:%M:%S", time.localtime(event["time"]))
    subject = f"{event['subject']}: " if event["subject"] else ""
    cause = f" (cause: {event['cause']})" if event["cause"] else ""
    return f"{event['id']:>5} {at} {event['kind']:<8} {subject}{event['reason']}{cause}"


def print_history(answer: Json, metrics: Sequence[str]) -> None:
    span = answer["until"] - answer["since"]
    table = page_table(
        "series", "metric", f"the last {_length(span)}", "now", "least", "most", numbers=("now", "least", "most")
    )
    for series in answer["series"]:
        name = " ".join(series[part] for part in ("operator", "slot", "stream", "machine") if series[part])
        for metric in metrics:
            values = series["values"][metric]
            known = [value for value in values if value is not None]
            if known:
                now = NOTHING if values[-1] is None else _figure(values[-1])
                table.add_row(name, metric, plot(values), now, _figure(min(known)), _figure(max(known)))
    if not table.row_count:
        click.echo("Nothing was measured in this time.")
        return
    page_console().print(table)


def plot(values: Sequence[float | None], width: int = _PLOT_WIDTH) -> str:
    """A line of blocks from 0 to the largest value; a gap where nothing was measured."""
    shown = (
        [
            _mean(values[len(values) * i // width : max(len(values) * (i + 1) // width, len(values) * i // width + 1)])
            for i in range(width)
        ]
        if len(values) > width
        else list(values)
    )
    most = max((value for value in shown if value is not None), default=0.0)
    top = len(_BLOCKS) - 1
    return "".join(" " if one is None else _BLOCKS[round(top * one / most) if most > 0 else 0] for one in shown)


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def _figure(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _length(span: float) -> str:
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if span >= size:
            return f"{span / size:.3g} {unit}"
    return f"{span:.0f} s"


def print_explanation(answer: Json) -> None:
    console = page_console()
    console.print(f"throughput {answer['throughput']:,.0f}/s; congested above a ratio of {answer['alpha']:g}\n")
    numbers = ("inst.", "input/s", "processing/s", "ratio", "ETP")
    table = page_table("operator", "inst.", "input/s", "processing/s", "ratio", "", "reaches", "ETP", numbers=numbers)
    for one in answer["operators"]:
        ratio = NOTHING if one["ratio"] is None else f"{one['ratio']:.2f}"
        table.add_row(
            one["name"],
            str(one["instances"]),
            f"{one['input']:,.0f}",
            f"{one['processing']:,.0f}",
            ratio,
            "congested" if one["congested"] else "",
            ", ".join(one["sinks"]) or "no sink",
            f"{one['etp']:.1%}",
        )
    console.print(table)
    console.print()
    machines = page_table("machine", "instances", "ETPSum", numbers=("instances", "ETPSum"))
    for one in answer["machines"]:
        machines.add_row(one["name"], str(one["instances"]), f"{one['etp_sum']:.3f}")
    console.print(machines)
    console.print()
    streams = page_table("stream", "its operators run")
    for one in answer["streams"]:
        streams.add_row(one["name"], "as one chain" if one["chained"] else f"apart: {one['reason']}")
    console.print(streams)
    # A topology that an older Penstock runs says nothing of shuffles.
    if answer.get("shuffles"):
        console.print()
        shuffles = page_table("keyed operator", "why Spark shuffles its rows")
        for one in answer["shuffles"]:
            shuffles.add_row(one["operator"], one["reason"] or "none")
        console.print(shuffles)


def print_proposal(answer: Json) -> None:
    """Print what a dry run would have done."""
    plan = answer["plan"]
    click.echo(f"{answer['action']} would do this: {plan['reason']}")
    _print_plan(answer)
    if answer["note"]:
        click.echo(answer["note"])
    if not plan["actions"]:
        click.echo("nothing")


def _print_plan(answer: Json) -> None:
    for action in answer["plan"]["actions"]:
        click.echo(f"  {action['text']}")
    for step in (answer["decision"] or {}).get("steps", ()):
        click.echo(f"  {step['step']}. {step['operator']} on {step['to']}: {step['reason']}")


def print_operation(operation: Json) -> None:
    outcome = operation["outcome"]
    took = f" after {outcome['seconds']:.1f} s" if outcome is not None and outcome["seconds"] else ""
    step = f" ({operation['step']})" if operation["step"] else ""
    reason = f": {operation['reason']}" if operation["reason"] else ""
    click.echo(f"operation {operation['id']}, {operation['action']}: {operation['state']}{step}{took}{reason}")
    if operation["state"] == "done":
        _print_plan(operation["proposal"])
    for move in outcome["moves"] if outcome is not None else ():
        stood = move["interruption"]["gap_seconds"]
        click.echo(
            f"  {move['operator']}: task {move['task']} from {move['from']} to {move['to']}, "
            f"{move['state_bytes'] / 1e6:.1f} MB of state; {plural(1, 'operator')} stood still {stood:.1f} s"
        )
    # A topology that an older Penstock runs says nothing of migrations.
    for one in (outcome.get("migrations") or ()) if outcome is not None else ():
        click.echo(f"  {migration_line(one)}")


def migration_line(one: Json) -> str:
    """What was moved of one operator, and how long each phase took."""
    moved = f"{len(one['tasks'])} of {plural(one['tasks_of_operator'], 'task')}"
    share = "" if one["share"] is None else f", {percent(one['share'])} of its state"
    phases = ", ".join(f"{phase} {seconds(one[f'{phase}_seconds'])}" for phase in PHASES)
    return f"{one['operator']} moved {moved}{share}: {phases}"


@contextmanager
def waiting(as_json: bool) -> Iterator[Callable[[str], None]]:
    """Show a bar with a text while the command waits. Where standard error is no terminal, show nothing."""
    console = Console(stderr=True, highlight=False)
    if as_json or not console.is_terminal:
        yield lambda text: None
        return
    columns = (BarColumn(pulse_style="cyan"), TextColumn("{task.description}", markup=False), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("waiting for an answer", total=None)
        yield lambda text: progress.update(task, description=text)
