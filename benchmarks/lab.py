"""Are the machines of a lab really apart? CPU, links, and what placement is worth. Needs root, as a lab does.

python benchmarks/lab.py [--rounds 3] [--only cpu,link,placement] [--seconds 20]
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from lab_topologies import LANES, lanes, sent_over, together, worked_on
from results import Bar, finish, machine, named, write_results

from penstock import Settings, Topology
from penstock.channels.origins import origin_of
from penstock.clock import run_time
from penstock.cluster import standalone
from penstock.cluster.choice import ClusterChoice
from penstock.cluster.lab.sizes import LabShape
from penstock.cluster.model import Placement, Slot
from penstock.engine.spark.host import SparkHost
from penstock.engine.state.folder import StateFolder
from penstock.engine.topology import SparkTopology
from penstock.monitor.report import BatchReport

METHOD = """\
All parts run on a lab of one slot a machine, every operator a query of its own, with bundles that stand. A figure is
the median of {rounds} rounds of {seconds:g} s, which begin {warm:g} s after the first rows reached the sinks. Sources
and sinks of the part `cpu` are on a machine of their own, and its operators use so many seconds of a core for a row
(`penstock.workloads.work_time`). Spark's own JVMs and the segment servers are outside the limits.
"""
PARTS = ("cpu", "link", "placement")
ROUNDS, SECONDS, WARM = 3, 20.0, 10.0
SETTINGS = Settings(
    chaining="off",
    slot_memory_mb=512,
    cluster_timeout=600,
    sample_seconds=2.0,
    window_samples=100,
    window_least_samples=1,
    backlog_rows=20_000,
    backlog_bytes=32 << 20,
)
#: Of a row of the part `cpu`.
CPU_SECONDS = 0.002
LINK = 100e6
#: What a row of the part `placement` crosses.
SLOW_LINK = "20mbit"


class Bench:
    """One lab, on which one topology after the other runs."""

    def __init__(self, host: SparkHost, rounds: int, seconds: float) -> None:
        self.host = host
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
                with SparkTopology(topology.definition(), self.host, state, SETTINGS, Placement(placed)) as run:
                    while not all(run.statistics.totals(sink.name)[0] for sink in run.definition.sinks):
                        run.check()
                        run.wait(0.2)
                    rest(run, WARM)
                    yield run
                    run.stop(drain=False)
            finally:
                state.release()

    def rates(self, run: SparkTopology, operators: Sequence[str]) -> list[float]:
        """Rows a second that each of these reads."""
        began, before = run_time(), [run.statistics.totals(name)[0] for name in operators]
        rest(run, self.seconds)
        seconds = run_time() - began
        return [(run.statistics.totals(name)[0] - rows) / seconds for name, rows in zip(operators, before, strict=True)]


class Crossed:
    """Adds up what the monitor is told of: the bytes that bundles read and another machine wrote."""

    def __init__(self, run: SparkTopology) -> None:
        self.bytes = 0
        run.listen(self._add)

    def _add(self, report: BatchReport) -> None:
        for bundle in report.bundles:
            here = bundle.slot.rpartition("/")[0]
            self.bytes += sum(size for slot, size in bundle.traffic.items() if origin_of(slot) not in (None, here))


def rest(run: SparkTopology, seconds: float) -> None:
    end = run_time() + seconds
    while (left := end - run_time()) > 0:
        run.check()
        run.wait(min(0.5, left))


@contextmanager
def lab(shape: LabShape, machines: int, rounds: int, seconds: float) -> Iterator[Bench]:
    standalone.START_SECONDS = 300.0
    with tempfile.TemporaryDirectory(prefix="penstock-lab-", ignore_cleanup_errors=True) as folder:
        provider = ClusterChoice("lab", machines, 1, lab=shape).provider(8, SETTINGS, Path(folder, "cluster"))
        here = [str(Path(__file__).parent)]
        with SparkHost("bench-lab", provider, SETTINGS, Path(folder, "logs"), here) as host:
            yield Bench(host, rounds, seconds)


def median(measure: Callable[[], Sequence[float]], rounds: int) -> list[float]:
    """Of each figure."""
    return [statistics.median(one) for one in zip(*(measure() for _ in range(rounds)), strict=True)]


def cpu(rounds: int, seconds: float) -> tuple[list[str], list[Bar]]:
    """An operator that works, on machines of 1 and of 0.25 cores."""
    with lab(LabShape.read(sizes="2,1"), 6, rounds, seconds) as bench:
        around, whole, *quarters = bench.slots

        def rates(instances: Sequence[Mapping[Slot, int]]) -> list[float]:
            topology, names = worked_on(len(instances), [sum(one.values()) for one in instances], CPU_SECONDS)
            placed = {name: {around: 1} for name in (one.name for one in topology.definition().operators)}
            placed |= dict(zip(names, instances, strict=True))
            with bench.running(topology, placed) as run:
                return median(lambda: bench.rates(run, names), bench.rounds)

        [one], [quarter] = rates([{whole: 1}]), rates([{quarters[0]: 1}])
        two = rates([{quarters[0]: 1}, {quarters[0]: 1}])
        [four] = rates([dict.fromkeys(quarters, 1)])
    lines = [
        "| what works where | rows/s |",
        "| --- | ---: |",
        f"| one operator, a machine of 1 core | {one:.1f} |",
        f"| one operator, a machine of 0.25 cores | {quarter:.1f} |",
        f"| two operators share a machine of 0.25 cores | {two[0]:.1f} and {two[1]:.1f} |",
        f"| one operator, four machines of 0.25 cores | {four:.1f} |",
        "",
    ]
    share = quarter / one
    return lines, [
        Bar("cpu: 0.25 cores to one core, below", share, 0.2375, at_most=False),
        Bar("cpu: 0.25 cores to one core, above", share, 0.2625, at_most=True),
        Bar("cpu: the smaller part of two that share", min(two) / sum(two), 0.45, at_most=False),
        Bar("cpu: two that share to one alone, above", sum(two) / quarter, 1.05, at_most=True),
        Bar("cpu: four machines to one, below", four / quarter, 3.8, at_most=False),
        Bar("cpu: four machines to one, above", four / quarter, 4.2, at_most=True),
    ]


def link(rounds: int, seconds: float) -> tuple[list[str], list[Bar]]:
    """Rows of a kilobyte, from one machine to the other, more than the link carries."""
    with lab(LabShape.read(1.0, link=f"{LINK:.0f}".removesuffix("000000") + "mbit"), 2, rounds, seconds) as bench:
        one, two = bench.slots
        topology = sent_over(rows_per_second=2 * LINK / 8 / 1024)
        with bench.running(topology, {"made": {one: 1}, "read": {two: 2}, "out": {two: 1}}) as run:
            crossed = Crossed(run)

            def measure() -> list[float]:
                before, told = bench.host.provider.readings()[two.machine], crossed.bytes
                rest(run, bench.seconds)
                after, told = bench.host.provider.readings()[two.machine], crossed.bytes - told
                carried = after.received_bytes - before.received_bytes
                seconds = after.at - before.at
                return [carried * 8 / seconds, told * 8 / seconds, told / carried]

            carried, told, agree = median(measure, bench.rounds)
    lines = [
        "| a link of 100 Mbit/s, in Mbit/s | |",
        "| --- | ---: |",
        f"| what its interface counted | {carried / 1e6:.1f} |",
        f"| what the monitor counted between the machines | {told / 1e6:.1f} |",
        "",
    ]
    return lines, [
        Bar("link: used, share of 100 Mbit/s", carried / LINK, 0.85, at_most=False),
        Bar("link: monitor to interface, below", agree, 0.95, at_most=False),
        Bar("link: monitor to interface, above", agree, 1.05, at_most=True),
    ]


def placement(rounds: int, seconds: float) -> tuple[list[str], list[Bar]]:
    """Two lanes of four operators on four machines: dealt round robin, or with heavy pairs on one machine."""
    lines = [
        f"| lanes, links of {SLOW_LINK} | placement | rows/s | p50 s | p99 s |",
        "| --- | --- | ---: | ---: | ---: |",
    ]
    bars = []
    with lab(LabShape.read(1.0, link=SLOW_LINK), 4, rounds, seconds) as bench:
        for name in LANES:
            topology, heavy = lanes(name)
            operators = [one.name for one in topology.definition().operators]
            dealt = {one: {bench.slots[index % 4]: 1} for index, one in enumerate(operators)}
            apart, apart_line = _placed(bench, topology, heavy, dealt)
            near, near_line = _placed(bench, topology, heavy, together(operators, bench.slots))
            lines += [f"| {name} | round robin | {apart_line} |", f"| {name} | heavy pairs together | {near_line} |"]
            bars.append(Bar(f"placement: {name}, together to round robin", near / apart, 1.5, at_most=False))
    return [*lines, ""], bars


def _placed(
    bench: Bench, topology: Topology, heavy: Sequence[str], placed: Mapping[str, Mapping[Slot, int]]
) -> tuple[float, str]:
    with bench.running(topology, placed) as run:
        rows = sum(median(lambda: bench.rates(run, heavy), bench.rounds))
        latency = [found for sink in run.definition.sinks if (found := run.statistics.recent_latency(sink.name))]
    p50, p99 = (max((getattr(one, field) for one in latency), default=float("nan")) for field in ("p50", "p99"))
    return rows, f"{rows:.0f} | {p50:.2f} | {p99:.2f}"


MEASURES: Mapping[str, Callable[[int, float], tuple[list[str], list[Bar]]]] = {
    "cpu": cpu,
    "link": link,
    "placement": placement,
}


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--seconds", type=float, default=SECONDS)
    parser.add_argument("--only", default=",".join(PARTS), help="parts, separated by commas")
    options = parser.parse_args(arguments)
    chosen = [part for part in PARTS if part in options.only.split(",")]
    if not chosen:
        parser.error(f"--only takes {', '.join(PARTS)}")
    lines = [*METHOD.format(rounds=options.rounds, seconds=options.seconds, warm=WARM).splitlines(), ""]
    bars: list[Bar] = []
    for part in chosen:
        more, found = MEASURES[part](options.rounds, options.seconds)
        lines += more
        bars += found
        print("\n".join(more), flush=True)
    is_whole = options.rounds >= ROUNDS and options.seconds >= SECONDS and chosen == list(PARTS)
    write_results(named("lab", is_whole), lines, bars, machine())
    return finish(bars)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
