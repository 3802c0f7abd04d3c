"""What monitoring costs: one topology at full speed, in which monitoring is switched on and off every few seconds.

python benchmarks/monitoring.py [--rounds 1] [--groups 24] [--block 5]
"""

from __future__ import annotations

import argparse
import bisect
import itertools
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from results import Bar, finish, machine, named, write_results

from penstock import Settings, Topology, sinks, sources
from penstock.cluster.local import LocalCluster
from penstock.engine.run.watcher import Watcher
from penstock.engine.spark.host import SparkHost
from penstock.engine.state.folder import StateFolder
from penstock.engine.topology import SparkTopology
from penstock.monitor.report import BatchReport

METHOD = """\
Source (generated numbers, all due at once) -> three maps -> a sink that counts, one instance each, on a local cluster
of two slots, in batches of about {interval:g} s; samples are taken and the statistics store is written every
{sample:g} s (10 by default). Monitoring is switched in the running topology: on, off, off, on for {block:g} s each is
a group, and every second group begins with off, so that a machine that grows slower or faster counts for neither.
What is compared is the rows of all operators, each batch spread evenly over the time it took. Lost is 1 - with /
without, by group; the interval holds 95% of the medians of groups drawn anew.

Separate runs with and without, as this was measured at first, differ by 10 to 20% from one to the next for no
reason of monitoring; inside one run the same comparison is steadier. Its own processor time is counted too: of what a
query's thread does after a batch, and of the thread in the background (one core is 100%).
"""
#: Short batches: monitoring is paid by the batch.
INTERVAL = 0.3
WARM_UP = 60.0
GROUPS = 24


def numbers(first: int, count: int) -> pa.RecordBatch:
    return pa.record_batch([pa.array(np.arange(first, first + count, dtype=np.int64))], names=["n"])


def step(batch: pa.RecordBatch) -> pa.RecordBatch:
    return pa.record_batch([pc.add(batch.column(0), 1)], names=["n"])


def topology() -> Topology:
    made = Topology("monitored")
    stream = made.source("numbers", sources.rate(1e9, sources.generated(numbers, "n long")))
    for name in ("one", "two", "three"):
        stream = made.map(name, step, inputs=[stream], schema="n long")
    made.sink("out", sinks.noop(), inputs=[stream])
    return made


class Switch:
    """Takes monitoring out of a running topology and puts it back, and counts its processor time."""

    def __init__(self, watcher: Watcher) -> None:
        self.on = True
        self._watcher = watcher
        self.seconds = 0.0
        self.batches = 0
        for name in ("published", "look", "_find_out", "_write"):
            setattr(watcher, name, self._switched(getattr(watcher, name), is_batch=name == "published"))

    def _switched(self, function: Callable[..., Any], is_batch: bool) -> Callable[..., Any]:
        def call(*arguments: Any, **named: Any) -> Any:
            self._watcher.for_decisions = self.on
            if not self.on:
                # What is counted without monitoring is counted all the same.
                return function(*arguments, **named) if is_batch else None
            began = time.thread_time()
            try:
                return function(*arguments, **named)
            finally:
                self.seconds += time.thread_time() - began
                self.batches += is_batch

        return call


@dataclass
class Work:
    """Rows of all operators over time."""

    batches: list[tuple[float, float, int]] = field(default_factory=list)

    def add(self, report: BatchReport) -> None:
        self.batches.append((report.started, report.finished, report.rows_in or sum(report.rows_out.values())))

    def rates(self, edges: Sequence[float]) -> list[float]:
        """Rows a second between each edge and the next."""
        rows = [0.0] * (len(edges) - 1)
        for started, finished, count in self.batches:
            length = max(finished - started, 1e-6)
            first = max(bisect.bisect_right(edges, started) - 1, 0)
            for index in range(first, len(rows)):
                overlap = min(finished, edges[index + 1]) - max(started, edges[index])
                if overlap <= 0:
                    break
                rows[index] += count * overlap / length
        return [count / (end - begin) for count, (begin, end) in zip(rows, itertools.pairwise(edges), strict=True)]


