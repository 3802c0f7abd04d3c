"""What must hold for other instances on the machines that are there, and how near they come to the best assignment."""

from __future__ import annotations

import random
import statistics
import sys
from pathlib import Path

import pytest

from penstock import Settings, Topology, sinks, sources
from penstock.autoscaler.measured_load import measured_load
from penstock.autoscaler.rearrangement import Rearranged, rearranged
from penstock.cluster.model import Cluster, Placement
from penstock.monitor.snapshot import Backlog, OperatorSnapshot, Snapshot, StreamSnapshot
from penstock.strategies.fluid import Pipes, flow, rates_at
from penstock.strategies.load import Load
from penstock.topology.definition import TopologyDefinition

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

from best import best
from stela_fluid import TOPOLOGIES, drawn

SCHEMA = "id long, value double"
ONE = Cluster.of(["m"], 1, cores=64)
#: How many more instances the slot takes.
ROOM = 5
DRAWS = 40


def defined(load: Load) -> TopologyDefinition:
    topology, made = Topology("drawn"), {}
    for place, one in enumerate(load.operators):
        inputs = [made[load.operators[parent].name] for parent in load.parents[place]]
        if not inputs:
            made[one.name] = topology.source(one.name, sources.rate(1, sources.numbers()))
        elif load.children[place]:
            made[one.name] = topology.map(one.name, lambda batch: batch, inputs=inputs, schema=SCHEMA)
        else:
            topology.sink(one.name, sinks.noop(), inputs=inputs)
    return topology.definition()


def measured(pipes: Pipes, placement: Placement) -> Snapshot:
    """What would be measured of a topology with these rates whose instances wait and need hardly any core. Rows pile up
    in front of slow operators."""
    definition, rates = defined(pipes.load), rates_at(pipes, instances_of(pipes, placement))
    operators, streams = {}, {}
    for place, one in enumerate(pipes.load.operators):
        busy = rates.executed[place] / rates.speed[place]
        operators[one.name] = OperatorSnapshot(
            one.name,
            definition.operator(one.name).kind,
            placement.total(one.name),
            rate=rates.executed[place],
            input_rate=rates.arriving[place],
            capacity=pipes.rates[place],
            utilisation=busy,
            cpu_utilisation=0.001 * busy,
            backlog=Backlog(1000, 8000, 1.0, max(0.0, rates.arriving[place] - rates.executed[place])),
        )
    for one, rows in zip(pipes.load.streams, pipes.selectivity, strict=True):
        name = f"{one.producer}->{one.consumer}"
        emits = rates.executed[pipes.load.position[one.producer]] * rows
        streams[name] = StreamSnapshot(name, one.producer, "out", one.consumer, emit_rate=emits)
    return Snapshot(definition, ONE, placement, 0.0, 200.0, 20, operators, streams, {}, {}, {})


def instances_of(pipes: Pipes, placement: Placement) -> list[int]:
    return [placement.total(one.name) for one in pipes.load.operators]


@pytest.mark.parametrize("name", TOPOLOGIES)
def test_it_comes_near_to_the_best_assignment(name: str) -> None:
    """On a slot with room for five instances more. It may also exchange instances, which the search does not: so it can
    be better."""
    streams, each, _ = TOPOLOGIES[name]
    ratios = []
    for seed in range(DRAWS):
        pipes = drawn(streams, each, random.Random(seed))
        before = Placement({one.name: {ONE.slots[0]: each} for one in pipes.load.operators})
        most = each * len(before.instances) + ROOM
        snapshot = measured(pipes, before)
        settings = Settings.of({"slot_instances": most, "chaining": "off"})
        found = rearranged(snapshot, measured_load(snapshot), None, settings)
        after = found.placement if isinstance(found, Rearranged) else before
        assert after.load()[ONE.slots[0]] <= most
        assert all(count >= 1 for count in instances_of(pipes, after))
        reached = flow(pipes, instances_of(pipes, after)).throughput
        assert found.expected.throughput == pytest.approx(reached)
        ratios.append(reached / best(pipes, [each] * len(before.instances), ROOM).throughput)
    assert statistics.mean(ratios) >= 0.99
    assert min(ratios) >= 0.89
