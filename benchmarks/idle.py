"""What a large topology costs while nothing flows: 100 operators, each a query of its own, on two machines.

python benchmarks/idle.py [--rounds 1] [--minutes 5] [--pipelines 10] [--operators 10]
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pyarrow as pa
from results import Bar, finish, machine, named, write_results

from penstock import Settings, Topology, sinks, sources
from penstock.cli.run_display import display_of
from penstock.clock import run_time
from penstock.cluster.choice import ClusterChoice
from penstock.engine.launching import launch
from penstock.engine.topology import SparkTopology

METHOD = """\
{pipelines} pipelines of {operators} operators (a rate source, maps, a sink that counts), each operator a query of its
own (chaining=off), on a standalone cluster of two machines. Every source emits {pulse} rows, one a second, then nothing
for {idle:.0f} s, then one a second again. All operators run if every sink got all rows of the first pulse before the
idle time, and rows of the second one after it, and no operator had failed meanwhile. Driver work is the processor time
of the driver's Python process and of its JVM, read every {step:g} s of the idle time; a core is 1. Everything else at
its default: monitoring, statistics store, sweeps, mending, and what the command line looks at four times a second.
"""
#: Rows of the first pulse, one a second.
PULSE = 20
#: Seconds after the last row of the pulse until everything counts as idle.
SETTLE = 20.0
STEP = 10.0
#: The longest that 100 queries may take to work off a pulse on few cores.
PATIENCE = 600.0
#: What the bars are for.
OPERATORS, MINUTES = 100, 5.0
#: As often as the command line looks at a run.
LOOK = 0.25


@dataclass(frozen=True)
class Shape:
    pipelines: int
    operators: int
    idle: float

    @property
    def total(self) -> int:
        return self.pipelines * self.operators


@dataclass
class Seen:
    """What was measured, also of a topology that has failed."""

    #: Cores of driver Python, driver JVM and everything else by step.
    steps: list[list[float]] = field(default_factory=list)
    #: Of the driver's JVM at the end, MB.
    memory: float = 0.0
    #: Whether every sink got rows again after the idle time.
    ran_on: bool = False
    problem: str = ""


def same(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch


def topology(shape: Shape, quiet_until: float) -> Topology:
    made = Topology("idle")
    schedule = sources.stepped([(PULSE, 1.0), (quiet_until - PULSE, 0.0), (1.0, 1.0)])
    for pipeline in range(shape.pipelines):
        stream = made.source(f"source_{pipeline}", sources.rate(schedule))
        for number in range(shape.operators - 2):
            stream = made.map(f"map_{pipeline}_{number}", same, inputs=[stream], schema="id long, value double")
        made.sink(f"sink_{pipeline}", sinks.noop(), inputs=[stream])
    return made


class Driver:
    """The processor time of this process and of its JVM."""

    def __init__(self, run: SparkTopology) -> None:
        self._python = psutil.Process()
        self._java = psutil.Process(run.host.spark.sparkContext._gateway.proc.pid)
        #: What stands beside the driver: master, workers, executors and their Python workers.
        self._others = [one for one in self._python.children(recursive=True) if one.pid != self._java.pid]

    def seconds(self) -> tuple[float, float, float]:
        return _seconds(self._python), _seconds(self._java), sum(map(_seconds, self._others))


def _seconds(process: psutil.Process) -> float:
    try:
        spent = process.cpu_times()
    except psutil.NoSuchProcess:
        return 0.0
    return float(spent.user + spent.system)


def arrived(run: SparkTopology) -> list[int]:
    return [run.statistics.totals(sink.name)[0] for sink in run.definition.sinks]


def look(run: SparkTopology, until: Callable[[], bool], seconds: float) -> bool:
    """As the command line does: whether it fails, whether it has ended; True if what is awaited came in time."""
    end = time.monotonic() + seconds
    while not until():
        run.check()
        if run.finished:
            raise RuntimeError("the topology has ended by itself")
        display_of(run, "standalone", None)
        if time.monotonic() > end:
            return False
        time.sleep(LOOK)
    return True


def measure(run: SparkTopology, shape: Shape, quiet_from: float) -> tuple[list[list[float]], float]:
    """Cores of driver Python, driver JVM and everything else by step; and the memory of the driver's JVM at the end."""
    if not look(run, lambda: min(arrived(run)) >= PULSE, PATIENCE):
        raise RuntimeError(f"after {PATIENCE:.0f} s the sinks had {arrived(run)} of {PULSE} rows")
    print(f"all {shape.total} operators run, after {run_time() - run.started_at:.0f} s", file=sys.stderr, flush=True)
    look(run, lambda: run_time() - run.started_at >= quiet_from, PATIENCE)
    driver, steps = Driver(run), []
    before, at, end = driver.seconds(), time.monotonic(), time.monotonic() + shape.idle
    while time.monotonic() < end:
        look(run, lambda: False, min(STEP, end - time.monotonic()))
        now, then = driver.seconds(), time.monotonic()
        steps.append([(b - a) / (then - at) for a, b in zip(before, now, strict=True)])
        before, at = now, then
        print("cores: " + ", ".join(f"{one:.2f}" for one in steps[-1]), file=sys.stderr, flush=True)
    if set(arrived(run)) != {PULSE}:
        raise RuntimeError(f"rows came in the idle time: {arrived(run)}")
    return steps, driver._java.memory_info().rss / 1e6


