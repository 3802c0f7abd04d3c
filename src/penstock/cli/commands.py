"""The commands and their options. What a command needs is imported when it is run: `show` never loads Spark."""

from __future__ import annotations

import logging
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
    from penstock.cluster.choice import ClusterChoice

JSON = click.option("--json", "as_json", is_flag=True, help="One JSON object on standard output instead of text.")


@dataclass(frozen=True)
class CommandResult:
    """How a command ended: its exit code, and its answer where that is to be JSON."""

    code: int = 0
    answer: object = None
    #: Or, where it goes on and on, one object after the other, each on a line.
    stream: Iterator[object] | None = None


@click.group(context_settings={"help_option_names": ["-h", "--help"]}, invoke_without_command=True)
@click.version_option(VERSION, prog_name="penstock", message="%(prog)s %(version)s")
@click.pass_context
def penstock(context: click.Context) -> None:
    """Elastic stream processing on Spark: a topology of operators that scales while it runs."""
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


def _finite(_: click.Context, option: click.Parameter, value: float | None) -> float | None:
    if value is not None and not (math.isfinite(value) and value > 0):
        raise click.BadParameter(f"{value:g} is not a number of seconds above 0.", param=option)
    return value


@penstock.command()
@click.argument("target", metavar="FILE[::NAME]")
@click.option(
    "--cluster",
    type=click.Choice(["local", "standalone", "attached"]),
    help="local: one Spark process. standalone: a master and workers of our own, each machine an address. "
    "attached: a Spark master that runs already. [default: local, or attached if there is a --master]",
)
@click.option("--machines", type=int, help="Machines of a standalone cluster. [default: 2]")
@click.option("--slots", type=int, help="Slots of each machine. [default: 2 local, 1 standalone]")
@click.option("--cores", type=int, help="Cores of each slot; the same as --set slot_cores=C. [default: 1]")
@click.option("--master", metavar="URL", help="The Spark master to attach to.")
@click.option("--seconds", type=float, callback=_finite, help="Stop after so long. [default: when it ends, or Ctrl-C]")
@click.option("--strategy", metavar="NAME", help="The strategy that scales it. [default: the setting `strategy`]")
@click.option("--throughput", type=float, help="Hold so many rows a second at the sinks, with the fewest machines.")
@click.option("--machines-max", type=int, help="Scale by itself, to at most so many machines.")
@click.option("--state", metavar="DIR", help="Keep state here, and go on from it next time. [default: a temporary one]")
@click.option(
    "--forget",
    metavar="OPERATOR",
    multiple=True,
    help="Give up what the state holds of an operator: what it has read, its state, rows that wait for it.",
)
@click.option("--set", "assignments", metavar="NAME=VALUE", multiple=True, help="A setting; see `penstock settings`.")
@click.option(
    "--conf", "conf", metavar="KEY=VALUE", multiple=True, help="A setting of Spark's own, as for spark-submit."
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
    seconds: float | None,
    strategy: str | None,
    throughput: float | None,
    machines_max: int | None,
    state: str | None,
    forget: tuple[str, ...],
    assignments: tuple[str, ...],
    conf: tuple[str, ...],
    as_json: bool,
) -> CommandResult:
    """Run the topology that FILE declares, with a live table, until it ends.

    Ctrl-C or SIGTERM stops it in order: what is under way still reaches the sinks. Ctrl-C again stops it at once.
    """
    from penstock.autoscaler.goals import settings_for
    from penstock.cli.loader import load
    from penstock.cluster.choice import ATTACHED, LOCAL, ClusterChoice

    choice = ClusterChoice(cluster or (ATTACHED if master else LOCAL), machines, slots, master)
    settings = _settings(assignments, cores, strategy)
    goal = _goal(throughput, machines_max, choice)
    settings = settings_for(goal, settings)
    if forget and state is None and not settings.catalog:
        raise PenstockError(
            "BAD_COMMAND",
            "--forget needs --state: a temporary state holds nothing yet.",
            "Give the state folder with --state.",
        )
    loaded = load(target)
    definition = loaded.topology.definition()

    from penstock.cli.run import Order, run_topology
    from penstock.cli.screen import open_console, open_screen
    from penstock.cli.summary_page import print_summary

    # A session that ends under the gateway's feet is not worth a log line; failures come to us as exceptions.
    # Py4J writes most of these to a logger of its own, and some to the root.
    logging.getLogger("py4j").addHandler(logging.NullHandler())
    logging.getLogger().addFilter(
        lambda record: not record.pathname.endswith(("py4j/java_gateway.py", "py4j/clientserver.py"))
    )
    console = open_console()
    order = Order(loaded, definition, choice, settings, seconds, state, _pairs("--conf", conf), goal, forget)
    summary, code = run_topology(order, open_screen(console, as_json))
    if as_json:
        return CommandResult(code, summary.as_json())
    print_summary(summary, console)
    return CommandResult(code)


@penstock.command()
@click.argument("target", metavar="FILE[::NAME]")
@click.option("--mermaid", is_flag=True, help="A Mermaid flowchart, for documents.")
@JSON
def show(target: str, mermaid: bool, as_json: bool) -> CommandResult:
    """Check the topology that FILE declares, and draw it."""
    from penstock.cli.loader import load
    from penstock.topology import render

    if mermaid and as_json:
        raise PenstockError("BAD_COMMAND", "--mermaid and --json exclude each other.", "Choose one of them.")
    definition = load(target).topology.definition()
    if as_json:
        return CommandResult(answer=render.as_json(definition))
    click.echo(render.as_mermaid(definition) if mermaid else render.as_text(definition), nl=False)
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


@penstock.command(name="settings")
@JSON
def settings_command(as_json: bool) -> CommandResult:
    """List every setting with its type, default, range and meaning."""
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
    for group, name in ((plugins.POLICIES, settings.strategy), (plugins.MAPPINGS, settings.mapping)):
        plugins.find(group, name)  # one that cannot be loaded is refused before anything is started
    return settings


def _goal(throughput: float | None, machines_max: int | None, choice: ClusterChoice) -> Goal | None:
    """What the topology is to reach by itself, if it is."""
    from penstock.autoscaler.goals import Goal, require_machines

    if throughput is None and machines_max is None:
        return None
    goal = Goal(throughput, machines_max)
    require_machines(goal, choice.kind)
    return goal


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
