"""Stela's scale-out on real Spark: `make bench-stela`. Each topology of the papers' table I gets one machine more, by
Stela, by Storm's default and by least link load, beside the best that any assignment could give.

    python benchmarks/stela.py [--topologies star,linear] [--rounds 3] [--quick]

One cluster a topology. Every operation starts from the same placement with nothing waiting: after one is measured, the
machine goes again, the sources pause until everything has reached the sinks, and the next one begins.
"""

from __future__ import annotations

import argparse
import runpy
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from results import RESULTS, Bar, finish, machine, write_results

from penstock import Settings, Topology
from penstock.cluster.model import Placement
from penstock.cluster.plan import Plan, RemoveMachine, diff
from penstock.cluster.standalone import StandaloneCluster
from penstock.controller import proposals
from penstock.controller.measured_load import measured_load
from penstock.controller.timeline import Timeline
from penstock.engine.changing import Changes
from penstock.engine.enact import Status
from penstock.engine.host import SparkHost
from penstock.engine.runtime import Run
from penstock.engine.state_folder import StateFolder
from penstock.strategies.scaling.best import best
from penstock.strategies.scaling.congestion import congested
from penstock.strategies.scaling.draft import most_instances
from penstock.strategies.scaling.fluid import Pipes, flow
from penstock.strategies.scaling.load import Load
from penstock.strategies.scaling.measure import Measurement, Sample, measure
from penstock.strategies.scaling.rules import Rules

EXAMPLES = Path(__file__).parents[1] / "examples"
STELA, STORM, LINK = STRATEGIES = ("stela", "storm", "least_link_load")


@dataclass(frozen=True)
class Setting:
    """Machines before, as in table I, and what the paper says of Stela over Storm's default."""

    machines: int
    paper: float


SETTINGS = {
    "star": Setting(4, 1.65),
    "linear": Setting(6, 1.45),
    "diamond": Setting(6, 2.20),
    "page_load": Setting(7, 1.80),
    "processing": Setting(8, 1.80),
    "network_monitoring": Setting(8, 1.21),
}
METHOD = """\
Topologies, instances, tasks and machines are those of the papers' table I ({machines}), each machine one slot; the
operators wait instead of working (examples/*.py, written before these runs: a load of 10 is a millisecond a row), so
two cores carry them. Sources give 25% more than the slowest operator can do, as the examples have it, and nobody
waits for a slow one (backlog_policy=spill), as in Storm. What is counted is at the sinks, over {window:g} s before
the operation and the last {window:g} s of the {after:g} s after it. "best" is the highest throughput that any
assignment of as many new instances could give, by exhaustive search with the service rates measured in the same run:
what a congested instance executes, and for the others rows per busy second. Storm's default and least link load add
no instance: they move those there are, and all waits run at once wherever they are, so they cannot gain here; in the
papers moving them to a new machine gained what its cores gave.
"""


@dataclass(frozen=True)
class Times:
    warm_up: float
    window: float
    after: float


@dataclass(frozen=True)
class Result:
    strategy: str
    measured: Measurement
    #: What the fluid model gives for this assignment, and for the best one.
    predicted: float
    best: float
    instances: int
    timeline: tuple[Sample, ...]
    began: float


Say = Callable[[str], None]


def topology_of(name: str) -> Topology:
    found = runpy.run_path(str(EXAMPLES / f"{name}.py"))["topology"]
    assert isinstance(found, Topology)
    return found


def service_rates(load: Load, instances: Sequence[int], rules: Rules) -> list[float]:
    """Rows a second of one instance: what it does while it has too much to do, or else what it could do."""
    full = congested(load, rules)
    return [
        (one.processing if full[place] or one.capacity is None else one.capacity) / instances[place]
        for place, one in enumerate(load.operators)
    ]


