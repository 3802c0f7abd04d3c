"""Are the machines of a lab really apart? CPU, links, and what placement is worth. Needs root, as a lab does.

python benchmarks/lab.py [--rounds 3] [--only cpu,link,placement] [--seconds 20]
"""

from __future__ import annotations

import argparse
import signal
import statistics
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from lab_measures import Heard, Part, crossed, from_store, fullest_link, rate, uses
from lab_topologies import LANES, STREAMS, lanes, sent_over, together, worked_on
from results import Bar, finish, machine, named, write_results

from penstock import Settings, Topology
from penstock.clock import run_time
from penstock.cluster import standalone
from penstock.cluster.choice import ClusterChoice
from penstock.cluster.lab.sizes import LabShape
from penstock.cluster.model import Placement, Slot
from penstock.cluster.readings import MachineUse
from penstock.engine.spark.host import SparkHost
from penstock.engine.state.folder import StateFolder
from penstock.engine.topology import SparkTopology

METHOD = """\
All parts run on a lab of one slot a machine, every operator a query of its own, with bundles that stand. A figure is
the median of {rounds} rounds of {seconds:g} s, which begin {warm:g} s after the first rows reached the sinks. A rate is
that from the first batch of a round to the last, slot by slot. Sources and sinks of the part `cpu` are on a machine of
their own, and its operators use so many seconds of a core for a row (`penstock.workloads.work_time`). Spark's own JVMs
and the segment servers are outside the limits. Latency counts from when a row was due at its source, so where the
sources are held back it grows for as long as the run lasts.
"""
PARTS = ("cpu", "link", "placement")
ROUNDS, SECONDS, WARM = 3, 20.0, 15.0
#: Seconds in which the first rows must have reached the sinks.
FIRST_ROWS_SECONDS = 240.0
SETTINGS = Settings(
    chaining="off",
    slot_memory_mb=512,
    cluster_timeout=600,
    sample_seconds=2.0,
    window_samples=100,
    window_least_samples=1,
)
#: Few long batches: what a batch costs by itself takes four times as long on a quarter of a core, and the driver needs
#: what is left of two cores beside a machine of one.
CPU_SETTINGS = replace(SETTINGS, latency=2.0, latency_under_load=2.0, latency_with_backlog=2.0, backlog_rows=20_000)
#: Shares of a megabyte: what is on its way when a round begins or ends counts little. The sources keep some seconds
#: of rows in front of the link.
LINK_SETTINGS = replace(SETTINGS, latency=0.5, rows_at_once_mb=1, rows_at_once=4096, backlog_bytes=16 << 20)
PLACEMENT_SETTINGS = replace(SETTINGS, latency=0.2, rows_at_once_mb=1, backlog_bytes=4 << 20)
#: Of a row of the part `cpu`.
CPU_SECONDS = 0.002
LINK = 100e6
#: Enough for all Python workers of a machine: memory is not what is tried out.
MEMORY = "2g"
#: What a row of the part `placement` crosses.
SLOW_LINK = "20mbit"
Say = Callable[[str], None]


@dataclass(frozen=True)
class Round:
    """What was seen in one round."""

    parts: list[Part]
    #: By machine.
    used: Mapping[str, MachineUse]


class Bench:
    """One lab, on which one topology after the other runs."""

    def __init__(self, host: SparkHost, settings: Settings, rounds: int, seconds: float) -> None:
        self.host = host
        self.settings = settings
        self.rounds = rounds
        self.seconds = seconds

    @property
    def slots(self) -> tuple[Slot, ...]:
        return self.host.cluster.slots

    @contextmanager
    def running(self, topology: Topology, placed: Mapping[str, Mapping[Slot, int]]) -> Iterator[SparkTopology]:
        """A topology whose rows flow, and have done so for a while."""
        with tempfile.TemporaryDirectory(prefix="penstock-lab-run-", ignore_cleanup_errors=True) as folder:
            state = StateFolder.hold(f"{folder}/state")
            try:
                with SparkTopology(topology.definition(), self.host, state, self.settings, Placement(placed)) as run:
                    await_rows(run)
                    rest(run, WARM)
                    yield run
                    run.stop(drain=False)
            finally:
                state.release()

    def measured(self, run: SparkTopology) -> list[Round]:
        heard, found = Heard(), []
        run.listen(heard.add)
        for _ in range(self.rounds):
            began, before = run_time(), self.host.provider.readings()
            rest(run, self.seconds)
            after, ended = self.host.provider.readings(), run_time()
            found.append(Round(heard.between(began, ended), uses(before, after)))
        return found


def await_rows(run: SparkTopology, seconds: float = FIRST_ROWS_SECONDS) -> None:
    deadline = run_time() + seconds
    while waits := [sink.name for sink in run.definition.sinks if not run.statistics.totals(sink.name)[0]]:
        if run_time() > deadline:
            raise RuntimeError(f"no row reached {', '.join(waits)} within {seconds:g} s")
        run.check()
        run.wait(0.2)


