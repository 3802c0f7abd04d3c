"""What monitoring costs: the same topology at full speed, with and without it, alternating in one run.

python benchmarks/monitoring.py [--rounds 6] [--rows 3000000]
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

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
written every second, ten times as often as by default. One run with monitoring and one without, in turn, after one of
each that does not count; which comes first alternates. Throughput is rows over the time from the first batch of the
source to the last of the sink. The figure is what is lost: 1 - with / without, by round.
"""
#: Short batches: monitoring is paid by the batch.
INTERVAL = 0.3


def numbers(first: int, count: int) -> pa.RecordBatch:
    return pa.record_batch([pa.array(range(first, first + count), pa.int64())], names=["n"])


def step(batch: pa.RecordBatch) -> pa.RecordBatch:
    return pa.record_batch([pc.add(batch.column(0), 1)], names=["n"])


def topology(rows: int) -> Topology:
    made = Topology("monitored")
    stream = made.source("numbers", sources.rate(1e9, sources.generated(numbers, "n long"), rows=rows))
    for name in ("one", "two", "three"):
        stream = made.map(name, step, inputs=[stream], schema="n long")
    made.sink("out", sinks.noop(), inputs=[stream])
    return made


def throughput(host: SparkHost, rows: int, monitoring: str) -> float:
    settings = replace(host.settings, monitoring=monitoring)
    with tempfile.TemporaryDirectory() as folder:
        state = StateFolder.hold(f"{folder}/state")
        try:
            times: list[float] = []
            run = Run(topology(rows).definition(), host, state, settings)
            run.listen(lambda report: times.extend((report.started, report.finished)))
            with run:
                if not run.wait(600):
                    raise RuntimeError("it did not end within 600 s")
            return rows / (max(times) - min(times))
        finally:
            state.release()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--rows", type=int, default=3_000_000)
    options = parser.parse_args()
    lines = [METHOD.format(rows=options.rows, interval=INTERVAL), "| round | with, rows/s | without, rows/s | lost |"]
    lines.append("| --- | --- | --- | --- |")
    lost = []
    settings = Settings(batch_interval=INTERVAL, batch_linger=0.02, sample_seconds=1.0)
    with tempfile.TemporaryDirectory(prefix="penstock-monitoring-") as folder:
        provider = LocalCluster(slots=2, cores=1, task_threads=8)
        with SparkHost("monitoring", provider, settings, Path(folder), [str(Path(__file__).parent)]) as host:
            for index in range(options.rounds + 1):
                order = ("on", "off") if index % 2 else ("off", "on")
                found = {}
                for monitoring in order:
                    found[monitoring] = throughput(host, options.rows, monitoring)
                    time.sleep(1)
                print(f"round {index}: {found}", file=sys.stderr, flush=True)
                if index:  # the first warms up
                    lost.append(1 - found["on"] / found["off"])
                    lines.append(f"| {index} | {found['on']:,.0f} | {found['off']:,.0f} | {lost[-1]:.1%} |")
    middle = statistics.median(lost)
    lines += ["", f"Lost: median {middle:.1%}, from {min(lost):.1%} to {max(lost):.1%}.", ""]
    print("\n".join(lines))
    bars = [Bar("monitoring: share of the throughput that it costs, % (median)", middle * 100, 3, at_most=True)]
    write_results("monitoring", lines, bars, machine())
    return finish(bars)


if __name__ == "__main__":
    sys.exit(main())
