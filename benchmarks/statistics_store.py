"""A day of statistics of a 20-operator topology on 40 slots: how large the store gets, and how fast a day is read back.

Everything takes the way it takes in a run: rows of one sampling interval after the other, with housekeeping every
minute. Only the samples themselves are made up. `--spread` says on how many slots each operator has instances: 40 is
the worst case, every operator everywhere.

    python benchmarks/statistics_store.py [--rounds 5] [--hours 24] [--spread 40] [--url postgresql://...]
"""

from __future__ import annotations

import argparse
import random
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
from results import Bar, finish, machine, named, write_results

from penstock import Settings, Topology, sinks, sources
from penstock.channels.database import STATISTICS, Database
from penstock.cluster.model import Cluster, Placement
from penstock.monitor import statistics_tables
from penstock.monitor.history import WITH_HISTORY, HistoryQuery
from penstock.monitor.intervals import Interval
from penstock.monitor.latency import LatencySketch
from penstock.monitor.sample import Levels, Sample, SlotWork, StateSize, Waiting
from penstock.monitor.series import Figures, SeriesKey, figures_of
from penstock.monitor.store import StatisticsStore
from penstock.monitor.totals import OperatorTotals
from penstock.topology.definition import TopologyDefinition

OPERATORS, MACHINES, SLOTS = 20, 20, 2
SINKS = 4
ROUNDS, HOURS = 5, 24
#: Batches an operator has in a sampling interval.
BATCHES = 20
T0 = 1_200_000_000.0
#: So many intervals are made up, with figures as odd as real ones; the day repeats them.
DIFFERENT = 30
CHART = ("rate", "emit_rate", "utilisation", "capacity", "backlog_rows")


