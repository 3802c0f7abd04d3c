"""One scaling operation on a running topology, measured: what benchmarks/stela.py does again and again."""

from __future__ import annotations

import math
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace

from best import best
from stela_oracle import ORACLE, service

from penstock.autoscaler.answers import expected_of
from penstock.autoscaler.measured_load import measured_load
from penstock.autoscaler.policy import View
from penstock.autoscaler.throughput_change import ThroughputChange, ThroughputPoint, throughput_change
from penstock.autoscaler.timeline import Timeline
from penstock.clock import run_time
from penstock.cluster.model import Cluster, Placement
from penstock.engine.spark.host import SparkHost
from penstock.engine.state.folder import StateFolder
from penstock.engine.topology import SparkTopology
from penstock.errors import PenstockError
from penstock.monitor.snapshot import Snapshot
from penstock.plans.enacting import Status
from penstock.plans.plan import Plan, diff
from penstock.settings import Settings
from penstock.strategies.decision import Decision, DoesNotFit, StrategyAnswer
from penstock.strategies.draft import most_instances
from penstock.strategies.fluid import flow
from penstock.strategies.gain.correction import MOST, Trial, correct
from penstock.strategies.gain.scale_out import NAME as GAIN
from penstock.strategies.load import Load
from penstock.strategies.memory import EMPTY
from penstock.strategies.rules import Rules
from penstock.strategies.stela.congestion import congested
from penstock.topology.definition import TopologyDefinition

SETTINGS = Settings(
    backlog_policy="spill", latency_spark=0.5, sample_seconds=2.0, cluster_timeout=600, change_seconds=120
)
#: All operators of these topologies stand: a piece costs milliseconds beside its rows, however many operators there
#: are. It was 0.3 s for each operator while every batch cost a core some 0.35 s.
INTERVAL = 1.0
#: On machines with a share of a core batches still are that long.
INTERVAL_FOR_EACH, LEAST_INTERVAL = 0.3, 2.0
#: Seconds until batches have the size that they keep. On machines with a share of a core the first ones take longer: a
#: batch of 500 rows takes one of them several seconds.
SETTLED, SETTLED_IN_LAB = 5.0, 20.0
#: Sources that give a batch every 25 ms would use up half of a fifth of a core: in a lab what a batch costs counts.
LAB_LATENCY = 2.0
#: Seconds of the run that does not count.
WARM_UP = 60.0
#: Seconds that are measured before an operation, and after it.
WINDOW = 15.0
#: What piled up before an operation is worked off after it, and meanwhile more arrives at the sinks than comes in. That
#: is waited for so long, with a look every few seconds.
DRAIN_SECONDS, DRAIN_LOOK = 120.0, 5.0
#: An operator works off what piled up if so much of it waits, in seconds of its work, and it does so much more than
#: comes in.
PILED_UP, FASTER_THAN_INPUT = 1.0, 0.03
#: So many intervals before the end of a timeline all batches that began before had ended.
UNDER_WAY = 1.5
#: Seconds in which a snapshot that is not complete may become so.
TRIES = 20
Decide = Callable[[Load, Placement, Rules], StrategyAnswer]


@dataclass(frozen=True)
class Times:
    interval: float
    warm_up: float
    window: float
    after: float
    #: What batches aim at where nothing is congested.
    latency: float = SETTINGS.latency

    @staticmethod
    def of(definition: TopologyDefinition, window: float = WINDOW, is_lab: bool = False) -> Times:
        """Before and after, the measured time begins when what came in first has left: a batch and a quarter
        an operator on the longest way. After, what piled up before may take longer (`drained`)."""
        interval = max(LEAST_INTERVAL, INTERVAL_FOR_EACH * len(definition.operators)) if is_lab else INTERVAL
        through = 1.25 * interval * _depth(definition)
        settled = through + (SETTLED_IN_LAB if is_lab else SETTLED)
        latency = LAB_LATENCY if is_lab else SETTINGS.latency
        return Times(interval, settled, window, window + settled, latency)


def _depth(definition: TopologyDefinition) -> int:
    """Operators on the longest way from a source to a sink."""
    longest: dict[str, int] = {}
    for operator in definition.operators:
        before = [longest[stream.producer] for stream in definition.inputs_of(operator.name)]
        longest[operator.name] = 1 + max(before, default=0)
    return max(longest.values())


@dataclass(frozen=True)
class Result:
    measured: ThroughputChange
    #: The strategy's own projection of this assignment, or what the fluid model gives for it where the strategy has
    #: none; and what the model gives for the best one of as many new instances.
    predicted: float
    best: float
    #: Operators that got a new instance, once for each.
    new: tuple[str, ...]
    removed: tuple[str, ...]
    #: Share of the time in which a congested instance worked: the rest is what micro-batches cost.
    duty: float
    seconds: float
    timeline: tuple[ThroughputPoint, ...]
    began: float
    #: How often the strategy corrected itself after it had measured its own operation.
    corrections: int = 0
    #: What `penstock decisions` would show as the expected throughput of this assignment, by the snapshot before the
    #: operation; None if capacities were not known, and in records that were kept before it was measured.
    expected: float | None = None


