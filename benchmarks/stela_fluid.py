"""How near Stela's choice comes to the best one, in the fluid model: the papers' topologies, service rates at random.

No Spark and no bar: it shows what to expect of a rule before it is run, and which figure is the rule's and which the
machine's. Rates are 50 to 200 rows a second an instance, the sources are offered 1 to 3 times what an average operator
can do; streams, instances and machines are the papers' (table I). A baseline that moves instances without adding any
leaves the throughput of this model where it was: that is the column "before".

    python benchmarks/stela_fluid.py [--draws 200]
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys

from best import best
from results import machine, write_results

from penstock.cluster.model import Cluster, Machine, Slot
from penstock.strategies.decision import Decision
from penstock.strategies.fluid import Pipes, flow
from penstock.strategies.load import Load, OperatorLoad, StreamLoad
from penstock.strategies.mapping.round_robin import deal
from penstock.strategies.registry import STRATEGIES
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
    "stela, alpha 1.2": ("stela", Rules()),
    "stela, alpha 1.02": ("stela", Rules(alpha=1.02)),
    "stela_capacity, alpha 1.2": ("stela_capacity", Rules(capacity_alpha=1.2)),
    "stela_capacity, alpha 1.02": ("stela_capacity", Rules(capacity_alpha=1.02)),
}


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


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--draws", type=int, default=200)
    draws = parser.parse_args().draws
    lines = [
        f"Throughput after one more machine, over the best that any assignment gives; {draws} draws a topology:",
        "mean (worst; share of draws at 0.9 or more).\n",
        "| topology | new instances | before | " + " | ".join(RULES) + " |",
        "| --- | --- | --- |" + " --- |" * len(RULES),
    ]
    for name, (streams, instances, machines) in TOPOLOGIES.items():
        cluster = Cluster.of([f"m{index}" for index in range(machines)], 4)
        new = [Machine("new", tuple(Slot("new", index) for index in range(4)))]
        found: dict[str, list[float]] = {rule: [] for rule in ("before", *RULES)}
        count = 0
        for seed in range(draws):
            pipes = drawn(streams, instances, random.Random(seed))
            names = [operator.name for operator in pipes.load.operators]
            placement = deal(dict.fromkeys(names, instances), {}, cluster)
            count = instances_a_machine(placement, cluster)
            start = [instances] * len(names)
            now, top = flow(pipes, start), best(pipes, start, count).throughput
            found["before"].append(now.throughput / top)
            for rule, (by, rules) in RULES.items():
                outcome = STRATEGIES[by].scale_out(now, placement, cluster, new, rules)
                assert isinstance(outcome, Decision)
                after = flow(pipes, [outcome.placement.total(one) for one in names])
                found[rule].append(after.throughput / top)
        cells = [
            f"{statistics.mean(ratios):.2f} ({min(ratios):.2f}; {sum(one >= 0.9 for one in ratios) / draws:.0%})"
            for ratios in found.values()
        ]
        lines.append(f"| {name} | {count} | " + " | ".join(cells) + " |")
    print("\n".join(lines))
    write_results("stela_fluid", lines, [], machine())
    return 0


if __name__ == "__main__":
    sys.exit(main())