def rest(run: SparkTopology, seconds: float) -> None:
    end = run_time() + seconds
    while (left := end - run_time()) > 0:
        run.check()
        run.wait(min(0.5, left))


@contextmanager
def lab(shape: LabShape, machines: int, settings: Settings, rounds: int, seconds: float, say: Say) -> Iterator[Bench]:
    standalone.START_SECONDS = 300.0
    with tempfile.TemporaryDirectory(prefix="penstock-lab-", ignore_cleanup_errors=True) as folder:
        provider = ClusterChoice("lab", machines, 1, lab=shape).provider(3 * STREAMS, settings, Path(folder, "cluster"))
        here = [str(Path(__file__).parent)]
        with SparkHost("bench-lab", provider, settings, Path(folder, "logs"), here) as host:
            say(f"{machines} machines are up")
            yield Bench(host, settings, rounds, seconds)


def median(rounds: Sequence[Round], figure: Callable[[Round], float]) -> float:
    return statistics.median(map(figure, rounds))


def rate_of(operator: str) -> Callable[[Round], float]:
    return lambda seen: rate(seen.parts, operator)


def cpu(rounds: int, seconds: float, say: Say) -> tuple[list[str], list[Bar]]:
    """An operator that works, on machines of 1 and of 0.25 cores."""
    lines = ["| what works where | rows/s | cores used |", "| --- | ---: | ---: |"]
    with lab(LabShape.read(memory=MEMORY, sizes="2,1"), 6, CPU_SETTINGS, rounds, seconds, say) as bench:
        around, whole, *quarters = bench.slots

        def rates(what: str, instances: Sequence[Mapping[Slot, int]]) -> list[float]:
            topology, names = worked_on(len(instances), [sum(one.values()) for one in instances], CPU_SECONDS)
            placed = {name: {around: 1} for name in (one.name for one in topology.definition().operators)}
            placed |= {name: dict(slots) for name, slots in zip(names, instances, strict=True)}
            machines = sorted({slot.machine for slots in instances for slot in slots})
            with bench.running(topology, placed) as run:
                found = bench.measured(run)
            rows = [median(found, rate_of(name)) for name in names]
            cores = median(found, lambda one: sum(one.used[name].cpu_cores for name in machines))
            lines.append(f"| {what} | {' and '.join(f'{one:.1f}' for one in rows)} | {cores:.3f} |")
            say(lines[-1])
            return rows

        [one] = rates("one operator, a machine of 1 core", [{whole: 1}])
        [quarter] = rates("one operator, a machine of 0.25 cores", [{quarters[0]: 1}])
        two = rates("two operators share a machine of 0.25 cores", [{quarters[0]: 1}, {quarters[0]: 1}])
        [four] = rates("one operator, four machines of 0.25 cores", [dict.fromkeys(quarters, 1)])
    shares = f"0.25 cores to one: {quarter / one:.4f}. Four machines to one: {four / quarter:.3f}."
    return [*lines, "", shares, ""], cpu_bars(one, quarter, two, four)


def cpu_bars(one: float, quarter: float, two: Sequence[float], four: float) -> list[Bar]:
    share = quarter / one
    return [
        Bar("cpu: 0.25 cores to one core, below", share, 0.2375, at_most=False),
        Bar("cpu: 0.25 cores to one core, above", share, 0.2625, at_most=True),
        Bar("cpu: the smaller part of two that share", min(two) / sum(two), 0.45, at_most=False),
        Bar("cpu: two that share to one alone, below", sum(two) / quarter, 0.9, at_most=False),
        Bar("cpu: two that share to one alone, above", sum(two) / quarter, 1.05, at_most=True),
        Bar("cpu: four machines to one, below", four / quarter, 3.8, at_most=False),
        Bar("cpu: four machines to one, above", four / quarter, 4.2, at_most=True),
    ]


def link(rounds: int, seconds: float, say: Say) -> tuple[list[str], list[Bar]]:
    """Rows of a kilobyte, from one machine to the other, more than the link carries. Several streams side by side: a
    bundle asks for its next share when it has done the last, and the link would be idle meanwhile."""
    shape = LabShape.read(1.0, MEMORY, f"{LINK / 1e6:.0f}mbit")
    with lab(shape, 2, LINK_SETTINGS, rounds, seconds, say) as bench:
        one, two = bench.slots
        topology = sent_over(rows_per_second=2 * LINK / 8 / 1024)
        operators = [operator.name for operator in topology.definition().operators]
        with bench.running(topology, {name: {one if name.startswith("made") else two: 1} for name in operators}) as run:
            found = bench.measured(run)
        carried = median(found, lambda seen: seen.used[two.machine].received_per_second * 8)
        told = median(found, lambda seen: crossed(seen.parts) / seen.used[two.machine].seconds * 8)
        agree = median(found, lambda seen: crossed(seen.parts) / _received(seen, two))
        stored = median(found, lambda seen: from_store(seen.parts))
    lines = [
        "| a link of 100 Mbit/s, in Mbit/s | |",
        "| --- | ---: |",
        f"| what its interface counted | {carried / 1e6:.1f} |",
        f"| what the monitor counted between the machines | {told / 1e6:.1f} |",
        f"| the share of that which was read from the store instead | {stored:.3f} |",
        "",
    ]
    return lines, link_bars(carried / LINK, agree, stored)


