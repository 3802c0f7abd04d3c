"""The operations of benchmarks/stela.py, each on a cluster of its own: one machine more, or four of eight machines
fewer."""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from stela_oracle import ORACLE, oracle
from stela_runs import SETTINGS, Decide, Result, Times, first_machines, one_operation, task_threads, warm_up
from stela_topologies import (
    EXAMPLES,
    MORE,
    Experiment,
    built,
    faster,
    machine_cores,
    rate_when_full,
)
from stela_work import Calibration

from penstock.autoscaler.strategies import STRATEGIES
from penstock.cluster import standalone
from penstock.cluster.ground import Loopback
from penstock.cluster.lab.ground import LabGround
from penstock.cluster.lab.sizes import LabShape
from penstock.cluster.model import Cluster, Placement
from penstock.cluster.standalone import StandaloneCluster
from penstock.engine.spark.host import SparkHost
from penstock.strategies.gain.scale_out import NAME as GAIN
from penstock.strategies.mapping.round_robin import round_robin
from penstock.strategies.stela.scale_out import instances_a_machine
from penstock.topology.definition import TopologyDefinition

STELA, STORM = "stela", "storm"
#: Enough for all Python workers of a machine of a lab: memory is not what is tried out.
LAB_MEMORY = "2g"
RANDOM_GROUPS = ("random group 1", "random group 2")
Say = Callable[[str], None]


def cluster_of(is_lab: bool, cores: float, machines: int, threads: int, folder: Path) -> StandaloneCluster:
    if is_lab:
        standalone.START_SECONDS = 300.0
    ground = LabGround(LabShape.read(cores, LAB_MEMORY)) if is_lab else Loopback()
    return StandaloneCluster(machines, 1, 1, threads, folder / "cluster", executor_memory_mb=512, ground=ground)


def on_machines(
    name: str, provider: StandaloneCluster, folder: Path, work: Callable[[SparkHost], list[tuple[str, Result]]]
) -> list[tuple[str, Result]]:
    here = str(Path(__file__).parent)
    with SparkHost(name, provider, SETTINGS, folder / "logs", [str(EXAMPLES), here]) as host:
        return work(host)


def tell(say: Say, name: str, found: Result) -> None:
    what = f"new: {', '.join(found.new)}" if found.new else f"gone: {', '.join(found.removed) or 'nothing'}"
    say(
        f"{name}: {found.measured.before:,.0f} -> {found.measured.after:,.0f} rows/s, "
        f"{'' if found.expected is None else f'expected {found.expected:,.0f}, '}"
        f"own projection {found.predicted:,.0f}, best {found.best:,.0f}, duty {found.duty:.2f}, "
        f"in {found.seconds:.1f} s; {what}"
    )


def in_turn(names: Sequence[str], rounds: int, measure: Callable[[str], Result], say: Say) -> list[tuple[str, Result]]:
    """What was measured; a round begins with another one each time. An operation that fails costs its own figure: the
    minutes that the others took are not lost."""
    found = []
    for index in range(rounds):
        turn = index % len(names)
        for chosen in (*names[turn:], *names[:turn]):
            try:
                found.append((chosen, measure(chosen)))
            except Exception as problem:  # whatever it is, it is that of this operation
                traceback.print_exc()
                say(f"{chosen} failed: {type(problem).__name__}: {problem}")
            else:
                tell(say, *found[-1])
    return found


# One machine more


def scale_out(
    experiment: Experiment,
    definition: TopologyDefinition,
    strategies: Sequence[str],
    rounds: int,
    window: float,
    folder: Path,
    say: Say,
) -> list[tuple[str, Result]]:
    times = Times.of(definition, window, experiment.is_lab)

    def work(host: SparkHost) -> list[tuple[str, Result]]:
        before = first_machines(host.cluster, experiment.machines)
        new = host.cluster.machines[experiment.machines :]
        initial = round_robin(definition, before)
        wanted = instances_a_machine(initial, before)

        def by(chosen: str) -> Decide:
            rule = oracle if chosen == ORACLE else STRATEGIES[chosen].scale_out
            return lambda load, placement, rules: rule(load, placement, before, new, rules)

        say(f"{len(host.cluster.machines)} machines are up")
        everywhere = round_robin(definition, host.cluster)
        warm_up(definition, host, everywhere, times)

        def measure(chosen: str) -> Result:
            return one_operation(definition, host, initial, by(chosen), times, wanted, corrects=chosen == GAIN)

        return in_turn(strategies, rounds, measure, say)

    machines, threads = experiment.machines + 1, task_threads(definition)
    provider = cluster_of(experiment.is_lab, experiment.cores, machines, threads, folder)
    return on_machines(definition.name, provider, folder, work)


# Four of eight machines go

PAGE_LOAD_IN = 15
MACHINES_IN, GONE = 8, 4


def occupied_by_few(definition: TopologyDefinition, cluster: Cluster) -> Placement:
    """Every machine holds instances of one operator or two: operators one after the other, machines filled in turn."""
    total = sum(operator.instances for operator in definition.operators)
    share = -(-total // len(cluster.slots))
    placed: dict[str, dict[Any, int]] = {}
    number = 0
    for operator in definition.operators:
        for _ in range(operator.instances):
            slot = cluster.slots[number // share]
            mine = placed.setdefault(operator.name, {})
            mine[slot] = mine.get(slot, 0) + 1
            number += 1
    return Placement(placed, {})


def scale_in_definition(calibration: Calibration | None = None) -> TopologyDefinition:
    """Sources give 25% more than the slowest operator can do, or than the fullest machine, where operators work."""
    found = built("page_load", calibration)
    instances = found.definition.operators[0].instances
    operators = tuple(replace(operator, instances=PAGE_LOAD_IN) for operator in found.definition.operators)
    more = replace(found, definition=replace(found.definition, operators=operators))
    if calibration is None:
        return faster(more.definition, PAGE_LOAD_IN / instances)
    cluster = Cluster.of([str(index) for index in range(MACHINES_IN)], 1)
    full = rate_when_full(more, occupied_by_few(more.definition, cluster), scale_in_cores())
    return more.paced(MORE * full).definition


def scale_in_cores() -> float:
    return machine_cores(MACHINES_IN, os.cpu_count() or 2)


def scale_in(
    definition: TopologyDefinition, is_lab: bool, rounds: int, window: float, folder: Path, say: Say
) -> list[tuple[str, Result]]:
    times = Times.of(definition, window, is_lab)

    def work(host: SparkHost) -> list[tuple[str, Result]]:
        cluster = host.cluster
        initial = occupied_by_few(definition, cluster)

        def by(chosen: str, seed: int) -> Decide:
            return lambda load, placement, rules: STRATEGIES[chosen].scale_in(
                load, placement, cluster, GONE, replace(rules, seed=seed)
            )

        ways = {STELA: by(STELA, 0)} | {group: by(STORM, seed) for seed, group in enumerate(RANDOM_GROUPS, 1)}
        say(f"{len(cluster.machines)} machines are up")
        warm_up(definition, host, initial, times)

        def measure(chosen: str) -> Result:
            return one_operation(definition, host, initial, ways[chosen], times, 0)

        return in_turn([*ways], rounds, measure, say)

    provider = cluster_of(is_lab, scale_in_cores(), MACHINES_IN, task_threads(definition), folder)
    return on_machines(definition.name, provider, folder, work)
