"""How long Stela takes to decide: 10,000 operators and 1,000 new instances, on one core, on graphs of many shapes.

Shapes that are easy for one way of computing ETP are hard for another, so there are wide and deep ones, with one sink
and with thousands, with few and with many congested operators, and with one instance an operator (every new one flips
something) and four. The figure is the worst shape's median, in CPU seconds; wall time is printed beside it.

    python benchmarks/stela_decision.py [--operators 10000] [--rounds 3]
"""

from __future__ import annotations

import os

# One core: before numpy is imported.
os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1")

import argparse
import random
import statistics
import sys
import time
from collections.abc import Callable

from results import Bar, finish, machine, write_results

from penstock.cluster.model import Cluster, Machine, Placement, Slot
from penstock.strategies.decision import Decision
from penstock.strategies.load import Load, OperatorLoad, StreamLoad
from penstock.strategies.stela.scale_out import scale_out

Edges = list[tuple[int, int]]
NEW_INSTANCES = 1000
#: Instances on a machine, before and so after: 10 new machines get 1,000.
A_MACHINE = 100


def layered(width: int, children: int) -> Callable[[int], Edges]:
    """Layers of so many operators, each with so many children drawn from the next layer."""

    def edges(count: int) -> Edges:
        draw = random.Random(1)
        return [
            (one, below)
            for one in range(count - width)
            for below in draw.sample(range(one - one % width + width, one - one % width + 2 * width), children)
        ]

    return edges


def chain(count: int) -> Edges:
    return [(one, one + 1) for one in range(count - 1)]


def ladder(count: int) -> Edges:
    """Two side by side, each with both below it as children, down to one sink: as long and as branching as can be."""
    return [(one, below) for one in range(count - 1) for below in sorted({*_rung(one, count)})]


def _rung(one: int, count: int) -> list[int]:
    first = one - one % 2 + 2
    return [min(first, count - 1), min(first + 1, count - 1)] if first < count else [count - 1]


def star(count: int) -> Edges:
    """As many sources as sinks around one operator."""
    middle = count // 2
    return [(one, middle) for one in range(middle)] + [(middle, one) for one in range(middle + 1, count)]


def many_sinks(count: int) -> Edges:
    """One source, half of the rest its children, each with a sink of its own."""
    half = (count - 1) // 2
    return [(0, one) for one in range(1, half + 1)] + [(one, one + half) for one in range(1, half + 1)]


def diamond(count: int) -> Edges:
    return [(0, one) for one in range(1, count - 1)] + [(one, count - 1) for one in range(1, count - 1)]


SHAPES: dict[str, Callable[[int], Edges]] = {
    "layers of 2,000, 4 children": layered(2000, 4),
    "layers of 1,000, 3 children": layered(1000, 3),
    "layers of 500, 3 children": layered(500, 3),
    "layers of 100, 3 children": layered(100, 3),
    "layers of 10, 3 children": layered(10, 3),
    "half sources, half sinks, 8 children": lambda count: layered(count // 2, 8)(count),
    "chain": chain,
    "ladder": ladder,
    "star": star,
    "many sinks": many_sinks,
    "diamond": diamond,
}


def situation(count: int, edges: Edges, instances: int, congested: float) -> tuple[Load, Placement, Cluster]:
    """Rates drawn at random; that share of the operators gets 1.21 to 3 times what it executes."""
    draw = random.Random(2)
    streams = tuple(StreamLoad(f"o{one}", f"o{below}", draw.uniform(50, 150)) for one, below in edges)
    arriving = [0.0] * count
    for (_, below), stream in zip(edges, streams, strict=True):
        arriving[below] += stream.rate
    operators = []
    for place, rate in enumerate(arriving):
        offered = rate or 100.0
        executed = offered / draw.uniform(1.21, 3) if draw.random() < congested else offered
        operators.append(OperatorLoad(f"o{place}", executed, None if rate else offered))
    cluster = Cluster.of([f"m{index}" for index in range(max(1, count * instances // A_MACHINE))], 4)
    slots = cluster.slots
    placed = {
        f"o{place}": {slots[(place * instances + index) % len(slots)]: 1 for index in range(instances)}
        for place in range(count)
    }
    return Load(tuple(operators), streams), Placement(placed), cluster


def decide(count: int, edges: Edges, instances: int, congested: float) -> tuple[float, float]:
    """CPU and wall seconds of one decision, from measured rates to the new placement."""
    load, placement, cluster = situation(count, edges, instances, congested)
    names = [f"new{index}" for index in range(NEW_INSTANCES // A_MACHINE)]
    new = [Machine(name, tuple(Slot(name, index) for index in range(4))) for name in names]
    cpu, wall = time.process_time(), time.perf_counter()
    outcome = scale_out(load, placement, cluster, new)
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    assert isinstance(outcome, Decision) and len(outcome.steps) == NEW_INSTANCES
    return cpu, wall


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--operators", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    lines: list[str] = []

    def say(line: str) -> None:
        print(line, flush=True)
        lines.append(line)

    say(f"{arguments.operators:,} operators, {NEW_INSTANCES:,} new instances, {arguments.rounds} rounds each\n")
    say("| shape | streams | instances | congested | CPU s, median | CPU s, spread | wall s, median |")
    say("| --- | --- | --- | --- | --- | --- | --- |")
    worst = 0.0
    for name, shape in SHAPES.items():
        edges = shape(arguments.operators)
        for instances in (1, 4):
            for congested in (0.001, 0.05, 0.5):
                taken = [decide(arguments.operators, edges, instances, congested) for _ in range(arguments.rounds)]
                cpu, wall = [one for one, _ in taken], [one for _, one in taken]
                middle = statistics.median(cpu)
                worst = max(worst, middle)
                say(
                    f"| {name} | {len(edges):,} | {instances} | {congested:.1%} | {middle:.2f} "
                    f"| {min(cpu):.2f}-{max(cpu):.2f} | {statistics.median(wall):.2f} |"
                )
    say("")
    bar = Bar("stela decision, worst shape's median, CPU s", worst, 1.0, at_most=True)
    write_results("stela_decision", lines, [bar], machine())
    return finish([bar])


if __name__ == "__main__":
    sys.exit(main())