def one_operation(
    definition: TopologyDefinition,
    host: SparkHost,
    initial: Placement,
    decide: Decide,
    times: Times,
    wanted: int,
    corrects: bool = False,
) -> Result:
    """Start the topology as `initial` has it, decide on what was measured, carry it out live, and measure that too.

    `wanted` new instances are what the best assignment may give, where the strategy gives none. A strategy that
    `corrects` itself (`gain`) may move the new instances once what they brought was measured.
    """
    with started(definition, host, initial, times) as run:
        return _Operation(run, initial, times, wanted).carry_out(decide, corrects)


@contextmanager
def started(
    definition: TopologyDefinition, host: SparkHost, initial: Placement, times: Times
) -> Iterator[SparkTopology]:
    """A run of its own, from this placement, with nothing waiting. It is stopped at the end."""
    settings = replace(
        SETTINGS,
        latency=times.latency,
        latency_under_load=times.interval,
        latency_with_backlog=times.interval,
        window_samples=max(2, int(times.window / SETTINGS.sample_seconds)),
    )
    with tempfile.TemporaryDirectory(prefix="penstock-stela-run-", ignore_cleanup_errors=True) as folder:
        state = StateFolder.hold(f"{folder}/state")
        try:
            with SparkTopology(definition, host, state, settings, initial) as run:
                yield run
                run.stop(drain=False)
        finally:
            state.release()


def warm_up(definition: TopologyDefinition, host: SparkHost, initial: Placement, times: Times) -> None:
    """A run that does not count: JVMs of machines that have just come compile what the others have compiled."""
    with started(definition, host, initial, times) as run:
        _rest(run, WARM_UP)


def task_threads(definition: TopologyDefinition) -> int:
    """Of an executor, as `penstock run` has them: the bundles of a new turn stand before those of the last one leave.
    With one for each operator an operation waits 15 s for bundles that cannot come."""
    return 2 * len(definition.operators)


def measured_window(run: SparkTopology, times: Times, warm_up: float | None = None) -> tuple[Snapshot, Load]:
    """What is measured over one window, once what came in first has left."""
    _rest(run, times.warm_up if warm_up is None else warm_up)
    run.monitor.restart(run_time())
    _rest(run, times.window + run.settings.sample_seconds)
    snapshot = _complete_snapshot(run)
    return snapshot, measured_load(snapshot, on_demand=True)


def drained(run: SparkTopology) -> None:
    """Wait until nobody works off what piled up before; not for operators to which more comes than they can do."""
    before = run.snapshot()
    for _ in range(math.ceil(DRAIN_SECONDS / DRAIN_LOOK)):
        _rest(run, DRAIN_LOOK)
        now = run.snapshot()
        if not works_off(before, now, DRAIN_LOOK):
            return
        before = now


def works_off(before: Snapshot, now: Snapshot, seconds: float) -> list[str]:
    """The operators that worked off rows of which much waits in front of them, between two looks."""
    found = []
    for name, one in now.operators.items():
        waited, waits, rate = before.operators[name].backlog.rows, one.backlog.rows, one.rate or 0.0
        if not waited or waits is None or waited < PILED_UP * rate:
            continue
        if waited - waits > FASTER_THAN_INPUT * rate * seconds:
            found.append(name)
    return found


def _complete_snapshot(run: SparkTopology) -> Snapshot:
    """An operator may just have a batch under way that takes long: it is measured a little later."""
    for _ in range(TRIES):
        with suppress(PenstockError):
            measured_load(found := run.snapshot(), on_demand=True)
            return found
        _rest(run, 1)
    return run.snapshot()


def _rest(run: SparkTopology, seconds: float) -> None:
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        run.check()
        time.sleep(min(0.2, left))


