"""What a channel's files cost: written, read, by compression; small ones joined; split by key: `make bench-segments`.

One process, on the file system of the temporary folder.     python benchmarks/segments.py [--rounds 5]

What is measured decides the default of `segment_compression`.
"""

from __future__ import annotations

import argparse
import functools
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from results import machine, named, write_results

from penstock import sources
from penstock.channels.keys import sort_by_group
from penstock.channels.segments import SegmentFile, SegmentStore
from penstock.engine.executor.instance import in_handy_batches

ROUNDS = 5
ROWS, BATCH = 1_000_000, 50_000
SMALL = 500
METHOD = """\
{rows:,} rows in segments of {batch:,}, medians of {rounds} rounds, variants alternate. Reading includes a pass over the
columns (a sum, or the lengths of texts): a mapped file is not read before somebody looks. The files were just written,
so they are read from the page cache, as a channel's files mostly are.
"""


def seconds(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def look_at(batch: pa.RecordBatch) -> None:
    for column in batch.columns:
        pc.sum(pc.binary_length(column) if pa.types.is_string(column.type) else column)


def write_all(store: SegmentStore, batches: list[pa.RecordBatch]) -> list[SegmentFile]:
    return [store.write("channel", str(number), [batch], batch.schema) for number, batch in enumerate(batches)]


def read_all(store: SegmentStore, written: list[SegmentFile]) -> list[pa.RecordBatch]:
    return [batch for segment in written for batch in store.read(segment.path)]


def look_at_all(batches: Iterable[pa.RecordBatch]) -> None:
    for batch in batches:
        look_at(batch)


def write_and_read(store: SegmentStore, batches: list[pa.RecordBatch]) -> tuple[float, float, float]:
    """Rows/s written, rows/s read, bytes a row."""
    began = time.perf_counter()
    written = write_all(store, batches)
    then = time.perf_counter()
    look_at_all(read_all(store, written))
    end = time.perf_counter()
    return ROWS / (then - began), ROWS / (end - then), sum(segment.bytes for segment in written) / ROWS


def by_compression(folder: Path, rounds: int) -> list[str]:
    contents = {"sentences": sources.sentences(words=10, vocabulary=10_000), "numbers": sources.numbers()}
    lines = ["| rows | compression | write, rows/s | read, rows/s | bytes a row |", "| --- | --- | --- | --- | --- |"]
    for name, content in contents.items():
        batches = [content.rows(first, BATCH) for first in range(0, ROWS, BATCH)]
        figures: dict[str, list[tuple[float, float, float]]] = {}
        for index in range(rounds):
            for compression in (None, "lz4", "zstd"):
                store = SegmentStore(str(folder / f"{name}-{compression}-{index}"), compression)
                figures.setdefault(compression or "none", []).append(write_and_read(store, batches))
        for compression, found in figures.items():
            write, read, size = (statistics.median(one) for one in zip(*found, strict=True))
            lines.append(f"| {name} | {compression} | {write:,.0f} | {read:,.0f} | {size:.1f} |")
    return lines


def small_ones(folder: Path, rounds: int) -> list[str]:
    """A function over many small segments, as they are and joined."""
    content, store = sources.numbers(), SegmentStore(str(folder / "small"))
    rows = ROWS // 10
    written = write_all(store, [content.rows(first, SMALL) for first in range(0, rows, SMALL)])
    reading, apart, joined = [], [], []
    for index in range(rounds):
        reading.append(seconds(lambda: read_all(store, written)))
        # Each on files that were mapped anew, and another one first every time.
        first, second = iter(read_all(store, written)), iter(read_all(store, written))
        ways = [(apart, first), (joined, in_handy_batches(second))]
        for times, batches in ways if index % 2 else ways[::-1]:
            times.append(seconds(functools.partial(look_at_all, batches)))
    cells = [statistics.median(one) * 1000 for one in (reading, apart, joined)]
    return [
        f"{rows:,} rows in {len(written)} segments of {SMALL}: reading {cells[0]:.0f} ms; a function over them, called "
        f"for each {cells[1]:.1f} ms, with small ones joined (joining counted) {cells[2]:.1f} ms."
    ]


def split_all(batches: list[pa.RecordBatch], groups: int) -> None:
    for batch in batches:
        sort_by_group(batch, ("sentence",), groups)


def by_key(rounds: int) -> list[str]:
    content = sources.sentences(words=1, vocabulary=10_000)
    lines = ["| groups | rows/s split by key |", "| --- | --- |"]
    batches = [content.rows(first, 16_384) for first in range(0, ROWS // 16_384 * 16_384, 16_384)]
    for groups in (8, 64, 512):
        found = [seconds(functools.partial(split_all, batches, groups)) for _ in range(rounds)]
        lines.append(f"| {groups} | {len(batches) * 16_384 / statistics.median(found):,.0f} |")
    return lines


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    rounds = parser.parse_args().rounds
    with tempfile.TemporaryDirectory(prefix="penstock-segments-") as temporary:
        folder = Path(temporary)
        lines = [METHOD.format(rows=ROWS, batch=BATCH, rounds=rounds)]
        lines += ["## By compression\n", *by_compression(folder, rounds)]
        lines += ["\n## Small segments\n", *small_ones(folder, rounds)]
    lines += ["\n## Split by key, one text column\n", *by_key(rounds)]
    print("\n".join(lines))
    write_results(named("segments", rounds >= ROUNDS), lines, [], machine())
    return 0


if __name__ == "__main__":
    sys.exit(main())
