"""Commands for a topology that runs: find it, look at it, change it. They speak to its control interface."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from penstock.api.discovery import Phase, Running, all_running, find
from penstock.cli.commands import JSON, Outcome, penstock
from penstock.cli.durations import DURATION
from penstock.clock import wall_time
from penstock.errors import PenstockError

if TYPE_CHECKING:
    from penstock.api.client import Client

#: Seconds that one question waits for the next event.
LONG_POLL = 10.0
#: The exit code of a change that was rolled back or cancelled: it is no mistake, and it is not done.
NOT_DONE = 3
Json = dict[str, Any]

TOPOLOGY = click.option(
    "-t", "--topology", "name", metavar="NAME", help="Which topology, if several run: NAME or NAME:PID."
)
DRY_RUN = click.option("--dry-run", is_flag=True, help="Print the plan, and change nothing.")
NO_WAIT = click.option("--no-wait", is_flag=True, help="Ask for the change, and do not wait for its end.")
STRATEGY = click.option("--strategy", help="The strategy that decides. [default: the setting `strategy`]")
MACHINES = click.IntRange(min=1)


@contextmanager
def _client(name: str | None) -> Iterator[Client]:
    running = find(name)
    if running.phase is Phase.STARTING:
        raise PenstockError(
            "STARTING", f"{running.label} is being started.", "Ask again when it runs; `penstock stop` stops it now."
        )
    if running.phase is Phase.ENDING:
        raise PenstockError("STOPPING", f"{running.label} is ending.", "Start it again to steer it.")
    with _connected(running) as client:
        yield client


def _connected(running: Running) -> Client:
    from penstock.api.client import Client

    return Client(running)


# Looking


@penstock.command()
@JSON
def ps(as_json: bool) -> Outcome:
    """List the topologies that you run."""
    from penstock.cli.steering_pages import print_running

    running = all_running()
    if as_json:
        # The token stays where it is: what is printed is copied into chats and logs.
        shown = [{key: value for key, value in vars(one).items() if key != "token"} for one in running]
        return Outcome(answer={"running": shown})
    print_running(running, wall_time())
    return Outcome()


@penstock.command()
@TOPOLOGY
@JSON
def status(name: str | None, as_json: bool) -> Outcome:
    """Show what runs where, how fast, and what waits."""
    from penstock.cli.steering_pages import print_status

    running = find(name)
    if running.phase is not Phase.RUNNING:
        return _not_running(running, as_json)
    with _client(name) as client:
        answer = client.get("status")
    if as_json:
        return Outcome(answer=answer)
    print_status(answer)
    return Outcome()


def _not_running(running: Running, as_json: bool) -> Outcome:
    """The status of one that cannot be asked, yet or any more."""
    seconds = time.time() - running.started_at
    if as_json:
        shown = {"topology": running.topology, "pid": running.pid, "state": str(running.phase), "how": running.how}
        return Outcome(answer={**shown, "started_at": running.started_at, "seconds": seconds})
    since = f", for {seconds:.0f} s so far" if running.phase is Phase.STARTING else ""
    click.echo(f"{running.label} is {running.phase}{since}. {running.how}".rstrip())
    return Outcome()


@penstock.command()
@TOPOLOGY
@click.option("--seconds", type=click.FloatRange(min=0, min_open=True), help="End after so long. [default: Ctrl-C]")
@JSON
def top(name: str | None, seconds: float | None, as_json: bool) -> Outcome:
    """Watch it, from another terminal, until it ends or Ctrl-C. With --json, an object a second."""
    label = find(name).label
    statuses = _statuses(label, seconds)
    if as_json:
        return Outcome(stream=statuses)
    from penstock.cli.screen import open_console, open_screen
    from penstock.cli.view import view_from

    console = open_console()
    with open_screen(console, as_json=False) as screen:
        for answer in statuses:
            screen.show(view_from(answer))
    if not any(one.label == label and one.phase is Phase.RUNNING for one in all_running()):
        console.print(f"{label} is over")
    return Outcome()


def _statuses(label: str, seconds: float | None) -> Iterator[Json]:
    """One a second, until it is over."""
    deadline = None if seconds is None else time.monotonic() + seconds
    with _client(label) as client:
        while deadline is None or time.monotonic() < deadline:
            try:
                yield client.get("status")
            except PenstockError as problem:
                if problem.name == "UNREACHABLE":
                    return
                raise
            time.sleep(1.0)


@penstock.command()
@TOPOLOGY
@click.option("-f", "--follow", is_flag=True, help="Go on with events as they happen, until Ctrl-C.")
@click.option("--after", type=click.IntRange(min=0), default=0, help="Only events above this id.")
@click.option(
    "--limit",
    type=click.IntRange(min=1, max=10_000),
    default=1000,
    help="With --json at most so many events; else so many at once.",
)
@JSON
def events(name: str | None, follow: bool, after: int, limit: int, as_json: bool) -> Outcome:
    """Tell what happened: decisions, vetoes, actions, faults, recoveries. With -f and --json, an object a line."""
    from penstock.cli.steering_pages import event_line

    if as_json and not follow:
        with _client(name) as client:
            return Outcome(answer=client.get("events", after=after, limit=limit))
    found = _events(name, after, limit, follow)
    if as_json:
        return Outcome(stream=found)
    for event in found:
        click.echo(event_line(event))
    return Outcome()


def _events(name: str | None, after: int, limit: int, follow: bool) -> Iterator[Json]:
    with _client(name) as client:
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
@click.argument("metrics", nargs=-1, metavar="METRIC...")
@TOPOLOGY
@click.option(
    "--by", type=click.Choice(["operator", "slot", "stream"]), default="operator", help="One series for each of these."
)
@click.option("--operator", help="Only this operator.")
@click.option("--since", type=DURATION, default="10m", show_default=True, help="From so long ago: 90s, 10m, 2h, 1d.")
@click.option(
    "--points", type=click.IntRange(min=1, max=20_000), default=500, help="About so many points in each series."
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
) -> Outcome:
    """Plot what was measured; the metrics are in docs/metrics.md. [default: rate utilisation backlog_rows]"""
    from penstock.cli.steering_pages import print_history

    wanted = list(metrics or ("rate", "utilisation", "backlog_rows"))
    with _client(name) as client:
        asked = {"metric": wanted, "since": wall_time() - since, "by": by, "operator": operator, "points": points}
        answer = client.get("history", **asked)
    if as_json:
        return Outcome(answer=answer)
    print_history(answer, wanted)
    return Outcome()


@penstock.command()
@TOPOLOGY
@click.option("--alpha", type=click.FloatRange(min=0, min_open=True), help="An operator is congested above this ratio.")
@JSON
def explain(name: str | None, alpha: float | None, as_json: bool) -> Outcome:
    """Show the load as Stela sees it: congestion and ETP of every operator, ETPSum of every machine."""
    from penstock.cli.steering_pages import print_explanation

    with _client(name) as client:
        answer = client.get("explain", alpha=alpha)
    if as_json:
        return Outcome(answer=answer)
    print_explanation(answer)
    return Outcome()


# Changing


@penstock.command(name="scale-out")
@click.option("--machines", type=MACHINES, default=1, show_default=True, help="How many machines to add.")
@STRATEGY
@TOPOLOGY
@DRY_RUN
@NO_WAIT
@JSON
def scale_out(
    *, machines: int, strategy: str | None, name: str | None, dry_run: bool, no_wait: bool, as_json: bool
) -> Outcome:
    """Add machines, and on them what a strategy decides."""
    body = {"machines": machines, "strategy": strategy, "dry_run": dry_run}
    return _act(name, "scale-out", body, no_wait, as_json)


@penstock.command(name="scale-in")
@click.argument("names", nargs=-1, metavar="[MACHINE]...")
@click.option("--machines", type=MACHINES, help="How many machines to remove; the strategy chooses. [default: 1]")
@STRATEGY
@TOPOLOGY
@DRY_RUN
@NO_WAIT
@JSON
def scale_in(
    *,
    names: tuple[str, ...],
    machines: int | None,
    strategy: str | None,
    name: str | None,
    dry_run: bool,
    no_wait: bool,
    as_json: bool,
) -> Outcome:
    """Remove machines: those named, or so many that a strategy chooses."""
    given = {"--machines": machines, "--strategy": strategy}
    if names and (option := next((one for one, value in given.items() if value is not None), "")):
        raise PenstockError(
            "BAD_COMMAND", f"names of machines and {option} exclude each other.", "Give one of the two."
        )
    body: Json = {"names": list(names)} if names else {"machines": machines, "strategy": strategy}
    return _act(name, "scale-in", {**body, "dry_run": dry_run}, no_wait, as_json)


@penstock.command(name="set-instances")
@click.argument("operator")
@click.argument("instances", nargs=-1, required=True, metavar="COUNT | SLOT=COUNT...")
@TOPOLOGY
@DRY_RUN
@NO_WAIT
@JSON
def set_instances(
    *, operator: str, instances: tuple[str, ...], name: str | None, dry_run: bool, no_wait: bool, as_json: bool
) -> Outcome:
    """Give an operator so many instances, or so many on each slot and none elsewhere."""
    body: Json = {"operator": operator, "dry_run": dry_run, **_instances(instances)}
    return _act(name, "set-instances", body, no_wait, as_json)


def _instances(words: tuple[str, ...]) -> Json:
    if len(words) == 1 and "=" not in words[0]:
        return {"count": _number(words[0])}
    slots: dict[str, int] = {}
    for word in words:
        slot, equals, count = word.rpartition("=")
        if not equals or not slot:
            raise PenstockError(
                "BAD_COMMAND", f'"{word}" is not of the form SLOT=COUNT.', "For instance: 127.0.0.2/0=2"
            )
        slots[slot] = _number(count)
    return {"slots": slots}


def _number(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise PenstockError("BAD_COMMAND", f'"{text}" is not a number of instances.', "Give at least 1.")
    return int(text)


@penstock.command()
@click.argument("operator")
@click.argument("task", type=click.IntRange(min=0))
@click.argument("slot")
@TOPOLOGY
@DRY_RUN
@NO_WAIT
@JSON
def move(
    *, operator: str, task: int, slot: str, name: str | None, dry_run: bool, no_wait: bool, as_json: bool
) -> Outcome:
    """Move a task of a keyed operator, with its state, to another slot."""
    body = {"operator": operator, "task": task, "slot": slot, "dry_run": dry_run}
    return _act(name, "move-task", body, no_wait, as_json)


@penstock.command()
@click.argument("operator")
@click.argument("tasks", type=click.IntRange(min=1))
@TOPOLOGY
@DRY_RUN
@NO_WAIT
@JSON
def repartition(*, operator: str, tasks: int, name: str | None, dry_run: bool, no_wait: bool, as_json: bool) -> Outcome:
    """Cut the state of a keyed operator into another number of tasks; the operator stands still meanwhile."""
    return _act(name, "repartition", {"operator": operator, "tasks": tasks, "dry_run": dry_run}, no_wait, as_json)


@penstock.command()
@click.argument("number", type=click.IntRange(min=1), required=False, metavar="[OPERATION]")
@TOPOLOGY
@JSON
def cancel(number: int | None, name: str | None, as_json: bool) -> Outcome:
    """Cancel the operation that is under way, or this one: it is rolled back."""
    with _client(name) as client:
        if number is None:
            current = client.get("status")["operation"]
            if current is None:
                raise PenstockError("NO_SUCH_OPERATION", "no operation is under way.", "There is nothing to cancel.")
            number = current["id"]
        answer = client.post(f"operations/{number}/cancel")
        operation = _followed(client, answer, as_json)
    return _shown(operation, as_json, wanted=("cancelled", "rolled back"))


@penstock.command()
@TOPOLOGY
@DRY_RUN
@JSON
def pause(name: str | None, dry_run: bool, as_json: bool) -> Outcome:
    """Let the sources emit nothing more for the time being; what is on its way goes on."""
    return _at_once(name, "pause", {"dry_run": dry_run}, as_json)


@penstock.command()
@TOPOLOGY
@DRY_RUN
@JSON
def resume(name: str | None, dry_run: bool, as_json: bool) -> Outcome:
    """Let the sources go on."""
    return _at_once(name, "resume", {"dry_run": dry_run}, as_json)


@penstock.command()
@click.option("--at-once", is_flag=True, help="Do not wait for rows on their way; the state folder keeps them.")
@click.option("--timeout", type=DURATION, help="Wait for its end for so long: 90s, 10m. [default: until it has ended]")
@TOPOLOGY
@DRY_RUN
@NO_WAIT
@JSON
def stop(
    *, name: str | None, at_once: bool, timeout: float | None, dry_run: bool, no_wait: bool, as_json: bool
) -> Outcome:
    """Stop it, and wait until its process has ended: what is under way still reaches the sinks."""
    from penstock.cli.ending import ask, await_end, process_of
    from penstock.cli.steering_pages import waiting

    if no_wait and timeout is not None:
        raise PenstockError("BAD_COMMAND", "--no-wait and --timeout exclude each other.", "Choose one of them.")
    running = find(name)
    deadline = time.monotonic() + (0.0 if no_wait else math.inf if timeout is None else timeout)
    with process_of(running) as process, waiting(as_json) as tell:
        answer = ask(process, _connected, {"drain": not at_once, "dry_run": dry_run}, deadline, tell)
        if dry_run or no_wait:
            return _told(answer, answer["plan"]["reason"], as_json)
        ended, how = await_end(process, deadline, tell)
    text = f"{running.label} has ended. {how}" if ended else f"{running.label} has not ended yet; it goes on stopping."
    return _told({**answer, "ended": ended, "how": how}, text.rstrip(), as_json, 0 if ended else NOT_DONE)


def _told(answer: Json, text: str, as_json: bool, code: int = 0) -> Outcome:
    if not as_json:
        click.echo(text)
    return Outcome(code, answer if as_json else None)


def _at_once(name: str | None, path: str, body: Json, as_json: bool) -> Outcome:
    with _client(name) as client:
        answer = client.post(path, body)
    if not as_json:
        click.echo(answer["plan"]["reason"])
    return Outcome(answer=answer if as_json else None)


def _act(name: str | None, path: str, body: Json, no_wait: bool, as_json: bool) -> Outcome:
    from penstock.cli.steering_pages import print_proposal

    with _client(name) as client:
        answer = client.post(path, body)
        if body["dry_run"]:
            if not as_json:
                print_proposal(answer)
            return Outcome(answer=answer if as_json else None)
        operation = answer if no_wait else _followed(client, answer, as_json)
    return _shown(operation, as_json)


def _followed(client: Client, operation: Json, as_json: bool) -> Json:
    from penstock.cli.steering_pages import waiting

    with waiting(as_json) as tell:
        return client.follow(operation, lambda one: tell(f"{one['action']}: {one['step'] or one['state']}"))


def _shown(
    operation: Json, as_json: bool, wanted: tuple[str, ...] = ("done", "nothing to do", "waiting", "running")
) -> Outcome:
    from penstock.cli.steering_pages import print_operation

    error = operation["error"]
    if error is not None:
        raise PenstockError(error["error"], error["message"], error["hint"])
    code = 0 if operation["state"] in wanted else NOT_DONE
    if as_json:
        return Outcome(code, operation)
    print_operation(operation)
    return Outcome(code)