def watch(shape: Shape, quiet_from: float) -> Seen:
    quiet_until = quiet_from + shape.idle + SETTLE
    seen = Seen()
    try:
        with (
            tempfile.TemporaryDirectory(prefix="penstock-idle-") as folder,
            launch(
                topology(shape, quiet_until).definition(),
                ClusterChoice("standalone", machines=2),
                Settings(chaining="off", driver_memory_mb=2048),
                f"{folder}/state",
                python_path=[str(Path(__file__).parent)],
                tell=lambda text: print(text, file=sys.stderr, flush=True),
            ) as run,
        ):
            seen.steps, seen.memory = measure(run, shape, quiet_from)
            seen.ran_on = look(run, lambda: min(arrived(run)) > PULSE, quiet_until + PATIENCE)
            run.stop(drain=False)
    except Exception as wrong:  # whatever it is, what was measured until then is reported
        traceback.print_exc()
        seen.problem = f"{type(wrong).__name__}: {wrong}"
    return seen


def bars_of(seen: Seen, shape: Shape) -> list[Bar]:
    running = shape.total if seen.ran_on and not seen.problem else 0
    what = f"idle: operators of {shape.total} that run after {shape.idle / 60:g} min"
    bars = [Bar(what, running, OPERATORS, at_most=False)]
    if not seen.steps:
        return [*bars, Bar("idle: driver work: measured", 0, 1, at_most=False)]
    work = statistics.mean(python + java for python, java, _ in seen.steps)
    return [*bars, Bar("idle: driver work, cores", work, 0.5, at_most=True)]


def table_of(seen: Seen) -> list[str]:
    rows = (
        ("Python", [one[0] for one in seen.steps]),
        ("JVM", [one[1] for one in seen.steps]),
        ("both", [one[0] + one[1] for one in seen.steps]),
    )
    others = statistics.mean(one[2] for one in seen.steps)
    return [
        "| of the driver | cores, mean | lowest | highest |",
        "| --- | --- | --- | --- |",
        *(f"| {name} | {statistics.mean(each):.3f} | {min(each):.3f} | {max(each):.3f} |" for name, each in rows),
        "",
        f"Master, workers, executors and Python workers together: {others:.3f} cores. "
        f"Driver JVM: {seen.memory:.0f} MB.",
        "",
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=1, help="of five minutes")
    parser.add_argument("--minutes", type=float, default=None)
    parser.add_argument("--pipelines", type=int, default=10)
    parser.add_argument("--operators", type=int, default=10)
    parser.add_argument("--start-seconds", type=float, default=180.0, help="until the pulse is through, at the longest")
    options = parser.parse_args()
    minutes = options.rounds * MINUTES if options.minutes is None else options.minutes
    shape = Shape(options.pipelines, options.operators, minutes * 60)
    seen = watch(shape, options.start_seconds)
    lines = [
        METHOD.format(
            pipelines=shape.pipelines, operators=shape.operators, pulse=PULSE, idle=shape.idle + SETTLE, step=STEP
        ),
        *(table_of(seen) if seen.steps else []),
        *([f"The topology has failed: {seen.problem}", ""] if seen.problem else []),
    ]
    print("\n".join(lines))
    bars = bars_of(seen, shape)
    is_whole = minutes >= MINUTES and shape.total >= OPERATORS
    write_results(named("idle", is_whole), lines, bars, machine())
    return finish(bars)


if __name__ == "__main__":
    sys.exit(main())
