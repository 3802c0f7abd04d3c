"""Every kind of source and sink says everything about itself: nobody else asks which kind it is."""

from __future__ import annotations

import ast
import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import penstock
from penstock import sinks, sources
from penstock.channels.catalog import Catalog
from penstock.errors import PenstockError
from penstock.kinds import SinkKind, SourceKind, SourcePlace
from penstock.topology import Topology

ROOT = Path(penstock.__file__).parent
KINDS = {
    kind: module.__name__
    for module in (sources, sinks)
    for kind in vars(module).values()
    if isinstance(kind, type) and issubclass(kind, SourceKind | SinkKind) and kind not in (SourceKind, SinkKind)
}


def test_nobody_asks_for_a_concrete_kind() -> None:
    """Outside of its own file, a class of a kind is only named where its package lists it."""
    names = {kind.__name__ for kind in KINDS}
    own = {Path(*kind.__module__.split(".")[1:]).with_suffix(".py") for kind in KINDS}
    lists = {Path("sources/__init__.py"), Path("sinks/__init__.py")}
    found = []
    for path in ROOT.rglob("*.py"):
        if (short := path.relative_to(ROOT)) in own | lists:
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            named = {alias.name for alias in node.names} if isinstance(node, ast.ImportFrom) else set()
            named |= {node.id} if isinstance(node, ast.Name) else set()
            named |= {node.attr} if isinstance(node, ast.Attribute) else set()
            found += [f"{short}:{getattr(node, 'lineno', 0)} names {name}" for name in named & names]
    assert not found


def test_nobody_compares_the_name_of_a_kind() -> None:
    names = {kind.kind for kind in KINDS}
    found = []
    for path in ROOT.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.Compare):
                continue
            sides = [node.left, *node.comparators]
            is_kind = any(isinstance(side, ast.Attribute) and ast.unparse(side).endswith("spec.kind") for side in sides)
            if is_kind or (names & {side.value for side in sides if isinstance(side, ast.Constant)} and is_kind):
                found.append(f"{path.relative_to(ROOT)}:{node.lineno}")
    assert not found


def test_each_kind_has_a_file_of_its_own() -> None:
    files = Counter(kind.__module__ for kind in KINDS)
    assert set(files.values()) == {1}


def small_files(folder: Path) -> SourceKind:
    folder.mkdir()
    for number in range(3):
        rows = [{"n": number * 10 + row} for row in range(10)]
        (folder / f"{number}.json").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return sources.files(folder, format="json", schema="n long", follow=False)


MADE: dict[str, Callable[[Path], SourceKind]] = {
    "rate": lambda folder: sources.rate(1_000_000, sources.numbers(), rows=30),
    "files": lambda folder: small_files(folder / "in"),
}


@pytest.mark.parametrize("kind", list(MADE))
@pytest.mark.parametrize("instances", [1, 2, 5])
def test_ranges_hold_every_row_once_and_the_same_rows_again(kind: str, instances: int, tmp_path: Path) -> None:
    """What every source promises that bundles read, whatever its kind."""
    spec = MADE[kind](tmp_path)
    now = [100.0]
    catalog = Catalog.open("sqlite://", "t")
    place = SourcePlace("in", catalog, lambda: now[0], prefix="source/in/")
    offsets = spec.offsets(place)
    start, rows, batches = None, [], []
    for _ in range(100):
        now[0] += 1.0
        offsets.look()
        if offsets.ended:
            break
        if not (available := offsets.available()):
            continue
        end = json.loads(json.dumps(offsets.end(min(available, 7), instances), sort_keys=True))
        offsets.go_to(end)
        batches.append((start, end))
        rows.append(_rows(spec, offsets, start, end, instances))
        offsets.committed(end)
        assert offsets.position == end
        start = end
    assert spec.ends and offsets.ended and offsets.due_in() is None
    everything = [row for some in rows for row in some]
    assert len(everything) == 30 and len({str(row) for row in everything}) == 30
    assert spec.replayable
    assert _rows(spec, offsets, *batches[-1], instances) == rows[-1]
    offsets.close()
    catalog.close()