def _received(seen: Round, slot: Slot) -> float:
    used = seen.used[slot.machine]
    return used.received_per_second * used.seconds


def link_bars(used: float, agree: float, stored: float) -> list[Bar]:
    return [
        Bar("link: used, share of 100 Mbit/s", used, 0.85, at_most=False),
        Bar("link: monitor to interface, below", agree, 0.95, at_most=False),
        Bar("link: monitor to interface, above", agree, 1.05, at_most=True),
        Bar("link: share of the rows that did not cross it", stored, 0.01, at_most=True),
    ]


def placement(rounds: int, seconds: float, say: Say) -> tuple[list[str], list[Bar]]:
    """Two lanes of four operators on four machines: dealt round robin, or with heavy pairs on one machine."""
    lines = [
        f"| lanes, links of {SLOW_LINK} | placement | rows/s | p50 s | p99 s | fullest link | read from the store |",
        "| --- | --- | ---: | ---: | ---: | ---: | ---: |",
    ]
    bars = []
    with lab(LabShape.read(1.0, MEMORY, SLOW_LINK), 4, PLACEMENT_SETTINGS, rounds, seconds, say) as bench:
        for name in LANES:
            topology, heavy = lanes(name)
            operators = [one.name for one in topology.definition().operators]
            ways = {
                "round robin": {one: {bench.slots[index % 4]: 1} for index, one in enumerate(operators)},
                "heavy pairs together": together(operators, bench.slots),
            }
            rows = {}
            for way, placed in ways.items():
                rows[way], line = _placed(bench, topology, heavy, placed)
                lines.append(f"| {name} | {way} | {line} |")
                say(lines[-1])
            apart, near = rows.values()
            bars.append(Bar(f"placement: {name}, together to round robin", near / apart, 1.5, at_most=False))
    return [*lines, ""], bars


def _placed(
    bench: Bench, topology: Topology, heavy: Sequence[str], placed: Mapping[str, Mapping[Slot, int]]
) -> tuple[float, str]:
    with bench.running(topology, placed) as run:
        found = bench.measured(run)
        recent = [run.statistics.recent_latency(sink.name) for sink in run.definition.sinks]
    rows = median(found, lambda seen: sum(rate(seen.parts, name) for name in heavy))
    full = median(found, lambda seen: fullest_link(seen.used))
    stored = median(found, lambda seen: from_store(seen.parts))
    latency = [one for one in recent if one is not None]
    p50, p99 = (max((getattr(one, field) for one in latency), default=float("nan")) for field in ("p50", "p99"))
    return rows, f"{rows:.0f} | {p50:.2f} | {p99:.2f} | {full:.0%} | {stored:.3f}"


Measure = Callable[[int, float, Say], tuple[list[str], list[Bar]]]
MEASURES: Mapping[str, Measure] = {"cpu": cpu, "link": link, "placement": placement}


def main(arguments: Sequence[str], measures: Mapping[str, Measure] = MEASURES) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--seconds", type=float, default=SECONDS)
    parser.add_argument("--only", default=",".join(PARTS), help="parts, separated by commas")
    options = parser.parse_args(arguments)
    asked = set(filter(None, options.only.split(",")))
    chosen = [part for part in PARTS if part in asked]
    if not chosen or asked > set(chosen):
        parser.error(f"--only takes {', '.join(PARTS)}, and not {options.only!r}")
    # What was started goes in order, also when it is told to end.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    began = time.monotonic()

    def say(text: str) -> None:
        print(f"{time.monotonic() - began:6.0f} s  {text}", file=sys.stderr, flush=True)

    lines = [*METHOD.format(rounds=options.rounds, seconds=options.seconds, warm=WARM).splitlines(), ""]
    bars: list[Bar] = []
    # Parts that run by themselves have pages of their own: none takes the place of another.
    stem = "lab" if chosen == list(PARTS) else "_".join(("lab", *chosen))
    page = named(stem, options.rounds >= ROUNDS and options.seconds >= SECONDS)
    for part in chosen:
        say(part)
        try:
            more, found = measures[part](options.rounds, options.seconds, say)
        except Exception as problem:  # its bar is missed, and the others are measured
            traceback.print_exc()
            more, found = [f"{part} failed: {problem}", ""], [Bar.of(f"{part}: was measured", [], 1, at_most=False)]
        lines += more
        bars += found
        print("\n".join(more), flush=True)
        # After each part: whatever becomes of the next, this one is kept.
        write_results(page, lines, bars, machine())
    return finish(bars)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