def medians_interval(values: Sequence[float], draws: int = 2000) -> tuple[float, float]:
    chance = random.Random(1)
    medians = sorted(statistics.median(chance.choices(values, k=len(values))) for _ in range(draws))
    return medians[draws // 40], medians[-draws // 40]


def measure(run: SparkTopology, groups: int, block: float) -> tuple[list[tuple[float, float]], Switch]:
    """Rows a second with and without monitoring, of each group."""
    work = Work()
    run.listen(work.add)
    switch = Switch(run._watching())
    rest(run, WARM_UP)
    order = [
        first == (place in (0, 3))
        for first in itertools.islice(itertools.cycle((True, False)), groups)
        for place in range(4)
    ]
    switch.seconds, switch.batches = 0.0, 0
    edges = [time.time()]
    for index, on in enumerate(order):
        switch.on = on
        rest(run, block)
        edges.append(time.time())
        if index % 4 == 3:
            print(f"group {index // 4 + 1} of {groups}", file=sys.stderr, flush=True)
    switch.on = True
    rest(run, 2)
    rates = work.rates(edges)
    found = []
    for group in range(groups):
        mine = list(zip(order, rates, strict=True))[group * 4 : group * 4 + 4]
        with_it, without = (statistics.mean(rate for on, rate in mine if on is wanted) for wanted in (True, False))
        found.append((with_it, without))
    return found, switch


def rest(run: SparkTopology, seconds: float) -> None:
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        run.check()
        time.sleep(min(left, 0.5))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=1, help="so many times the groups")
    parser.add_argument("--groups", type=int, default=GROUPS)
    parser.add_argument("--block", type=float, default=5.0)
    parser.add_argument("--sample-seconds", type=float, default=10.0)
    options = parser.parse_args()
    groups = options.rounds * options.groups
    lines = [
        METHOD.format(interval=INTERVAL, sample=options.sample_seconds, block=options.block),
        "| group | with, rows/s | without, rows/s | lost |",
        "| --- | --- | --- | --- |",
    ]
    settings = Settings(
        latency_under_load=INTERVAL,
        latency_with_backlog=INTERVAL,
        latency_spark=0.02,
        sample_seconds=options.sample_seconds,
    )
    with tempfile.TemporaryDirectory(prefix="penstock-monitoring-") as folder:
        provider = LocalCluster(slots=2, cores=1, task_threads=24)
        state = StateFolder.hold(f"{folder}/state")
        try:
            with (
                SparkHost("monitoring", provider, settings, Path(folder), [str(Path(__file__).parent)]) as host,
                SparkTopology(topology().definition(), host, state, settings) as run,
            ):
                found, switch = measure(run, groups, options.block)
                run.stop(drain=False)
        finally:
            state.release()
    lost = [1 - on / off for on, off in found]
    for index, (on, off) in enumerate(found):
        lines.append(f"| {index + 1} | {on:,.0f} | {off:,.0f} | {lost[index]:.1%} |")
    middle = statistics.median(lost)
    low, high = medians_interval(lost)
    share = switch.seconds / (groups * options.block * 2)
    lines += [
        "",
        f"Lost: median {middle:.1%}, 95% interval {low:.1%} to {high:.1%}; groups from {min(lost):.1%} to "
        f"{max(lost):.1%}. Processor time: {share:.2%} of a core, {switch.seconds / switch.batches * 1e6:,.0f} us a "
        "batch.",
        "",
    ]
    print("\n".join(lines))
    bars = [
        Bar("monitoring: share of the throughput that it costs, % (median)", middle * 100, 3, at_most=True),
        Bar("monitoring: its own processor time, % of one core", share * 100, 3, at_most=True),
    ]
    write_results(named("monitoring", groups >= GROUPS), lines, bars, machine())
    return finish(bars)


if __name__ == "__main__":
    sys.exit(main())