def _rows(spec: SourceKind, offsets: Any, start: Any, end: Any, instances: int) -> list[Any]:
    loads = [json.loads(json.dumps(one.load)) for one in offsets.ranges(start, end, instances)]
    return [row for load in loads for batch in spec.read(load, None) for row in batch.to_pylist()]


@pytest.mark.parametrize("what", ["source", "sink"])
def test_what_is_no_kind_is_refused_where_it_is_declared(what: str) -> None:
    topology = Topology("t")
    nothing: Any = object()
    with pytest.raises(PenstockError) as caught:
        if what == "source":
            topology.source("x", nothing)
        else:
            topology.sink("x", nothing, inputs=["y"])
    assert caught.value.name == f"BAD_{what.upper()}"


def test_a_sink_can_refuse_rows_when_the_topology_is_declared() -> None:
    topology = Topology("t")
    rows = topology.source("rows", sources.rate(1))
    topology.sink("out", sinks.kafka("nowhere:9092", "t", key="colour"), inputs=[rows])
    with pytest.raises(PenstockError) as caught:
        topology.definition()
    assert caught.value.name == "BAD_SINK"
    assert '"colour"' in caught.value.message


def test_a_kafka_message_holds_what_json_cannot() -> None:
    from penstock.sinks.kafka_sink import KafkaWriter

    batch = pa.record_batch({"user": ["a", None], "n": [1, 2], "raw": [b"\x00", None]})
    spec = sinks.kafka("nowhere:9092", "t", key="user")
    assert KafkaWriter(spec)._values(batch) == [b'{"n": 1, "raw": "AA=="}', b'{"n": 2, "raw": null}']
    by_column = sinks.kafka("nowhere:9092", "t", value="raw", key="n")
    assert KafkaWriter(by_column)._values(batch) == [b"\x00", None]


def test_a_kafka_producer_that_did_not_deliver_is_not_used_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """One with a fatal error refuses everything for ever: Spark's next attempt needs another one."""
    from penstock.sinks import kafka_sink

    kafka = pytest.importorskip("confluent_kafka")

    class Producer:
        def __init__(self, settings: object = None) -> None:
            made.append(self)

        def produce(self, topic: str, on_delivery: Any, **message: Any) -> None:
            if len(made) == 1:
                raise kafka.KafkaException(kafka.KafkaError(kafka.KafkaError._FATAL))
            if len(made) == 2:
                on_delivery(kafka.KafkaError(kafka.KafkaError._FATAL), None)

        def poll(self, seconds: float) -> None: ...

        def flush(self, seconds: float) -> int:
            return 0

    made: list[Producer] = []
    monkeypatch.setattr(kafka, "Producer", Producer)
    monkeypatch.setattr(kafka_sink, "_PRODUCERS", {})
    write = kafka_sink.KafkaWriter(sinks.kafka("nowhere:9092", "t"))
    batch = pa.record_batch({"n": [1]})
    for _ in range(2):
        with pytest.raises(PenstockError) as caught:
            write(batch)
        assert caught.value.name == "KAFKA_NOT_WRITTEN"
    write(batch)
    write(batch)
    assert len(made) == 3


def test_a_source_begins_anew_without_any_of_its_notes(tmp_path: Path) -> None:
    """A kind cannot choose a prefix that the catalog would not delete."""
    assert not [kind for kind in KINDS if hasattr(kind, "notes")]
    catalog = Catalog.open(f"sqlite:///{tmp_path}/catalog.sqlite", "t")
    catalog.change_metas({"source/in/start": "1", "files/in/next": "2", "source/inner/start": "3"})
    catalog.give_up(["in"], [], {}, {})
    assert [catalog.metas(word) for word in ("source/", "files/")] == [{"inner/start": "3"}, {}]
    catalog.close()
