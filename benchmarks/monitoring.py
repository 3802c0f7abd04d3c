"""What monitoring costs: the same topology at full speed, with and without it, alternating in one run.

python benchmarks/monitoring.py [--rounds 6] [--rows 20000000]
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from results import Bar, finish, machine, write_results

from penstock import Settings, Topology, sinks, sources
from penstock.cluster.local import LocalCluster
from penstock.engine.host import SparkHost
from penstock.engine.runtime import Run
from penstock.engine.state_folder import StateFolder

METHOD = """\
Source (generated numbers, all due at once) -> three maps -> a sink that counts, one instance each, on a local cluster
of two slots; {rows:,} rows a run, in batches of about {interval:g} s. Samples are taken and the statistics store is
written every {sample:g} s (10 by default). One run with monitoring and one without, in turn, after one of
each that does not count; which comes first alternates. Throughput is rows over the time from the first batch of the
source to the last of the sink. The figure is what is lost: 1 - with / without, by round.

Single runs differ by more than monitoring costs, so its own processor time is counted too: of what a query's thread
does after a batch, and of the thread in the background, as a share of the run's time (one core is 100%).
"""
#: Short batches: monitoring is paid by the batch.
INTERVAL = 0.3


def numbers(first: int, count: int) -> pa.RecordBatch:
    return pa.record_batch([pa.array(np.arange(first, first + count, dtype=np.int64))], names=["n"])


def step(batch: pa.RecordBatch) -> pa.RecordBatch:
    return pa.record_batch([pc.add(batch.column(0), 1)], names=["n"])


def topology(rows: int) -> Topology:
    made = Topology("monitored")
    stream = made.source("numbers", sources.rate(1e9, sources.generated(numbers, "n long"), rows=rows))
    for name in ("one", "two", "three"):
        stream = made.map(name, step, inputs=[stream], schema="n long")
    made.sink("out", sinks.noop(), inputs=[stream])
    return made


class Cost:
    """Processor time that monitoring takes in the driver."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.batches = 0

    def counted(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **named: Any) -> Any:
            began = time.thread_time()
            try:
                return function(*arguments, **named)
            finally:
                self.seconds += time.thread_time() - began

        return call

    def watch(self, run: Run) -> None:
        monitoring = run._measurements()
        for name in ("published", "look", "_find_out", "_write"):
            setattr(monitoring, name, self.counted(getattr(monitoring, name)))
        run.listen(lambda report: setattr(self, "batches", self.batches + 1))


def throughput(host: SparkHost, rows: int, monitoring: str, cost: Cost) -> float:
    settings = replace(host.settings, monitoring=monitoring)
    with tempfile.TemporaryDirectory() as folder:
        state = StateFolder.hold(f"{folder}/state")
        try:
            times: list[float] = []
            run = Run(topology(rows).definition(), host, state, settings)
            run.listen(lambda report: times.extend((report.started, report.finished)))
            with run:
                if monitoring == "on":
                    cost.watch(run)
                if not run.wait(600):
                    raise RuntimeError("it did not end within 600 s")
            return rows / (max(times) - min(times))
        finally:
            state.release()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--rows", type=int, default=20_000_000)
    parser.add_argument("--sample-seconds", type=float, default=10.0)
    options = parser.parse_args()
    lines = [
        METHOD.format(rows=options.rows, interval=INTERVAL, sample=options.sample_seconds),
        "| round | with, rows/s | without, rows/s | lost | processor time |",
    ]
    lines.append("| --- | --- | --- | --- | --- |")
    lost, shares = [], []
    settings = Settings(batch_interval=INTERVAL, batch_linger=0.02, sample_seconds=options.sample_seconds)
    with tempfile.TemporaryDirectory(prefix="penstock-monitoring-") as folder:
        provider = LocalCluster(slots=2, cores=1, task_threads=8)
        with SparkHost("monitoring", provider, settings, Path(folder), [str(Path(__file__).parent)]) as host:
            for index in range(options.rounds + 1):
                order = ("on", "off") if index % 2 else ("off", "on")
                found = {}
                cost = Cost()
                for monitoring in order:
                    found[monitoring] = throughput(host, options.rows, monitoring, cost)
                    time.sleep(1)
                print(f"round {index}: {found}", file=sys.stderr, flush=True)
                if index:  # the first warms up
                    lost.append(1 - found["on"] / found["off"])
                    shares.append(cost.seconds / (options.rows / found["on"]))
                    spent = f"{shares[-1]:.2%}, {cost.seconds / max(cost.batches, 1) * 1e6:,.0f} us a batch"
                    lines.append(f"| {index} | {found['on']:,.0f} | {found['off']:,.0f} | {lost[-1]:.1%} | {spent} |")
    middle, share = statistics.median(lost), statistics.median(shares)
    lines += ["", f"Lost: median {middle:.1%}, from {min(lost):.1%} to {max(lost):.1%}.", ""]
    print("\n".join(lines))
    bars = [
        Bar("monitoring: share of the throughput that it costs, % (median)", middle * 100, 3, at_most=True),
        Bar("monitoring: its own processor time, % of one core (median)", share * 100, 3, at_most=True),
    ]
    write_results("monitoring", lines, bars, machine())
    return finish(bars)


if __name__ == "__main__":
    sys.exit(main())
