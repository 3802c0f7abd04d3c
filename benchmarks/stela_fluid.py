"""How near a strategy's choice comes to the best one, in the fluid model: the papers' topologies, rates at random.

No Spark: it shows what to expect of a rule before it is run, and which figure is the rule's and which the machine's.
Rates are 50 to 200 rows a second an instance, the sources are offered 1 to 3 times what an average operator can do;
streams, instances and machines are the papers' (table I). A baseline that moves instances without adding any leaves the
throughput of this model where it was: that is the column "before". In a second table `gain` decides on estimates that
are off: each by up to 10%, and all by the same factor between 0.75 and 1.35; it measures, and corrects itself.

    python benchmarks/stela_fluid.py [--draws 200]
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
from collections.abc import Sequence
from dataclasses import replace

from best import best
from results import Bar, finish, machine, write_results

from penstock.autoscaler.strategies import STRATEGIES
from penstock.cluster.model import Cluster, Machine, Placement, Slot
from penstock.strategies.decision import Decision
from penstock.strategies.fluid import Pipes, flow
from penstock.strategies.gain.correction import Trial, correct
from penstock.strategies.gain.scale_out import scale_out
from penstock.strategies.load import Load, OperatorLoad, StreamLoad
from penstock.strategies.mapping.round_robin import deal
from penstock.strategies.memory import EMPTY
from penstock.strategies.rules import Rules
from penstock.strategies.stela.scale_out import instances_a_machine

#: Streams (those after a filter carry 0.8 of its rows, the network monitor's two branches half each), instances,
#: machines before.
TOPOLOGIES = {
    "linear": ("a-b b-c c-d", 6, 6),
    "diamond": ("s-a s-b s-c s-d a-t b-t c-t d-t", 4, 6),
    "star": ("p-m q-m m-t m-u", 2, 4),
    "page load": ("s-transform transform-filter filter-join:0.8 join-filter2 filter2-aggregate:0.8 aggregate-t", 4, 7),
    "processing": (
        "s-transform transform-filter filter-join1:0.8 join1-t transform-join2 join2-normalize normalize-u", 4, 8,
    ),
    "network": (
        "s-parse parse-failure:0.5 failure-parseF parseF-aggregate aggregate-filter filter-functor:0.8 "
        "parse-success:0.5 success-parseS parseS-t functor-t", 4, 8,
    ),
}  # fmt: skip
RULES = {
    "gain": ("gain", Rules()),
    "stela": ("stela", Rules()),
    "stela, alpha 1.02": ("stela", Rules(alpha=1.02)),
    "stela_capacity, alpha 1.2": ("stela_capacity", Rules(capacity_alpha=1.2)),
    "stela_capacity, alpha 1.02": ("stela_capacity", Rules(capacity_alpha=1.02)),
}
BEFORE = "before"
NEW = Machine("new", tuple(Slot("new", index) for index in range(4)))


def drawn(streams: str, instances: int, draw: random.Random) -> Pipes:
    parts = [one.partition(":") for one in streams.split()]
    edges = [tuple(part[0].split("-")) for part in parts]
    names = _sorted(edges)
    sources = set(names) - {consumer for _, consumer in edges}
    offered = draw.uniform(1, 3) * 100 * instances
    operators = tuple(OperatorLoad(name, 1.0, offered if name in sources else None) for name in names)
    load = Load(operators, tuple(StreamLoad(producer, consumer, 1.0) for producer, consumer in edges))
    rates = tuple(draw.uniform(50, 200) for _ in names)
    return Pipes(load, rates, tuple(float(part[2] or 1) for part in parts))


def _sorted(edges: list[tuple[str, ...]]) -> list[str]:
    left = list(dict.fromkeys(name for edge in edges for name in edge))
    order: list[str] = []
    while left:
        order.append(next(one for one in left if not any(below == one and above in left for above, below in edges)))
        left.remove(order[-1])
    return order


def situation(name: str, draw: random.Random) -> tuple[Pipes, Placement, Cluster]:
    streams, instances, machines = TOPOLOGIES[name]
    cluster = Cluster.of([f"m{index}" for index in range(machines)], 4)
    pipes = drawn(streams, instances, draw)
    names = [operator.name for operator in pipes.load.operators]
    return pipes, deal(dict.fromkeys(names, instances), {}, cluster), cluster


def counts(pipes: Pipes, placement: Placement) -> list[int]:
    return [placement.total(operator.name) for operator in pipes.load.operators]


def shown(pipes: Pipes, placement: Placement) -> Load:
    """What would be measured of a topology with these rates."""
    return flow(pipes, counts(pipes, placement))


def top(pipes: Pipes, placement: Placement, cluster: Cluster) -> float:
    return best(pipes, counts(pipes, placement), instances_a_machine(placement, cluster)).throughput


def one_draw(name: str, draw: random.Random, rules: Sequence[str] = tuple(RULES)) -> dict[str, float]:
    """The throughput after one more machine by each rule, over that of the best assignment; exact rates, one step."""
    pipes, placement, cluster = situation(name, draw)
    now, most = shown(pipes, placement), top(pipes, placement, cluster)
    found = {BEFORE: now.throughput / most}
    for rule in rules:
        by, limits = RULES[rule]
        answer = STRATEGIES[by].scale_out(now, placement, cluster, [NEW], limits)
        after = answer.placement if isinstance(answer, Decision) else placement
        found[rule] = flow(pipes, counts(pipes, after)).throughput / most
    return found


def estimated(load: Load, biased: float, noise: Sequence[float]) -> Load:
    """The load as measured with capacities that are off; what an operator executes is counted, and exact."""
    pairs = zip(load.operators, noise, strict=True)
    operators = tuple(replace(one, capacity=(one.capacity or 0.0) * biased * off) for one, off in pairs)
    return load.at(operators, load.streams)


def noisy_draw(name: str, draw: random.Random) -> list[float]:
    """The throughput of `gain` on estimates that are off, over the best: after one step, and after each correction."""
    pipes, placement, cluster = situation(name, draw)
    most = top(pipes, placement, cluster)
    biased = draw.uniform(0.75, 1.35)
    noise = [draw.uniform(0.9, 1.1) for _ in pipes.rates]
    answer = scale_out(estimated(shown(pipes, placement), biased, noise), placement, cluster, [NEW], memory=EMPTY)
    found, trials, now, memory = list[float](), list[Trial](), placement, EMPTY
    for _ in range(4):
        if isinstance(answer, Decision) and answer.memory is not None:
            now, memory = answer.placement, answer.memory
        load = shown(pipes, now)
        found.append(load.throughput / most)
        if not isinstance(answer, Decision):
            break
        trials.append(Trial.of(placement, now, load.throughput, instances_a_machine(placement, cluster)))
        answer = correct(estimated(load, biased, noise), trials, memory=memory)
    return found


def cell(ratios: Sequence[float], enough: float = 0.95) -> str:
    share = sum(one >= enough for one in ratios) / len(ratios)
    return f"{statistics.mean(ratios):.4f} ({min(ratios):.3f}; {share:.1%})"


def exact_table(draws: int) -> tuple[list[str], list[Bar]]:
    lines = [
        f"Throughput after one more machine, over the best that any assignment gives; {draws} draws a topology:",
        "mean (worst; share of draws at 0.95 or more). `stela` has its alpha of 1.2.\n",
        f"| topology | new instances | {BEFORE} | " + " | ".join(RULES) + " |",
        "| --- | --- | --- |" + " --- |" * len(RULES),
    ]
    bars = []
    for name in TOPOLOGIES:
        rows = [one_draw(name, random.Random(seed)) for seed in range(draws)]
        _, placement, cluster = situation(name, random.Random(0))
        cells = [cell([row[rule] for row in rows]) for rule in (BEFORE, *RULES)]
        lines.append(f"| {name} | {instances_a_machine(placement, cluster)} | " + " | ".join(cells) + " |")
        gain = [row["gain"] for row in rows]
        bars.append(Bar(f"{name}: gain / best, mean", statistics.mean(gain), 0.998, at_most=False))
        bars.append(Bar(f"{name}: gain / best, worst", min(gain), 0.93, at_most=False))
    return lines, bars


def noisy_table(draws: int) -> list[str]:
    lines = [
        f"\n`gain` on estimates that are off, {draws} draws a topology, over the best by the true rates: mean (worst;",
        "share at 0.95 or more).\n",
        "| topology | one step | corrected | corrections, mean |",
        "| --- | --- | --- | --- |",
    ]
    for name in TOPOLOGIES:
        rows = [noisy_draw(name, random.Random(seed)) for seed in range(draws)]
        steps = statistics.mean(len(row) - 2 for row in rows)
        lines.append(f"| {name} | {cell([row[0] for row in rows])} | {cell([row[-1] for row in rows])} | {steps:.2f} |")
    return lines


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--draws", type=int, default=200)
    draws = parser.parse_args().draws
    lines, bars = exact_table(draws)
    lines += noisy_table(draws)
    print("\n".join(lines))
    write_results("stela_fluid", lines, bars, machine())
    return finish(bars)


if __name__ == "__main__":
    sys.exit(main())
