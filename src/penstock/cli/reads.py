"""Commands that show a running topology and change nothing."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from typing import Any

import click

from penstock.api.bounds import LAST_ID, MOST_ALPHA, MOST_LISTED, MOST_POINTS
from penstock.api.discovery import Phase, Running, all_running, find
from penstock.cli.commands import JSON, CommandResult, penstock
from penstock.cli.connection import TOPOLOGY, connected
from penstock.cli.durations import DURATION
from penstock.clock import wall_time
from penstock.errors import PenstockError

#: How many seconds one request waits for the next event.
LONG_POLL = 10.0
Json = dict[str, Any]
ID = click.IntRange(min=0, max=LAST_ID)
LIMIT = click.IntRange(min=1, max=MOST_LISTED)


def _number(_: click.Context, option: click.Parameter, value: float | None) -> float | None:
    """No comparison is true of nan, so a range takes it."""
    if value is not None and math.isnan(value):
        raise click.BadParameter("nan is not a number.", param=option)
    return value


@penstock.command()
@JSON
def ps(as_json: bool) -> CommandResult:
    """List the topologies that you run."""
    from penstock.cli.running_pages import print_running

    running = all_running()
    if as_json:
        # The token stays where it is: what is printed is copied into chats and logs.
        shown = [{key: value for key, value in vars(one).items() if key != "token"} for one in running]
        return CommandResult(answer={"running": shown})
    print_running(running, wall_time())
    return CommandResult()


@penstock.command(short_help="Show what runs where, how fast, and what waits.")
@TOPOLOGY
@JSON
def status(name: str | None, as_json: bool) -> CommandResult:
    """Show what runs where, how fast each operator is, and how many rows wait."""
    from penstock.cli.running_pages import print_status

    running = find(name)
    if running.phase is not Phase.RUNNING:
        return _not_running(running, as_json)
    with connected(name) as client:
        answer = client.get("status")
    if as_json:
        return CommandResult(answer=answer)
    print_status(answer)
    return CommandResult()


def _not_running(running: Running, as_json: bool) -> CommandResult:
    """The status of a topology that cannot be asked yet, or cannot be asked any more."""
    seconds = time.time() - running.started_at
    if as_json:
        shown = {"topology": running.topology, "pid": running.pid, "state": str(running.phase), "how": running.how}
        return CommandResult(answer={**shown, "started_at": running.started_at, "seconds": seconds})
    since = f", for {seconds:.0f} s so far" if running.phase is Phase.STARTING else ""
    click.echo(f"{running.label} is {running.phase}{since}. {running.how}".rstrip())
    return CommandResult()


@penstock.command(short_help="Show the status live, until the topology ends or Ctrl-C.")
@TOPOLOGY
@click.option(
    "--seconds",
    type=click.FloatRange(min=0, min_open=True),
    callback=_number,
    help="End after so many seconds. [default: at Ctrl-C]",
)
@JSON
def top(name: str | None, seconds: float | None, as_json: bool) -> CommandResult:
    """Watch a topology from another terminal, until it ends or Ctrl-C. With --json, print one object a second."""
    label = find(name).label
    statuses = _statuses(label, seconds)
    if as_json:
        return CommandResult(stream=statuses)
    from penstock.cli.display import display_from
    from penstock.cli.screen import open_console, open_screen

    console = open_console()
    with open_screen(console, as_json=False) as screen:
        for answer in statuses:
            screen.show(display_from(answer))
    if not any(one.label == label and one.phase is Phase.RUNNING for one in all_running()):
        console.print(f"{label} is over")
    return CommandResult()


def _statuses(label: str, seconds: float | None) -> Iterator[Json]:
    """One status a second, until the topology has ended. The first one comes also if the connection took all the
    time."""
    with connected(label) as client:
        deadline = math.inf if seconds is None else time.monotonic() + seconds
        while True:
            try:
                yield client.get("status")
            except PenstockError as problem:
                if problem.name == "UNREACHABLE":
                    return
                raise
            left = deadline - time.monotonic()
            if left <= 0:
                return
            time.sleep(min(1.0, left))


@penstock.command(short_help="List what happened, and why.")
@TOPOLOGY
@click.option("-f", "--follow", is_flag=True, help="Go on with events as they happen, until Ctrl-C.")
@click.option("--after", type=ID, default=0, help="Only show events above this id.")
@click.option(
    "--limit",
    type=LIMIT,
    default=1000,
    help="With --json, print at most so many events; without it, ask for so many at once.",
)
@JSON
def events(name: str | None, follow: bool, after: int, limit: int, as_json: bool) -> CommandResult:
    """List what happened: decisions, vetoes, actions, faults, recoveries. With -f and --json, one object a line."""
    from penstock.cli.running_pages import event_line

    if as_json and not follow:
        with connected(name) as client:
            return CommandResult(answer=client.get("events", after=after, limit=limit))
    found = _events(name, after, limit, follow)
    if as_json:
        return CommandResult(stream=found)
    for event in found:
        click.echo(event_line(event))
    return CommandResult()


def _events(name: str | None, after: int, limit: int, follow: bool) -> Iterator[Json]:
    with connected(name) as client:
        while True:
            try:
                answer = client.get("events", after=after, limit=limit, wait=LONG_POLL if follow else None)
            except PenstockError as problem:
                if follow and problem.name == "UNREACHABLE":
                    return
                raise
            yield from answer["events"]
            after = answer["next"]
            if not follow and len(answer["events"]) < limit:
                return


@penstock.command()
@click.argument("metrics", nargs=-1, metavar="[METRIC]...")
@TOPOLOGY
@click.option(
    "--by",
    type=click.Choice(["operator", "slot", "stream", "machine"]),
    default="operator",
    help="Show one series for each of these.",
)
@click.option("--operator", help="Only show this operator.")
@click.option("--since", type=DURATION, default="10m", show_default=True, help="Begin so long ago: 90s, 10m, 2h, 1d.")
@click.option(
    "--points",
    type=click.IntRange(min=1, max=MOST_POINTS),
    default=500,
    show_default=True,
    help="Show about so many points in each series.",
)
@JSON
def history(
    *,
    metrics: tuple[str, ...],
    name: str | None,
    by: str,
    operator: str | None,
    since: float,
    points: int,
    as_json: bool,
) -> CommandResult:
    """Plot what was measured; docs/metrics.md lists the metrics. [default: rate utilisation backlog_rows; of machines
    machine_cpu machine_memory machine_link]"""
    from penstock.cli.running_pages import print_history

    usual = (
        ("machine_cpu", "machine_memory", "machine_link")
        if by == "machine"
        else ("rate", "utilisation", "backlog_rows")
    )
    wanted = list(metrics or usual)
    if by == "machine" and operator is not None:
        raise PenstockError(
            "BAD_COMMAND",
            "--by machine and --operator exclude each other: what a machine uses is not known of one operator.",
            "Leave --operator out, or choose --by slot.",
        )
    with connected(name) as client:
        begin = max(wall_time() - since, 0.0)
        asked = {"metric": wanted, "since": begin, "by": by, "operator": operator, "points": points}
        answer = client.get("history", **asked)
    if as_json:
        return CommandResult(answer=answer)
    print_history(answer, wanted)
    return CommandResult()


@penstock.command(short_help="Show which operators are too slow, and chains.")
@TOPOLOGY
@click.option(
    "--alpha",
    type=click.FloatRange(min=0, min_open=True, max=MOST_ALPHA),
    callback=_number,
    help="An operator is congested if its input is above so many times what it processes. [default: the setting "
    "`stela_alpha`]",
)
@JSON
def explain(name: str | None, alpha: float | None, as_json: bool) -> CommandResult:
    """Show which operators are too slow, as the strategy Stela sees it.

    The page has the input, processing, congestion and ETP of every operator, and the ETPSum of every machine. ETP
    (effective throughput percentage) is the share of the topology's throughput that the operator affects. ETPSum is the
    sum of these over the instances of a machine. It also says which operators run as one chain.
    """
    from penstock.cli.running_pages import print_explanation

    with connected(name) as client:
        answer = client.get("explain", alpha=alpha)
    if as_json:
        return CommandResult(answer=answer)
    print_explanation(answer)
    return CommandResult()


@penstock.command(short_help="List what was decided, and what came of it.")
@TOPOLOGY
@click.option("--after", type=ID, default=0, help="Only show decisions above this id.")
@click.option("--limit", type=LIMIT, default=1000, help="Show at most so many decisions.")
@JSON
def decisions(name: str | None, after: int, limit: int, as_json: bool) -> CommandResult:
    """List what was decided, what was expected of it, what was measured after it, and the verdict."""
    from penstock.cli.decision_page import print_decisions

    with connected(name) as client:
        answer = client.get("decisions", after=after, limit=limit)
    if as_json:
        return CommandResult(answer=answer)
    print_decisions(answer)
    return CommandResult()


@penstock.command(short_help="List the changes that moved state, and their cost.")
@TOPOLOGY
@click.option("--after", type=ID, default=0, help="Only show changes above this id.")
@click.option("--limit", type=LIMIT, default=1000, help="Show at most so many changes.")
@JSON
def migrations(name: str | None, after: int, limit: int, as_json: bool) -> CommandResult:
    """List the changes that moved state lately: what moved, how long each phase took, how the others flowed."""
    from penstock.cli.migration_page import print_migrations

    with connected(name) as client:
        answer = client.get("migrations", after=after, limit=limit)
    if as_json:
        return CommandResult(answer=answer)
    print_migrations(answer)
    return CommandResult()
