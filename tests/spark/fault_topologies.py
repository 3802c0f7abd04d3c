"""The topologies of the fault campaign, each with what must be true of its output whatever happened to it.

`build` declares one by name; `check` compares what its sinks wrote with what its sources emitted. Content is generated
by row number, so that both know every row.
"""

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from steered import CONTENT, by_batch, check_everything, steered

from penstock import Topology, sinks, sources

#: Rows of "ordered" that its map refuses, and rows of "joined" that are joined, one in so many.
REFUSED, JOINED = 101, 5
#: Copies of every row of the broadcast stream: an instance has one each.
COPIES = 2
FEW = 5.0
ANSWERS = sources.events(keys=17, seed=9)


@dataclass(frozen=True)
class Shape:
    """A topology of the campaign."""

    build: Callable[[str, Path, float], Topology]
    #: (folder of the sinks, rows emitted by source)
    check: Callable[[Path, Mapping[str, int]], None]
    #: Operators whose instances may be changed while it runs.
    elastic: tuple[str, ...]


def build(shape: str, folder: Path, rate: float, name: str = "faulty") -> Topology:
    return SHAPES[shape].build(name, folder, rate)


def check(shape: str, folder: Path, emitted: Mapping[str, int]) -> None:
    """AssertionError, with the first rows that are wrong, unless everything is as it must be."""
    SHAPES[shape].check(folder, emitted)


# "ordered": dead letters, a map by key and a broadcast stream, with chains around them


