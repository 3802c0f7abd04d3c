"""What the experiments of benchmarks/stela.py on lab machines should measure where operators work, by a model: rows
flow, and on each machine the operators that have rows share its cores evenly. No Spark, no lab, half a minute.

    python benchmarks/stela_cores.py

The strategies decide on the rates of the model, as they do on measured ones. What a batch costs beside its rows is not
in it.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace

from stela_lab import STRATEGIES as COMPARED
from stela_operations import GONE, MACHINES_IN, RANDOM_GROUPS, STELA, STORM, occupied_by_few, scale_in_cores
from stela_operations import scale_in_definition as given_in
from stela_topologies import LAB_TOPOLOGIES, Built, Experiment, built, experiment_built, given_rate
from stela_work import Calibration

from penstock.autoscaler.strategies import STRATEGIES
from penstock.cluster.model import Cluster, Placement
from penstock.settings import Settings
from penstock.strategies.decision import Decision, StrategyAnswer
from penstock.strategies.load import Load, OperatorLoad, StreamLoad
from penstock.strategies.mapping.round_robin import round_robin
from penstock.strategies.rules import Rules
from penstock.topology.definition import Sink, Source

#: Seconds of a step, and of the model's time: the second half counts.
STEP, SECONDS = 0.05, 60.0
#: What some operators leave of a machine's cores in a step, others take, so often.
SHARINGS = 6
#: The model counts seconds of a core: how many rounds of the loop these are does not matter to it.
CALIBRATION = Calibration(1.0)
RULES = Rules.of(Settings())


@dataclass(frozen=True)
class Flow:
    """The state that the model comes to."""

    #: By operator: rows a second that it does.
    rates: Mapping[str, float]
    #: By producer and consumer: rows for each row that the producer does.
    emitted: Mapping[tuple[str, str], float]
    #: Rows a second at all sinks together, weighted.
    throughput: float


def flow(found: Built, placement: Placement, cores: float, seconds: float = SECONDS) -> Flow:
    """`cores` is what every machine has."""
    definition, steps = found.definition, int(seconds / STEP)
    sources = {one.name: found.rows[one.name] * given_rate(definition) * STEP for one in definition.sources}
    workers = [one.name for one in definition.operators if not isinstance(one, Source)]
    machines = {name: {slot.machine for slot in placement.of(name)} for name in workers}
    emitted = _emitted(found)
    waiting, done = dict.fromkeys(workers, 0.0), dict.fromkeys(found.rows, 0.0)
    for step in range(steps):
        if step == steps // 2:
            done = dict.fromkeys(found.rows, 0.0)
        rows = sources | _worked(waiting, found.seconds, machines, cores * STEP)
        for name, count in rows.items():
            done[name] += count
            if name in waiting:
                waiting[name] -= count
        for (producer, consumer), share in emitted.items():
            waiting[consumer] += rows[producer] * share
    counted = (steps - steps // 2) * STEP
    rates = {name: count / counted for name, count in done.items()}
    return Flow(rates, emitted, sum(rates[sink.name] * sink.weight for sink in definition.sinks))


def _emitted(found: Built) -> dict[tuple[str, str], float]:
    """All inputs of an operator give it the same rows for each of theirs."""
    shares = {}
    for operator in found.definition.operators:
        producers = [stream.producer for stream in found.definition.inputs_of(operator.name)]
        total = sum(found.rows[one] for one in producers)
        shares |= {(one, operator.name): found.rows[operator.name] / total for one in producers}
    return shares


def _worked(
    waiting: Mapping[str, float], seconds: Mapping[str, float], machines: Mapping[str, set[str]], most: float
) -> dict[str, float]:
    """Rows that each operator does in a step, in which every machine has so many seconds of a core."""
    needs = {name: rows * seconds[name] for name, rows in waiting.items()}
    left = {machine: most for held in machines.values() for machine in held}
    used = dict.fromkeys(waiting, 0.0)
    for _ in range(SHARINGS):
        busy = {one: [name for name, need in needs.items() if need > 0 and one in machines[name]] for one in left}
        # What is left may be below 0 by a hair, as sums of floating-point numbers are.
        offered = {one: max(time, 0.0) / max(len(busy[one]), 1) for one, time in left.items()}
        for name, need in needs.items():
            mine = sum(offered[one] for one in machines[name]) if need > 0 else 0.0
            # A bundle asks for rows when it has none, so machines that are faster get more of them.
            part = min(1.0, need / mine) if mine else 0.0
            for one in machines[name]:
                left[one] -= part * offered[one] if name in busy[one] else 0.0
            needs[name] -= part * mine
            used[name] += part * mine
    return {name: time / seconds[name] for name, time in used.items()}


def load_of(found: Built, seen: Flow) -> Load:
    """What a strategy would be told."""
    operators = [
        OperatorLoad(
            one.name,
            seen.rates[one.name],
            external=seen.rates[one.name] if isinstance(one, Source) else None,
            weight=one.weight if isinstance(one, Sink) else 1.0,
        )
        for one in found.definition.operators
    ]
    streams = [StreamLoad(*ends, seen.rates[ends[0]] * share) for ends, share in seen.emitted.items()]
    return Load(tuple(operators), tuple(streams))


def scaled_out(experiment: Experiment) -> dict[str, float]:
    """The throughput before, and after one machine more by each strategy."""
    found = experiment_built(experiment, CALIBRATION)
    whole = Cluster.of([f"10.77.0.{2 + index}" for index in range(experiment.machines + 1)], 1)
    cluster, new = Cluster(whole.machines[: experiment.machines]), whole.machines[experiment.machines :]
    initial = round_robin(found.definition, cluster)
    before = flow(found, initial, experiment.cores)
    load, after = load_of(found, before), {"before": before.throughput}
    for name in COMPARED:
        answer = STRATEGIES[name].scale_out(load, initial, cluster, new, RULES)
        after[name] = flow(found, _placed(answer, initial), experiment.cores).throughput
    return after


def scaled_in() -> dict[str, float]:
    """The throughput before, and after four of eight machines have gone."""
    found = replace(built("page_load", CALIBRATION), definition=given_in(CALIBRATION))
    cluster = Cluster.of([f"10.77.0.{2 + index}" for index in range(MACHINES_IN)], 1)
    initial = occupied_by_few(found.definition, cluster)
    before = flow(found, initial, scale_in_cores())
    load, after = load_of(found, before), {"before": before.throughput}
    for seed, name in enumerate((STELA, *RANDOM_GROUPS)):
        chosen = STRATEGIES[STELA if name == STELA else STORM]
        answer = chosen.scale_in(load, initial, cluster, GONE, replace(RULES, seed=seed))
        after[name] = flow(found, _placed(answer, initial), scale_in_cores()).throughput
    return after


def _placed(answer: StrategyAnswer, initial: Placement) -> Placement:
    return answer.placement if isinstance(answer, Decision) else initial


def main() -> int:
    for name, experiment in LAB_TOPOLOGIES.items():
        if experiment.works:
            found = scaled_out(experiment)
            rows = ", ".join(f"{which} {rate:.0f}" for which, rate in found.items())
            print(f"{name}: {rows} rows/s; Stela / Storm {found[STELA] / found[STORM]:.2f} ({experiment.paper:.2f})")
    found = scaled_in()
    print(f"lab_scale_in: {', '.join(f'{which} {rate:.1f}' for which, rate in found.items())} rows/s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
