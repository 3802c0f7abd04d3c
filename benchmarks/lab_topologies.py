"""The topologies of benchmarks/lab.py: operators that work, rows that cross a link, lanes with heavy pairs."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from penstock import Topology, sinks, sources, workloads
from penstock.cluster.model import Slot

LANES = ("word count", "top n")
PAYLOAD = 1000
#: Streams side by side over one link.
STREAMS = 3
#: Rows a second of a lane: several times what a link of 20 Mbit/s carries.
LANE_RATE = 6000
_TEXT = pa.scalar("x" * PAYLOAD)


def worked_on(operators: int, instances: Sequence[int], cpu_seconds: float) -> tuple[Topology, list[str]]:
    """So many operators that work side by side, each with rows of its own, and their names."""
    topology, names = Topology("cpu"), []
    content = sources.generated(numbered, "n long")
    for index in range(operators):
        # Twice what one core can do.
        rows = topology.source(f"made-{index}", sources.rate(2 / cpu_seconds, content))
        work = topology.map(
            f"work-{index}",
            workloads.work_time(cpu_seconds),
            inputs=rows,
            schema="n long",
            instances=instances[index],
        )
        topology.sink(f"out-{index}", sinks.noop(), inputs=work)
        names.append(f"work-{index}")
    return topology, names


def numbered(first: int, rows: int) -> pa.RecordBatch:
    return pa.record_batch({"n": pa.array(range(first, first + rows), pa.int64())})


def with_payload(first: int, rows: int) -> pa.RecordBatch:
    numbers = pa.array(range(first, first + rows), pa.int64())
    return pa.record_batch({"n": numbers, "text": pa.repeat(_TEXT, rows)})


def sent_over(rows_per_second: float) -> Topology:
    """Rows of about a kilobyte in several streams, so many a second in all, from `made` to `read`; only their numbers
    go on."""
    topology = Topology("link")
    content = sources.generated(with_payload, "n long, text string")
    for index in range(STREAMS):
        rows = topology.source(f"made-{index}", sources.rate(rows_per_second / STREAMS, content))
        read = topology.map(f"read-{index}", numbers_of, inputs=rows, schema="n long")
        topology.sink(f"out-{index}", sinks.noop(), inputs=read)
    return topology


def numbers_of(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch.select(["n"])


def split(batch: pa.RecordBatch) -> pa.RecordBatch:
    return pa.record_batch({"word": pc.list_flatten(pc.utf8_split_whitespace(batch.column("sentence")))})


def tally(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The words of a batch with how often they came: a part of a count, which is small."""
    found = pc.value_counts(batch.column("word"))
    return pa.record_batch({"word": found.field("values"), "count": found.field("counts")})


def score(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch.append_column("score", pc.bit_wise_xor(batch.column("n"), 0x5555))


def top(batch: pa.RecordBatch) -> pa.RecordBatch:
    best = pc.select_k_unstable(batch, k=min(10, batch.num_rows), sort_keys=[("score", "descending")])
    return batch.take(best).select(["n", "score"])


def lanes(name: str) -> tuple[Topology, list[str]]:
    """Two lanes side by side, and the operators whose rows count: those that read what the sources give."""
    topology, heavy = Topology(name.replace(" ", "_")), []
    for lane in ("east", "west"):
        if name == "word count":
            made = topology.source(f"spout-{lane}", sources.rate(LANE_RATE, sources.sentences(words=150)))
            first = topology.map(f"split-{lane}", split, inputs=made, schema="word string")
            last = topology.map(f"tally-{lane}", tally, inputs=first, schema="word string, count long")
        else:
            content = sources.generated(with_payload, "n long, text string")
            made = topology.source(f"spout-{lane}", sources.rate(LANE_RATE, content))
            first = topology.map(f"score-{lane}", score, inputs=made, schema="n long, text string, score long")
            last = topology.map(f"top-{lane}", top, inputs=first, schema="n long, score long")
        topology.sink(f"out-{lane}", sinks.noop(), inputs=last)
        heavy.append("split-" + lane if name == "word count" else "score-" + lane)
    return topology, heavy


def together(operators: Sequence[str], slots: Sequence[Slot]) -> dict[str, dict[Slot, int]]:
    """As many instances on as many machines as a round of dealing has, but each lane's first three, which exchange
    most, on one machine."""
    machines = {"east": slots[0], "west": slots[1]}
    sinks_of = {"east": slots[2], "west": slots[3]}
    placed = {}
    for operator in operators:
        lane = operator.rpartition("-")[2]
        placed[operator] = {(sinks_of if operator.startswith("out") else machines)[lane]: 1}
    return placed