class _Operation:
    def __init__(self, run: SparkTopology, initial: Placement, times: Times, wanted: int) -> None:
        self.run = run
        self.initial = initial
        self.times = times
        self.wanted = wanted
        self.rules = Rules.of(run.settings)
        self.timeline = Timeline({sink.name: sink.weight for sink in run.definition.sinks}, math.inf)
        run.listen(lambda report: self.timeline.add(report.operator, report.finished, report.rows_in))

    def carry_out(self, decide: Decide, corrects: bool) -> Result:
        run, times = self.run, self.times
        snapshot, load = measured_window(run, times)
        decision = self._decided(decide(load, self.initial, self.rules))
        began = time.time()
        seconds = self._enact(self.initial, decision)
        corrections = 0
        if corrects:
            decision, corrections = self._corrected(decision, began)
        else:
            self._settle(began)
            _rest(run, times.window + UNDER_WAY * times.interval)
        samples = self.timeline.points(began - times.window, time.time())
        return replace(self._judge(snapshot, load, decision, seconds, samples, began), corrections=corrections)

    def _decided(self, answer: StrategyAnswer) -> Decision:
        """A strategy that finds nothing to do is measured too: everything stays as it is."""
        if isinstance(answer, DoesNotFit):
            raise RuntimeError(f"{answer.strategy}: {answer.reason}")
        return answer if isinstance(answer, Decision) else Decision(answer.strategy, self.initial, (), answer.reason)

    def _enact(self, before: Placement, decision: Decision) -> float:
        outcome = self.run.changes.carry_out(Plan(diff(before, decision.placement), decision.reason))
        if outcome.status not in (Status.DONE, Status.NOTHING):
            raise RuntimeError(f"{decision.strategy}: {outcome.status}: {outcome.reason}")
        return outcome.seconds

    def _settle(self, changed: float) -> None:
        """Until what is measured is what the new placement gives."""
        _rest(self.run, changed + self.times.after - self.times.window - time.time())
        drained(self.run)

    def _corrected(self, decision: Decision, began: float) -> tuple[Decision, int]:
        """The placement that is kept in the end, and how many corrections led to it. Each is measured as the operation
        itself is, from when what was on its way has left."""
        trials: list[Trial] = []
        changed = began
        while True:
            self._settle(changed)
            _, load = measured_window(self.run, self.times, warm_up=0.0)
            samples = self.timeline.points(began - self.times.window, time.time())
            after = measured_of(samples, began, self.times).after
            trials.append(Trial.of(self.initial, decision.placement, after, self.wanted))
            answer = correct(load, trials, self.rules, decision.memory or EMPTY)
            if not isinstance(answer, Decision) or len(trials) > MOST + 1:
                return decision, len(trials) - 1
            changed = time.time()
            self._enact(decision.placement, answer)
            decision = answer

    def _judge(
        self,
        snapshot: Snapshot,
        load: Load,
        decision: Decision,
        seconds: float,
        samples: Sequence[ThroughputPoint],
        began: float,
    ) -> Result:
        names = [operator.name for operator in load.operators]
        before = [self.initial.total(name) for name in names]
        now = [decision.placement.total(name) for name in names]
        pipes = service(load, self.initial)
        added = sum(now) - sum(before)
        reference = best(pipes, before, added or self.wanted, most_instances(load, self.initial))
        return Result(
            measured=measured_of(samples, began, self.times),
            predicted=projection_of(decision, flow(pipes, now).throughput),
            best=reference.throughput,
            new=tuple(
                name for name, old, new in zip(names, before, now, strict=True) for _ in range(max(new - old, 0))
            ),
            removed=decision.removed,
            duty=duty_of(snapshot, load, self.rules),
            seconds=seconds,
            timeline=tuple(samples),
            began=began,
            expected=expectation_of(snapshot, load, self.run.settings, decision),
        )


def measured_of(timeline: Sequence[ThroughputPoint], began: float, times: Times) -> ThroughputChange:
    """Without the end of the timeline, in which batches may still have been under way."""
    end = timeline[-1].at - UNDER_WAY * times.interval
    return throughput_change([sample for sample in timeline if sample.at <= end], began, times.window)


def expectation_of(snapshot: Snapshot, load: Load, settings: Settings, decision: Decision) -> float | None:
    """What a controller would predict of the decision's placement, by the same rule: verdicts are made on that. Where
    capacities are not known, that is the strategy's projection; None if it has none."""
    found = expected_of(View(snapshot, load, settings), decision.placement)
    if found is not None:
        return found.throughput
    return None if decision.projected is None else decision.projected.throughput


def projection_of(decision: Decision, modelled: float) -> float:
    """What a strategy projects by itself, where it predicts with the fluid model; else what the model gives."""
    if decision.strategy in (GAIN, ORACLE) and decision.projected is not None:
        return decision.projected.throughput
    return modelled


def congested_operators(load: Load, rules: Rules) -> list[str]:
    return [one.name for one, is_full in zip(load.operators, congested(load, rules), strict=True) if is_full]


def duty_of(snapshot: Snapshot, load: Load, rules: Rules) -> float:
    """The share of the time in which a congested instance worked; not a number if none was congested."""
    worked = [snapshot.operators[name].utilisation for name in congested_operators(load, rules)]
    shares = [share for share in worked if share is not None]
    return statistics.median(shares) if shares else float("nan")


def first_machines(cluster: Cluster, count: int) -> Cluster:
    return Cluster(cluster.machines[:count])
