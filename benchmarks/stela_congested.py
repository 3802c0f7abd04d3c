"""How much of its time a congested instance works, on the topologies of benchmarks/stela.py: nothing is scaled here.

What is left of the time goes into batches: into waiting for rows, reading, writing and publishing them. A strategy that
takes a congested operator's rate for what it can do is wrong by that much.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from results import Bar
from stela_runs import SETTINGS, Times, congested_operators, measured_window, started, task_threads

from penstock.cluster.standalone import StandaloneCluster
from penstock.engine.spark.host import SparkHost
from penstock.monitor.snapshot import Snapshot
from penstock.strategies.mapping.round_robin import round_robin
from penstock.strategies.rules import Rules
from penstock.topology.definition import TopologyDefinition

LEAST_SHARE = 0.97
METHOD = """\
Each topology as it is before the scaling operation, on its machines. The snapshot of the monitor says for each
operator which share of the time its instances spent in its function, all of them together and by slot. Operators are
congested by Stela's rule. The first operators of a topology keep the others from being congested.
"""
Say = Callable[[str], None]


@dataclass(frozen=True)
class Busy:
    """Of one congested operator in one run."""

    operator: str
    instances: int
    #: Share of the time in which its instances worked, and the least and the most of any slot.
    share: float
    least: float
    most: float


def busy_of(snapshot: Snapshot, names: Sequence[str]) -> list[Busy]:
    """Of those of these operators that were measured."""
    found = []
    for name in names:
        seen = snapshot.operators[name]
        by_slot = [one.utilisation for one in seen.slots.values() if one.instances and one.utilisation is not None]
        if seen.utilisation is not None and by_slot:
            found.append(Busy(name, seen.instances, seen.utilisation, min(by_slot), max(by_slot)))
    return found


def measure(
    definition: TopologyDefinition, machines: int, rounds: int, window: float, folder: Path, examples: str, say: Say
) -> list[list[Busy]]:
    """By round, the congested operators. Some seconds before the window, in which JVMs become warm, do not count."""
    times = Times.of(definition, window)
    provider = StandaloneCluster(machines, 1, 1, task_threads(definition), folder / "cluster", executor_memory_mb=512)
    with SparkHost(definition.name, provider, SETTINGS, folder / "logs", [examples]) as host:
        initial = round_robin(definition, host.cluster)
        found = []
        for _ in range(rounds):
            with started(definition, host, initial, times) as run:
                run.wait(times.warm_up)
                snapshot, load = measured_window(run, times)
                found.append(busy_of(snapshot, congested_operators(load, Rules.of(run.settings))))
            say(f"congested: {found[-1] or 'nothing'}")
        return found


def bar_of(name: str, found: Sequence[Sequence[Busy]]) -> Bar:
    """Of the congested operator that works least, by round; a topology without one shows nothing, and is not met."""
    shares = [min(one.share for one in busy) for busy in found if busy]
    return Bar.of(f"3. {name}: a congested instance works, of its time", shares, LEAST_SHARE, at_most=False)


def report(found: Mapping[str, Sequence[Sequence[Busy]]], say: Say) -> list[Bar]:
    say("### Congested instances\n")
    say(METHOD)
    say("| topology | congested operator | instances | works, of its time (from - to) | by slot, from - to |")
    say("| --- | --- | --- | --- | --- |")
    for name, rounds in found.items():
        names = sorted({one.operator for busy in rounds for one in busy})
        for operator in names:
            seen = [one for busy in rounds for one in busy if one.operator == operator]
            shares = sorted(one.share for one in seen)
            say(
                f"| {name} | {operator} | {seen[0].instances} "
                f"| {statistics.median(shares):.3f} ({shares[0]:.3f} - {shares[-1]:.3f}) "
                f"| {min(one.least for one in seen):.3f} - {max(one.most for one in seen):.3f} |"
            )
        if not names:
            say(f"| {name} | none | | | |")
    say("")
    return [bar_of(name, rounds) for name, rounds in found.items()]
