"""The commands and their options. What a command needs is imported when it is run: `show` never loads Spark."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from penstock import settings as all_settings
from penstock.errors import PenstockError
from penstock.settings import Settings
from penstock.version import VERSION

if TYPE_CHECKING:
    from penstock.autoscaler.goals import Goal

JSON = click.option("--json", "as_json", is_flag=True, help="Print one JSON object on standard output instead of text.")


@dataclass(frozen=True)
class CommandResult:
    """What a command returns: its exit code, and with --json its answer."""

    code: int = 0
    answer: object = None
    #: For a command that goes on until it is interrupted: its answers one after the other, each printed on a line.
    stream: Iterator[object] | None = None


@click.group(context_settings={"help_option_names": ["-h", "--help"]}, invoke_without_command=True)
@click.version_option(VERSION, prog_name="penstock", message="%(prog)s %(version)s")
@click.pass_context
def penstock(context: click.Context) -> None:
    """Elastic stream processing on Spark: a topology of operators that scales while it runs.

    To begin: `penstock init NAME` writes a small topology, NAME.py. `penstock show NAME.py` checks and draws it, and
    `penstock run NAME.py` runs it. While it runs, `penstock top` in another terminal shows it. The other commands
    show and change what runs.
    """
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


def _finite(_: click.Context, option: click.Parameter, value: float | None) -> float | None:
    if value is not None and not (math.isfinite(value) and value > 0):
        raise click.BadParameter(f"{value:g} is not a number of seconds above 0.", param=option)
    return value


@penstock.command(short_help="Run the topology that FILE declares.")
@click.argument("target", metavar="FILE[::NAME]")
@click.option(
    "--cluster",
    type=click.Choice(["local", "standalone", "attached", "lab"]),
    help="local: one Spark process. standalone: Penstock starts a master and workers, and each machine is an address. "
    "lab: the same with machines that are really apart, for experiments; see docs/lab.md. "
    "attached: a Spark master that runs already. [default: local, or attached if --master is given]",
)
@click.option("--machines", type=int, help="How many machines a standalone cluster or a lab has. [default: 2]")
@click.option("--slots", type=int, help="How many slots each machine has. [default: 2 local, 1 standalone or lab]")
@click.option("--cores", type=int, help="How many cores each slot has; the same as --set slot_cores=C. [default: 1]")
@click.option("--master", metavar="URL", help="The Spark master to attach to.")
@click.option(
    "--machine-cores", type=float, help="Lab: the cores of a machine, which all operators on it share. [default: 0.25]"
)
@click.option("--machine-memory", metavar="SIZE", help="Lab: the memory of a machine's operators. [default: 600m]")
@click.option(
    "--machine-sizes",
    metavar="SIZES",
    help="Lab: machines that are not alike, from the first one on: CORES[/MEMORY[/LINK]],...",
)
@click.option("--link", metavar="RATE", help="Lab: what a machine's link carries each way. [default: 100mbit]")
@click.option(
    "--latency",
    metavar="TIME",
    help="Lab: the time from a machine to another, one way: 5ms. (The latency that Penstock aims at is a setting: "
    "--set latency=0.02.) [default: none]",
)
@click.option(
    "--seconds",
    type=float,
    callback=_finite,
    help="Stop after so many seconds. [default: when the sources end, or at Ctrl-C]",
)
@click.option(
    "--strategy",
    "--policy",
    "strategy",
    metavar="NAME",
    help="The strategy (policy) that decides about scaling; see `penstock settings`. [default: the setting `strategy`]",
)
@click.option(
    "--throughput",
    type=float,
    help="Scale by itself, to hold so many rows a second at the sinks with as few machines as possible.",
)
@click.option("--machines-max", type=int, help="Scale by itself, with at most so many machines.")
@click.option(
    "--state",
    metavar="DIR",
    help="Keep state in this folder, and go on from it next time. [default: a temporary folder]",
)
@click.option(
    "--forget",
    metavar="OPERATOR",
    multiple=True,
    help="Have an operator begin anew: delete what the state folder holds of it (its read positions, its state, the "
    "rows that wait for it). Can be given several times.",
)
@click.option(
    "--forget-decisions",
    is_flag=True,
    help="Have a topology that scales by itself begin with an empty memory: it does not know which changes it made "
    "before the restart, which of them brought nothing or did harm, and what it was to take back.",
)
@click.option(
    "--set",
    "assignments",
    metavar="NAME=VALUE",
    multiple=True,
    help="Give a setting another value; `penstock settings` lists them. Can be given several times.",
)
@click.option(
    "--conf", "conf", metavar="KEY=VALUE", multiple=True, help="Give a setting of Spark a value, as for spark-submit."
)
@JSON
def run(  # noqa: PLR0913 - one parameter an option
    *,
    target: str,
    cluster: str | None,
    machines: int | None,
    slots: int | None,
    cores: int | None,
    master: str | None,
    machine_cores: float | None,
    machine_memory: str | None,
    machine_sizes: str | None,
    link: str | None,
    latency: str | None,
    seconds: float | None,
    strategy: str | None,
    throughput: float | None,
    machines_max: int | None,
    state: str | None,
    forget: tuple[str, ...],
    forget_decisions: bool,
    assignments: tuple[str, ...],
    conf: tuple[str, ...],
    as_json: bool,
) -> CommandResult:
    """Run the topology that FILE declares, and show a live table until it ends.

    Ctrl-C or SIGTERM stops the topology in order: rows that the sources have emitted still reach the sinks. A second
    Ctrl-C stops it at once.
    """
    from penstock.autoscaler.autonomy import check_forgetting, check_goal, needs_no_goal
    from penstock.cli.loader import load
    from penstock.cluster.choice import ClusterChoice

    choice = ClusterChoice.asked(
        cluster,
        machines,
        slots,
        master,
        machine_cores=machine_cores,
        machine_memory=machine_memory,
        machine_sizes=machine_sizes,
        link=link,
        latency=latency,
    )
    settings = _settings(assignments, cores, strategy)
    goal = _goal(throughput, machines_max)
    check_goal(settings.strategy, goal, settings)
    if forget and state is None and not settings.catalog:
        raise PenstockError(
            "BAD_COMMAND",
            "--forget needs --state, because a temporary state folder holds nothing yet.",
            "Give the state folder with --state.",
        )
    if forget_decisions:
        check_forgetting(settings.strategy, goal)
        if state is None and not settings.statistics:
            raise PenstockError(
                "BAD_COMMAND",
                "--forget-decisions needs --state, because in a temporary state folder nothing was decided yet.",
                "Give the state folder with --state.",
            )
    loaded = load(target)
    definition = loaded.topology.definition()
    scales_by_itself = goal is not None or needs_no_goal(settings.strategy)
    guards = loaded.guards() if scales_by_itself else ()

    from penstock.api.starting import quiet_java
    from penstock.cli.run import Order, run_topology
    from penstock.cli.screen import open_console, open_screen
    from penstock.cli.summary_page import print_summary

    quiet_java()
    console = open_console()
    spark_conf = _pairs("--conf", conf)
    order = Order(
        loaded,
        definition,
        choice,
        settings,
        seconds,
        state,
        spark_conf,
        goal,
        forget,
        guards,
        forget_decisions,
    )
    summary, code = run_topology(order, open_screen(console, as_json))
    if as_json:
        return CommandResult(code, summary.as_json())
    print_summary(summary, console)
    return CommandResult(code)


@penstock.command()
@click.argument("target", metavar="FILE[::NAME]")
@click.option("--mermaid", is_flag=True, help="Print a Mermaid flowchart, for documents.")
@JSON
def show(target: str, mermaid: bool, as_json: bool) -> CommandResult:
    """Check the topology that FILE declares, and draw it."""
    from penstock.cli.loader import load
    from penstock.topology import drawing

    if mermaid and as_json:
        raise PenstockError("BAD_COMMAND", "--mermaid and --json exclude each other.", "Choose one of them.")
    definition = load(target).topology.definition()
    if as_json:
        return CommandResult(answer=drawing.as_json(definition))
    click.echo(drawing.as_mermaid(definition) if mermaid else drawing.as_text(definition), nl=False)
    return CommandResult()


@penstock.command()
@click.argument("name")
@JSON
def init(name: str, as_json: bool) -> CommandResult:
    """Write a starter topology, NAME.py, that runs."""
    from penstock.cli.starter import write_starter

    path = write_starter(name)
    if as_json:
        return CommandResult(answer={"written": str(path)})
    click.echo(f"Wrote {path}. Now: penstock run {path} --seconds 20")
    return CommandResult()


@penstock.command(short_help="Make Spark start faster on this computer, once.")
@JSON
def prepare(as_json: bool) -> CommandResult:
    """Make Spark start faster on this computer, once: Java then finds Spark's classes in an archive.

    This takes about half a minute and 170 MB in your cache folder. Run it again after a new Java or a new Spark.
    """
    from penstock.cli.screen import open_console
    from penstock.cluster.class_archive import make_archive
    from penstock.cluster.java import check_java

    check_java()
    with open_console().status("Making an archive of Spark's classes, about half a minute ..."):
        file = make_archive()
    if as_json:
        return CommandResult(answer={"written": str(file)})
    click.echo(f"Spark now starts faster: its classes are in {file}.")
    return CommandResult()


@penstock.command(name="settings")
@JSON
def settings_command(as_json: bool) -> CommandResult:
    """List every setting: its default, type, range and meaning. `penstock run FILE --set NAME=VALUE` sets one."""
    rows = all_settings.reference()
    if as_json:
        return CommandResult(answer=rows)
    for row in rows:
        bounds = f", {row['range']}" if row["range"] else ""
        click.echo(f"{row['name']} = {row['default']}  ({row['type']}{bounds})\n    {row['meaning']}")
    return CommandResult()


def _settings(assignments: tuple[str, ...], cores: int | None, strategy: str | None) -> Settings:
    from penstock import plugins

    values: dict[str, Any] = dict(_pairs("--set", assignments))
    if cores is not None:
        values["slot_cores"] = cores
    if strategy is not None:
        values["strategy"] = strategy
    settings = Settings.of(values)
    plugins.check_loadable(settings.strategy, settings.mapping)
    return settings


def _goal(throughput: float | None, machines_max: int | None) -> Goal | None:
    """The goal of a topology that scales by itself; None if it does not."""
    from penstock.autoscaler.goals import Goal

    return None if throughput is None and machines_max is None else Goal(throughput, machines_max)


def _pairs(option: str, assignments: tuple[str, ...]) -> dict[str, str]:
    pairs = {}
    for assignment in assignments:
        name, equals, value = assignment.partition("=")
        if not equals or not name.strip():
            raise PenstockError(
                "BAD_COMMAND", f'{option} is given "{assignment}".', f"Write it as {option} NAME=VALUE."
            )
        pairs[name.strip()] = value.strip()
    return pairs
