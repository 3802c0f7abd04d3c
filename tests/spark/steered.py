"""A topology whose output shows what live changes do to it: every row at the sink, and counts from a keyed operator.

`check_everything` says whether each row arrived exactly once, in order from batch to batch, and was counted once.
"""

from __future__ import annotations

import itertools
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from penstock import Topology, sinks, sources, state

KEYS = 60
CONTENT = sources.events(keys=KEYS, seed=8)
OPERATORS = ("events", "tag", "count", "rows", "counts")


def tag(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch.select(["id", "key"])


def count(frame):
    return frame.groupBy("key").count()


def steered(
    folder: Path,
    rate: float,
    rows: int | None = None,
    tasks: int = 4,
    name: str = "steered",
    processor: type[state.Processor] | None = None,
) -> Topology:
    """With a `processor`, "count" keeps its counts in state of its own."""
    topology = Topology(name)
    # Two instances: their rows must be published in the order of the rows, not of the instances.
    events = topology.source("events", sources.rate(rate, CONTENT, rows=rows), instances=2)
    tagged = topology.map("tag", tag, inputs=[events], schema="id long, key string", instances=2)
    shape = {"inputs": [tagged], "key": "key", "schema": "key string, count long", "tasks": tasks, "instances": 2}
    if processor is None:
        counted = topology.keyed("count", count, **shape)
    else:
        counted = topology.stateful("count", processor, **shape)
    topology.sink("rows", sinks.parquet(folder / "rows"), inputs=[tagged])
    topology.sink("counts", sinks.parquet(folder / "counts"), inputs=[counted])
    return topology


def by_batch(folder: Path) -> list[tuple[int, pa.Table]]:
    """What a Parquet sink has written, batch by batch in order. The batch's number is in a file's name. A sink that is
    sometimes part of a chain has batches of several queries, each with numbers of its own: these write one after the
    other, and the numbers here go on from one to the next."""
    files = sorted(folder.rglob("*.parquet"), key=lambda file: file.stat().st_mtime_ns)
    found: list[tuple[int, Path]] = []
    for _, own in itertools.groupby(files, key=lambda file: file.name.split("-", 3)[-1]):
        numbered = sorted((int(file.name.split("-")[1]), file) for file in own)
        more = found[-1][0] + 1 - numbered[0][0] if found else 0
        found += [(number + more, file) for number, file in numbered]
    return [(batch, pq.ParquetFile(file).read()) for batch, file in found]


def check_everything(folder: Path, emitted: int) -> None:
    check_rows(folder / "rows", emitted)
    check_counts(folder / "counts", emitted)


def check_rows(folder: Path, emitted: int) -> None:
    """Every row once, and per key no row in an earlier batch than one that the source emitted before it."""
    seen: Counter[int] = Counter()
    newest: dict[str, int] = {}
    # A batch may be several files, and their order says nothing.
    for batch, files in itertools.groupby(by_batch(folder), key=lambda one: one[0]):
        reached = dict(newest)
        for _, table in files:
            ids, keys = table.column("id").to_pylist(), table.column("key").to_pylist()
            seen.update(ids)
            for row, key in zip(ids, keys, strict=True):
                assert row > newest.get(key, -1), f"key {key}: row {row} of batch {batch} came after row {newest[key]}"
                reached[key] = max(row, reached.get(key, -1))
        newest = reached
    twice = [row for row, times in seen.items() if times > 1]
    assert not twice, f"{len(twice)} rows came twice, such as {twice[:5]}"
    missing = set(range(emitted)) - set(seen)
    assert not missing, f"{len(missing)} rows are missing, such as {sorted(missing)[:5]}"
    assert len(seen) == emitted, f"{len(seen) - emitted} rows too many"


def check_counts(folder: Path, emitted: int) -> None:
    """The last count of every key is right, and no count ever fell."""
    counts: dict[str, int] = {}
    for batch, table in by_batch(folder):
        for row in table.to_pylist():
            assert row["count"] > counts.get(row["key"], 0), f"batch {batch}: the count of {row['key']} fell"
            counts[row["key"]] = row["count"]
    assert counts == Counter(CONTENT.rows(0, emitted).column(1).to_pylist())