def same(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch


def topology() -> TopologyDefinition:
    """A source, a chain, and four sinks."""
    declared = Topology("day")
    last = declared.source("operator-0", sources.rate(1, sources.numbers()))
    for index in range(1, OPERATORS - SINKS):
        last = declared.map(f"operator-{index}", same, inputs=[last], schema="id long, value double")
    for index in range(OPERATORS - SINKS, OPERATORS):
        declared.sink(f"operator-{index}", sinks.noop(), inputs=[last])
    return declared.definition()


def placement(definition: TopologyDefinition, cluster: Cluster, spread: int) -> Placement:
    slots = cluster.slots
    return Placement(
        {
            operator.name: {slots[(index * 2 + place) % len(slots)]: 1 for place in range(spread)}
            for index, operator in enumerate(definition.operators)
        }
    )


def made_up(definition: TopologyDefinition, placed: Placement, dice: random.Random) -> Interval:
    operators = {}
    for operator in definition.operators:
        totals = operators[operator.name] = OperatorTotals()
        for _ in range(BATCHES):
            totals.add(batch(definition, operator.name, [slot.name for slot in placed.of(operator.name)], dice))
    return Interval(0.0, 10.0, operators)


def batch(definition: TopologyDefinition, name: str, where: list[str], dice: random.Random) -> Sample:
    rows = dice.randrange(10_000, 2_000_000)
    sink = definition.operator(name).kind == "sink"
    latency = LatencySketch()
    low = dice.lognormvariate(-1, 0.5)
    latency.add_range(low, low + dice.random(), rows)
    slots = tuple(
        SlotWork(
            slot,
            1,
            rows=rows // len(where),
            rows_out={"out": dice.randrange(rows)},
            bytes_in=rows * dice.randrange(10, 100),
            bytes_out=rows * dice.randrange(10, 100),
            busy=dice.random(),
            cpu=dice.random(),
            memory=dice.randrange(1 << 27, 1 << 28),
            executor_memory=dice.randrange(1 << 29, 1 << 30),
        )
        for slot in where
    )
    return Sample(
        name,
        0,
        0.0,
        dice.random(),
        rows,
        rows_in={stream.name: rows for stream in definition.inputs_of(name)},
        rows_out={"out": dice.randrange(rows)},
        slots=slots,
        traffic={(dice.choice(where), slot): dice.randrange(1 << 20) for slot in where},
        waiting=dice.random(),
        overhead=dice.random(),
        overhead_parts={"planning": dice.random(), "offset_log": dice.random(), "commit_log": dice.random()},
        levels=Levels(
            1.0,
            {
                stream.name: Waiting(dice.randrange(10**6), dice.randrange(10**8), dice.random())
                for stream in definition.inputs_of(name)
            },
            unmet_rows=dice.randrange(1000),
        ),
        latency=latency if sink else None,
        state={task: StateSize(dice.randrange(10**6), dice.randrange(10**8)) for task in range(8)},
    )


def fill(store: StatisticsStore, hours: float, patterns: list[dict[SeriesKey, Figures]]) -> tuple[float, float]:
    """Seconds for one sampling interval's write, and for one round of housekeeping, at the median."""
    writes, houses = [], []
    for index in range(round(hours * 360)):
        start = T0 + index * 10
        rows = [(key, round(start * 1000), figures) for key, figures in patterns[index % len(patterns)].items()]
        began = time.perf_counter()
        store.write_rows(rows, start + 10)
        writes.append(time.perf_counter() - began)
        if index % 6 == 5:
            began = time.perf_counter()
            store.keep_house(start + 10)
            houses.append(time.perf_counter() - began)
        if index % 2160 == 2159:
            print(f"{(index + 1) / 360:.0f} hours are written", flush=True)
    return statistics.median(writes), statistics.median(houses)


def seconds_of(work: Callable[[], object], rounds: int) -> float:
    times = []
    for _ in range(rounds):
        began = time.perf_counter()
        work()
        times.append(time.perf_counter() - began)
    return statistics.median(times)


def size_mb(url: str, file: Path | None) -> float:
    if file is not None:
        return sum(one.stat().st_size for one in file.parent.glob(f"{file.name}*")) / 1e6
    database = Database.open(url, content=STATISTICS)
    try:
        names = [table.name for table in statistics_tables.tables.sorted_tables]
        sizes = " + ".join(f"pg_total_relation_size('{name}')" for name in names)
        size = database.run(lambda connection: connection.exec_driver_sql(f"SELECT {sizes}").scalar())
        return float(size or 0) / 1e6
    finally:
        database.close()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="how often each reading is timed")
    parser.add_argument("--hours", type=float, default=HOURS)
    parser.add_argument("--spread", type=int, default=40)
    parser.add_argument("--url", default="")
    arguments = parser.parse_args()
    definition = topology()
    cluster = Cluster.of([f"machine-{index}" for index in range(MACHINES)], SLOTS)
    placed = placement(definition, cluster, arguments.spread)
    dice = random.Random(1)
    patterns = [figures_of(made_up(definition, placed, dice), definition, placed) for _ in range(DIFFERENT)]
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as folder:
        file = None if arguments.url else Path(folder) / "statistics.sqlite"
        url = arguments.url or f"sqlite:///{file}"
        store = StatisticsStore.open(url, definition.name, Settings())
        write, house = fill(store, arguments.hours, patterns)
        until = T0 + arguments.hours * 3600

        def day(metrics: tuple[str, ...], points: int) -> Callable[[], object]:
            return lambda: store.history(HistoryQuery(metrics, until - 86_400, until, points=points))

        rounds = arguments.rounds
        ten, minutes = seconds_of(day(CHART, 500), rounds), seconds_of(day(CHART, 1440), rounds)
        everything = seconds_of(day(WITH_HISTORY, 1440), rounds)
        by_slot = HistoryQuery(CHART, until - 86_400, until, by="slot", operator="operator-3")
        slots = seconds_of(lambda: store.history(by_slot), rounds)
        points = len(store.history(HistoryQuery(CHART, until - 86_400, until, points=1440))[0].times)
        store.close()
        size = size_mb(url, file)
    lines = [
        f"{OPERATORS} operators, each on {arguments.spread} of {MACHINES * SLOTS} slots, {SINKS} sinks; "
        f"{len(patterns[0])} series; {arguments.hours:g} h of samples every 10 s; {url.partition(':')[0]}.",
        "",
        "| what | figure |",
        "| --- | --- |",
        f"| size on disk | {size:.0f} MB |",
        f"| writing one sampling interval, median | {write * 1000:.0f} ms |",
        f"| housekeeping, once a minute, median | {house * 1000:.0f} ms |",
        f"| a day of all operators, 5 metrics, by ten minutes | {ten:.3f} s |",
        f"| the same by minute ({points} points a series) | {minutes:.3f} s |",
        f"| a day of all operators, all {len(WITH_HISTORY)} metrics, by minute | {everything:.3f} s |",
        f"| a day of one operator on all its slots, 5 metrics, by ten minutes | {slots:.3f} s |",
        "",
    ]
    print("\n".join(lines), flush=True)
    bars = [
        Bar("size of 24 h (MB)", size, 500, at_most=True),
        Bar("reading a day of 20 operators by minute (s)", minutes, 1.0, at_most=True),
    ]
    is_whole = rounds >= ROUNDS and arguments.hours >= HOURS
    write_results(named("statistics_store", is_whole), lines, bars, machine())
    return finish(bars)


if __name__ == "__main__":
    raise SystemExit(main())
