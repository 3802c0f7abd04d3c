"""Spark's state stores and their settings, beside each other on word count: `make bench-state`.

    python benchmarks/state_store.py [--rounds 3] [--sentences 2000000]

What is measured decides the settings in engine/spark/session.py.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from results import machine, named, write_results
from speed_runs import FILES, PENSTOCK, Runs, write_data

ROCKSDB = "spark.sql.streaming.stateStore.rocksdb"
#: What is tried: arguments of benchmarks/speed/on_spark.py. The first is what Penstock uses.
VARIANTS: Mapping[str, tuple[str, ...]] = {
    "rocksdb, changelog (ours)": (),
    "rocksdb, no changelog": ("--conf", f"{ROCKSDB}.changelogCheckpointing.enabled=false"),
    "rocksdb, changelog, rows not counted": ("--conf", f"{ROCKSDB}.trackTotalNumberOfRows=false"),
    "rocksdb, changelog, checksums": ("--conf", "spark.sql.streaming.checkpoint.fileChecksum.enabled=true"),
    "rocksdb, changelog, bounded memory": ("--conf", f"{ROCKSDB}.boundedMemoryUsage=true"),
    "in memory": ("--set", "state_store=memory"),
}
METHOD = """\
Word count by `topology.aggregate`, {rows:,} sentences of 10 words out of 10,000, local Spark with two slots of one
core, {tasks} tasks; variants alternate. Words are combined before they get to the state, so a batch changes nearly all
10,000 keys. A batch is one of the keyed operator's; update and commit are the sums over its tasks, as Spark counts
them. Medians of the rounds.
"""
TASKS = 8
ROUNDS = 3
PARTS = ("batches", "batch", "update", "commit")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--sentences", type=int, default=2_000_000)
    options = parser.parse_args()
    found: dict[str, list[dict[str, float]]] = {name: [] for name in VARIANTS}
    runs = Runs()
    with tempfile.TemporaryDirectory(prefix="penstock-state-") as temporary:
        data = write_data(Path(temporary) / "data", options.sentences, FILES, ["sentences"])
        warm_up = write_data(Path(temporary) / "warm-up", 80_000, 8, ["sentences"])
        for index in range(options.rounds):
            names = [*VARIANTS]
            for name in names[index % len(names) :] + names[: index % len(names)]:
                try:
                    found[name].append(runs.run(PENSTOCK, "word-count", data, warm_up, *VARIANTS[name])[0])
                except RuntimeError as problem:
                    print(f"{name}: {problem}", file=sys.stderr, flush=True)
                    continue
                print(f"{name}: {found[name][-1]}", file=sys.stderr, flush=True)
    lines = [METHOD.format(rows=data.rows, tasks=TASKS)]
    lines.append("| state store | rows/s (from - to) | batches | batch, ms | update, ms | commit, ms |")
    lines.append("| --- | --- | --- | --- | --- | --- |")
    for name, answers in found.items():
        if not answers:
            lines.append(f"| {name} | not measured | | | | |")
            continue
        rates = sorted(data.rows / one["seconds"] for one in answers)
        cells = [f"{statistics.median(one[part] for one in answers):,.0f}" for part in PARTS]
        lines.append(
            f"| {name} | {statistics.median(rates):,.0f} ({rates[0]:,.0f} - {rates[-1]:,.0f}) | {' | '.join(cells)} |"
        )
    print("\n".join(lines))
    write_results(named("state_store", options.rounds >= ROUNDS), lines, [], machine())
    return 0


if __name__ == "__main__":
    sys.exit(main())