def refuse_some(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Refuses the whole batch for a single row, as a function does that knows nothing of dead letters."""
    wrong = [row for row in batch.column("id").to_pylist() if row % REFUSED == 7]
    if wrong:
        raise ValueError(f"row {wrong[0]} is refused")
    return batch.select(["id", "key"])


def with_the_one_before(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Every row with the row of its key that the same call had before it, -1 if there was none: shows the order in
    which an instance got the rows."""
    last: dict[str, int] = {}
    before = []
    for row, key in zip(batch.column("id").to_pylist(), batch.column("key").to_pylist(), strict=True):
        before.append(last.get(key, -1))
        last[key] = row
    columns = [batch.column("id"), batch.column("key"), pa.array(before, pa.int64())]
    return pa.record_batch(columns, names=["id", "key", "before"])


def same(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch


def _ordered(name: str, folder: Path, rate: float) -> Topology:
    topology = Topology(name)
    events = topology.source("events", sources.rate(rate, CONTENT), instances=2)
    good = topology.map(
        "refuse", refuse_some, inputs=[events], schema="id long, key string", instances=2, on_error="dead_letter"
    )
    by_key = topology.map(
        "order",
        with_the_one_before,
        inputs=[good.by_key("key")],
        schema="id long, key string, before long",
        instances=2,
        tasks=6,
    )
    few = topology.source("few", sources.rate(FEW, sources.numbers()))
    copied = topology.map("copy", same, inputs=[few.broadcast()], schema="id long, value double", instances=COPIES)
    topology.sink("rows", sinks.parquet(folder / "rows"), inputs=[by_key], instances=2)
    topology.sink("letters", sinks.parquet(folder / "letters"), inputs=[good.dead_letter])
    topology.sink("copies", sinks.parquet(folder / "copies"), inputs=[copied])
    return topology


def _check_ordered(folder: Path, emitted: Mapping[str, int]) -> None:
    rows = range(emitted["events"])
    good = [row for row in rows if row % REFUSED != 7]
    check_each_once("rows", ids_of(folder / "rows"), dict.fromkeys(good, 1))
    check_order_of_keys(folder / "rows", good)
    letters = [json.loads(row)["id"] for row in column_of(folder / "letters", "row")]
    check_each_once("dead letters", letters, {row: 1 for row in rows if row % REFUSED == 7})
    check_each_once("copies", ids_of(folder / "copies"), dict.fromkeys(range(emitted["few"]), COPIES))


def check_order_of_keys(folder: Path, good: list[int]) -> None:
    """By key: in one call the rows follow each other without a gap, and no batch has a row from before one of an
    earlier batch."""
    keys = CONTENT.rows(0, good[-1] + 1 if good else 0).column("key").to_pylist()
    last: dict[str, int] = {}
    comes_before: dict[int, int] = {}
    for row in good:
        comes_before[row] = last.get(keys[row], -1)
        last[keys[row]] = row
    newest: dict[str, int] = {}
    # A batch may be several files, and their order says nothing.
    for batch, files in itertools.groupby(by_batch(folder), key=lambda one: one[0]):
        reached = dict(newest)
        for row in (row for _, table in files for row in table.to_pylist()):
            number, key, before = row["id"], row["key"], row["before"]
            assert key == keys[number], f"row {number} has the key {key}, not {keys[number]}"
            assert before in (-1, comes_before[number]), f"key {key}: row {number} came right after row {before}"
            assert number > newest.get(key, -1), f"key {key}: row {number} of batch {batch} came too late"
            reached[key] = max(number, reached.get(key, -1))
        newest = reached


# "joined": two streams joined by Spark


def pick(batch: pa.RecordBatch) -> pa.RecordBatch:
    ids = batch.column("id")
    whole = pc.multiply(pc.divide(ids, JOINED), JOINED)
    return batch.select(["id", "key"]).filter(pc.equal(ids, whole))


def pick_answers(batch: pa.RecordBatch) -> pa.RecordBatch:
    picked = pick(batch)
    return pa.record_batch([picked.column("id"), picked.column("key")], names=["id", "answer"])


def join(asked, answered):
    return asked.join(answered, "id").select("id", "key", "answer")


def two_columns(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch.select(["id", "key"])


def _joined(name: str, folder: Path, rate: float) -> Topology:
    topology = Topology(name)
    events = topology.source("events", sources.rate(rate, CONTENT), instances=2)
    answers = topology.source("answers", sources.rate(rate / 2, ANSWERS))
    tagged = topology.map("tag", two_columns, inputs=[events], schema="id long, key string", instances=2)
    asked = topology.map("asked", pick, inputs=[tagged], schema="id long, key string", instances=2)
    answered = topology.map("answered", pick_answers, inputs=[answers], schema="id long, answer string")
    both = topology.keyed(
        "join", join, inputs=[asked, answered], key="id", schema="id long, key string, answer string",
        tasks=4, instances=2, output_mode="append",
    )  # fmt: skip
    topology.sink("rows", sinks.parquet(folder / "rows"), inputs=[tagged])
    topology.sink("pairs", sinks.parquet(folder / "pairs"), inputs=[both])
    return topology


def _check_joined(folder: Path, emitted: Mapping[str, int]) -> None:
    check_each_once("rows", ids_of(folder / "rows"), dict.fromkeys(range(emitted["events"]), 1))
    both = min(emitted["events"], emitted["answers"])
    check_each_once("pairs", ids_of(folder / "pairs"), dict.fromkeys(range(0, both, JOINED), 1))
    keys = CONTENT.rows(0, both).column("key").to_pylist()
    answers = ANSWERS.rows(0, both).column("key").to_pylist()
    for _, table in by_batch(folder / "pairs"):
        for row in table.to_pylist():
            number = row["id"]
            wanted = (keys[number], answers[number])
            assert (row["key"], row["answer"]) == wanted, f"row {number} was joined as {row}, not with {wanted}"


# Parts of the above


def column_of(folder: Path, column: str) -> list:
    return [value for _, table in by_batch(folder) for value in table.column(column).to_pylist()]


def ids_of(folder: Path) -> list[int]:
    return column_of(folder, "id")


def check_each_once(what: str, got: list[int], wanted: Mapping[int, int]) -> None:
    """Each row as often as it is wanted."""
    seen = Counter(got)
    lost = [row for row, times in wanted.items() if seen[row] < times]
    assert not lost, f"{what}: {len(lost)} rows are missing, such as {lost[:5]}"
    more = sorted(row for row, times in seen.items() if times > wanted.get(row, 0))
    assert not more, f"{what}: {len(more)} rows came too often, such as {more[:5]}"


SHAPES = {
    "counted": Shape(
        lambda name, folder, rate: steered(folder, rate, name=name),
        lambda folder, emitted: check_everything(folder, emitted["events"]),
        ("events", "tag", "count", "rows", "counts"),
    ),
    "ordered": Shape(_ordered, _check_ordered, ("events", "refuse", "order", "rows", "letters", "few", "copies")),
    "joined": Shape(_joined, _check_joined, ("events", "tag", "asked", "answers", "answered", "join", "rows", "pairs")),
}