class Experiment:
    """One topology on one cluster."""

    def __init__(self, run: Run, times: Times, say: Say) -> None:
        self._run = run
        self._times = times
        self._say = say
        self._changes = Changes(run)
        self._timeline = Timeline({sink.name: sink.weight for sink in run.definition.sinks})
        run.listen(lambda report: self._timeline.add(report.operator, report.finished, report.rows_in))
        self._initial = run.placement
        self._rules = Rules(run.settings.stela_alpha, run.settings.slot_instances)

    def one(self, strategy: str) -> Result:
        run, times = self._run, self._times
        run.resume()
        self._rest(times.warm_up)
        run.monitor.restart(time.time())
        self._rest(times.window + run.settings.sample_seconds)
        snapshot = run.snapshot()
        load = measured_load(snapshot)
        new = run.host.provider.upcoming(1)
        proposal = proposals.scale_out(snapshot, new, strategy, self._rules)
        began = time.time()
        outcome = self._changes.carry_out(proposal.plan)
        if outcome.status is not Status.DONE:
            raise RuntimeError(f"{strategy}: {outcome.status}: {outcome.reason}")
        self._rest(times.after)
        samples = self._timeline.samples(began - times.window, time.time())
        found = self._judge(strategy, load, run.placement, samples, began)
        self._say(
            f"{strategy}: {found.measured.before:,.0f} -> {found.measured.after:,.0f} rows/s, best {found.best:,.0f}, "
            f"in {outcome.seconds:.0f} s; {[str(step) for step in outcome.plan.actions]}"
        )
        self._restore([machine.name for machine in new])
        return found

    def _judge(self, strategy: str, load: Load, after: Placement, samples: Sequence[Sample], began: float) -> Result:
        names = [operator.name for operator in load.operators]
        before = [self._initial.total(name) for name in names]
        now = [after.total(name) for name in names]
        pipes = Pipes.of(load, service_rates(load, before, self._rules))
        added = sum(now) - sum(before)
        reference = best(pipes, before, added or self._wanted(), most_instances(load, self._initial))
        measured = measure(samples, began, self._times.window)
        throughput = flow(pipes, now).throughput
        return Result(strategy, measured, throughput, reference.throughput, added, tuple(samples), began)

    def _wanted(self) -> int:
        total = sum(self._initial.total(name) for name in self._initial.instances)
        return max(1, total // (len(self._run.host.cluster.machines) - 1))

    def _restore(self, machines: Sequence[str]) -> None:
        run = self._run
        run.pause()
        plan = Plan((*diff(run.placement, self._initial), *(RemoveMachine(name) for name in machines)), "once more")
        outcome = self._changes.carry_out(plan)
        if outcome.status is not Status.DONE:
            raise RuntimeError(f"it could not be undone: {outcome.reason}")
        deadline = time.monotonic() + 300
        while any(run.backlog(one.name) for one in run.definition.operators if one.kind != "source"):
            self._rest(0.5)
            if time.monotonic() > deadline:
                raise RuntimeError("what waits was not worked off")

    def _rest(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self._run.check()
            time.sleep(min(0.2, max(end - time.monotonic(), 0.0)))


def try_topology(name: str, rounds: int, times: Times, folder: Path, say: Say) -> list[Result]:
    setting, definition = SETTINGS[name], topology_of(name).definition()
    settings = Settings(
        backlog_policy="spill",
        batch_interval=1.0,
        batch_linger=0.5,
        sample_seconds=2.0,
        window_samples=max(2, int(times.window / 2)),
        cluster_timeout=600,
        change_seconds=300,
    )
    threads = len(definition.operators)
    provider = StandaloneCluster(setting.machines, 1, 1, threads, folder / "cluster", executor_memory_mb=512)
    state = StateFolder.hold(str(folder / "state"))
    found = []
    try:
        say(f"starting {setting.machines} machines")
        host = SparkHost(name, provider, settings, folder / "logs", [str(EXAMPLES)])
        with host, Run(definition, host, state, settings) as run:
            experiment = Experiment(run, times, say)
            for index in range(rounds):
                turn = index % len(STRATEGIES)
                found += [experiment.one(strategy) for strategy in (*STRATEGIES[turn:], *STRATEGIES[:turn])]
            run.stop(drain=False)
    finally:
        state.release()
    return found


def plot(name: str, results: Sequence[Result]) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(9, 4))
    for strategy in STRATEGIES:
        first = next(one for one in results if one.strategy == strategy)
        times = [sample.at - first.began for sample in first.timeline]
        axes.plot(times, [sample.throughput for sample in first.timeline], label=strategy)
    axes.axvline(0, color="grey", linestyle="--", label="operation begins")
    axes.set(xlabel="s", ylabel="rows/s at the sinks", title=f"{name}: one machine more (first round)", ylim=(0, None))
    axes.legend()
    figure.tight_layout()
    RESULTS.mkdir(exist_ok=True)
    figure.savefig(RESULTS / f"stela_{name}.png", dpi=100)
    pyplot.close(figure)


def table(name: str, results: Sequence[Result], say: Say) -> list[Bar]:
    by = {strategy: [one for one in results if one.strategy == strategy] for strategy in STRATEGIES}

    def middle(strategy: str, get: Callable[[Result], float | None]) -> float:
        values = [value for one in by[strategy] if (value := get(one)) is not None]
        return statistics.median(values) if values else float("nan")

    say(f"### {name}: {SETTINGS[name].machines} machines, one more\n")
    say(
        "| strategy | before, rows/s | after, rows/s (from - to) | gain | new instances | predicted | best "
        "| converged, s (paper / thesis / settled) | s at zero | s below 90% |"
    )
    say("| --- |" + " --- |" * 9)
    for strategy, all_of_it in by.items():
        after = sorted(one.measured.after for one in all_of_it)
        gains = middle(strategy, lambda one: one.measured.after / one.measured.before - 1)
        converged = " / ".join(
            f"{middle(strategy, get):.0f}"
            for get in (
                lambda one: one.measured.convergence,
                lambda one: one.measured.convergence_sigma,
                lambda one: one.measured.settled,
            )
        )
        say(
            f"| {strategy} | {middle(strategy, lambda one: one.measured.before):,.0f} "
            f"| {statistics.median(after):,.0f} ({after[0]:,.0f} - {after[-1]:,.0f}) | {gains:+.0%} "
            f"| {all_of_it[0].instances} | {middle(strategy, lambda one: one.predicted):,.0f} "
            f"| {middle(strategy, lambda one: one.best):,.0f} | {converged} "
            f"| {middle(strategy, lambda one: one.measured.time_at_zero):.0f} "
            f"| {middle(strategy, lambda one: one.measured.time_below):.0f} |"
        )
    say(f"\n![throughput](stela_{name}.png)\n")
    stela, storm, link = (middle(strategy, lambda one: one.measured.after) for strategy in STRATEGIES)
    reference = middle(STELA, lambda one: one.best)
    paper = SETTINGS[name].paper
    return [
        Bar(f"{name}: Stela after / best of any assignment", stela / reference, 0.9, at_most=False),
        Bar(f"{name}: Stela / Storm's default after (paper: {paper:.2f})", stela / storm, 1.0, at_most=False),
        Bar(f"{name}: Stela / least link load after", stela / link, 1.0, at_most=False),
        Bar(
            f"{name}: convergence of Stela / of Storm's default",
            middle(STELA, lambda one: one.measured.convergence) / middle(STORM, lambda one: one.measured.convergence),
            1.0,
            at_most=True,
        ),
        Bar(f"{name}: s at zero throughput", middle(STELA, lambda one: one.measured.time_at_zero), 0, at_most=True),
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--topologies", default=",".join(SETTINGS))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="short times, and not written to results")
    options = parser.parse_args()
    names = options.topologies.split(",")
    times = Times(10, 10, 20) if options.quick else Times(20, 30, 60)
    began = time.monotonic()
    lines: list[str] = []
    bars: list[Bar] = []

    def say(text: str) -> None:
        print(text, flush=True)
        lines.append(text)

    sizes = ", ".join(f"{name} {SETTINGS[name].machines}" for name in names)
    say(METHOD.format(machines=sizes, window=times.window, after=times.after))
    with tempfile.TemporaryDirectory(prefix="penstock-stela-", ignore_cleanup_errors=True) as folder:
        for name in names:

            def tell(text: str, name: str = name) -> None:
                print(f"{time.monotonic() - began:6.0f} s  {name}: {text}", file=sys.stderr, flush=True)

            results = try_topology(name, options.rounds, times, Path(folder) / name, tell)
            plot(name, results)
            bars += table(name, results, say)
    if not options.quick:
        write_results("stela", lines, bars, machine())
    return finish(bars)


if __name__ == "__main__":
    sys.exit(main())
