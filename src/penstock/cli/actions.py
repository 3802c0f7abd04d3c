"""Commands that change a running topology, or end it."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, Any

import click

from penstock.api.discovery import find
from penstock.cli.commands import JSON, CommandResult, penstock
from penstock.cli.connection import TOPOLOGY, client_of, connected
from penstock.cli.durations import DURATION
from penstock.errors import PenstockError

if TYPE_CHECKING:
    from penstock.api.client import Client

#: The exit code of a change that was rolled back or cancelled: nobody made a mistake, but the change was not made.
NOT_DONE = 3
Json = dict[str, Any]

DRY_RUN = click.option("--dry-run", is_flag=True, help="Print the plan, and change nothing.")
NO_WAIT = click.option("--no-wait", is_flag=True, help="Ask for the change, and do not wait for its end.")
STRATEGY = click.option(
    "--strategy",
    "--policy",
    "strategy",
    metavar="NAME",
    help="The strategy (policy) that decides. [default: the setting `strategy`]",
)
MACHINES = click.IntRange(min=1)


@penstock.command(name="scale-out", short_help="Add machines, and give them instances.")
@click.option("--machines", type=MACHINES, default=1, show_default=True, help="How many machines to add.")
@STRATEGY
@TOPOLOGY
@DRY_RUN
@NO_WAIT
@JSON
def scale_out(
    *, machines: int, strategy: str | None, name: str | None, dry_run: bool, no_wait: bool, as_json: bool
) -> CommandResult:
    """Add machines. A strategy decides which instances they get."""
    body = {"machines": machines, "strategy": strategy, "dry_run": dry_run}
    return _act(name, "scale-out", body, no_wait, as_json)


@penstock.command(name="scale-in", short_help="Remove machines.")
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
) -> CommandResult:
    """Remove the named machines, or so many that a strategy chooses."""
    given = {"--machines": machines, "--strategy": strategy}
    if names and (option := next((one for one, value in given.items() if value is not None), "")):
        raise PenstockError(
            "BAD_COMMAND", f"names of machines and {option} exclude each other.", "Give one of the two."
        )
    body: Json = {"names": list(names)} if names else {"machines": machines, "strategy": strategy}
    return _act(name, "scale-in", {**body, "dry_run": dry_run}, no_wait, as_json)


@penstock.command(name="set-instances", short_help="Give an operator so many instances.")
@click.argument("operator")
@click.argument("instances", nargs=-1, required=True, metavar="COUNT | SLOT=COUNT...")
@TOPOLOGY
@DRY_RUN
@NO_WAIT
@JSON
def set_instances(
    *, operator: str, instances: tuple[str, ...], name: str | None, dry_run: bool, no_wait: bool, as_json: bool
) -> CommandResult:
    """Give an operator COUNT instances, or COUNT instances on each named slot and none on others."""
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
        raise PenstockError(
            "BAD_COMMAND", f'"{text}" is not a number of instances.', "Give a whole number of at least 1."
        )
    return int(text)


@penstock.command(short_help="Move a task of a keyed operator to another slot.")
@click.argument("operator")
@click.argument("task", type=click.IntRange(min=0))
@click.argument("slot")
@TOPOLOGY
@DRY_RUN
@NO_WAIT
@JSON
def move(
    *, operator: str, task: int, slot: str, name: str | None, dry_run: bool, no_wait: bool, as_json: bool
) -> CommandResult:
    """Move a task of a keyed operator, with its state, to another slot."""
    body = {"operator": operator, "task": task, "slot": slot, "dry_run": dry_run}
    return _act(name, "move-task", body, no_wait, as_json)


@penstock.command(short_help="Cut an operator's state into another number of tasks.")
@click.argument("operator")
@click.argument("tasks", type=click.IntRange(min=1))
@TOPOLOGY
@DRY_RUN
@NO_WAIT
@JSON
def repartition(
    *, operator: str, tasks: int, name: str | None, dry_run: bool, no_wait: bool, as_json: bool
) -> CommandResult:
    """Cut the state of a keyed operator into another number of tasks. The operator stands still meanwhile."""
    return _act(name, "repartition", {"operator": operator, "tasks": tasks, "dry_run": dry_run}, no_wait, as_json)


@penstock.command(short_help="Roll back an operation, or drop one that waits.")
@click.argument("number", type=click.IntRange(min=1), required=False, metavar="[OPERATION]")
@TOPOLOGY
@JSON
def cancel(number: int | None, name: str | None, as_json: bool) -> CommandResult:
    """Cancel OPERATION, or the operation that is under way. Penstock rolls it back."""
    with connected(name) as client:
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
def pause(name: str | None, dry_run: bool, as_json: bool) -> CommandResult:
    """Let the sources emit nothing until `penstock resume`. Rows that they have emitted go on."""
    return _at_once(name, "pause", {"dry_run": dry_run}, as_json)


@penstock.command()
@TOPOLOGY
@DRY_RUN
@JSON
def resume(name: str | None, dry_run: bool, as_json: bool) -> CommandResult:
    """Let the sources emit again."""
    return _at_once(name, "resume", {"dry_run": dry_run}, as_json)


@penstock.command()
@click.option(
    "--at-once",
    is_flag=True,
    help="Do not wait until emitted rows have reached the sinks; the state folder keeps them.",
)
@click.option("--timeout", type=DURATION, help="Wait so long for its end: 90s, 10m. [default: until it has ended]")
@TOPOLOGY
@DRY_RUN
@NO_WAIT
@JSON
def stop(
    *, name: str | None, at_once: bool, timeout: float | None, dry_run: bool, no_wait: bool, as_json: bool
) -> CommandResult:
    """Stop a topology, and wait until its process has ended. Rows that were emitted still reach the sinks."""
    from penstock.cli.ending import ask, await_end, process_of
    from penstock.cli.running_pages import waiting

    if no_wait and timeout is not None:
        raise PenstockError("BAD_COMMAND", "--no-wait and --timeout exclude each other.", "Choose one of them.")
    running = find(name)
    deadline = time.monotonic() + (0.0 if no_wait else math.inf if timeout is None else timeout)
    with process_of(running) as process, waiting(as_json) as tell:
        answer = ask(process, client_of, {"drain": not at_once, "dry_run": dry_run}, deadline, tell)
        if dry_run or no_wait:
            return _told(answer, answer["plan"]["reason"], as_json)
        ended, how = await_end(process, deadline, tell)
    text = f"{running.label} has ended. {how}" if ended else f"{running.label} has not ended yet; it is still stopping."
    return _told({**answer, "ended": ended, "how": how}, text.rstrip(), as_json, 0 if ended else NOT_DONE)


def _told(answer: Json, text: str, as_json: bool, code: int = 0) -> CommandResult:
    if not as_json:
        click.echo(text)
    return CommandResult(code, answer if as_json else None)


def _at_once(name: str | None, path: str, body: Json, as_json: bool) -> CommandResult:
    with connected(name) as client:
        answer = client.post(path, body)
    if not as_json:
        click.echo(answer["plan"]["reason"])
    return CommandResult(answer=answer if as_json else None)


def _act(name: str | None, path: str, body: Json, no_wait: bool, as_json: bool) -> CommandResult:
    from penstock.cli.running_pages import print_proposal

    with connected(name) as client:
        answer = client.post(path, body)
        if body["dry_run"]:
            if not as_json:
                print_proposal(answer)
            return CommandResult(answer=answer if as_json else None)
        operation = answer if no_wait else _followed(client, answer, as_json)
    return _shown(operation, as_json)


def _followed(client: Client, operation: Json, as_json: bool) -> Json:
    from penstock.cli.running_pages import waiting

    with waiting(as_json) as tell:
        return client.follow(operation, lambda one: tell(f"{one['action']}: {_doing(one)}"))


def _doing(operation: Json) -> str:
    """What is done for an operation now, or why it waits."""
    why = operation["reason"] if operation["state"] == "waiting" else operation["step"]
    return str(why or operation["state"])


def _shown(
    operation: Json, as_json: bool, wanted: tuple[str, ...] = ("done", "nothing to do", "waiting", "running")
) -> CommandResult:
    from penstock.cli.running_pages import print_operation

    error = operation["error"]
    if error is not None:
        raise PenstockError(error["error"], error["message"], error["hint"])
    code = 0 if operation["state"] in wanted else NOT_DONE
    if as_json:
        return CommandResult(code, operation)
    print_operation(operation)
    return CommandResult(code)
