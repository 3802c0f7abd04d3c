"""An old state on disk under a changed declaration: what is read of it, what is deleted, and what a crash leaves."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from penstock import Topology, sinks, sources
from penstock.channels.catalog import Catalog
from penstock.channels.layout import channels_of
from penstock.channels.records import NewSegment, Position
from penstock.channels.segments import SegmentStore, segment_name
from penstock.engine.run.handover import (
    batches_before,
    check_checkpoints,
    check_empty,
    check_segments,
    check_sinks,
    hand_over,
    read_old_state,
    settle,
)
from penstock.engine.state.checkpoints import Checkpoints
from penstock.engine.state.kept_record import KeptRecord
from penstock.engine.state.ownership import Owner
from penstock.engine.state.shape import shape_of
from penstock.engine.state.tasks import begin, record_tasks, recorded_tasks, under_way
from penstock.errors import PenstockError
from penstock.monitor.kept_state import KeptState, Kind
from penstock.topology.definition import TopologyDefinition

SCHEMA = pa.schema([("id", pa.int64())])
OWNER = Owner("t", "0a0b0c0d")


def declared(*names: str, tasks: int = 2, folder: Path | None = None, existing: str = "refuse") -> TopologyDefinition:
    """numbers -> (count, keyed -> counts) and sinks of these names."""
    topology = Topology("t")
    numbers = topology.source("numbers", sources.rate(10, sources.numbers()))
    for name in names:
        if name == "count":
            counted = topology.keyed("count", lambda f: f, inputs=[numbers], key="id", schema="id long", tasks=tasks)
            topology.sink("counts", sinks.noop(), inputs=[counted])
        else:
            spec: Any = sinks.parquet(folder / name, existing=existing) if folder else sinks.noop()
            topology.sink(name, spec, inputs=[numbers])
    return topology.definition()


class World:
    """A state folder without Spark: what runs leave in it, and what a start does with it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.catalog = Catalog.open(f"sqlite:///{folder}/catalog.sqlite", "t")
        self.store = SegmentStore(str(folder / "segments"))
        self.checkpoints = Checkpoints(cast("SparkSession", None), str(folder / "checkpoints"))

    def published(self, operator: str, batch: int, rows: int = 0, read_to: dict[str, int] | None = None) -> None:
        segments = []
        if rows:
            channel = f"{operator}.out"
            batches = [pa.record_batch([list(range(rows))], schema=SCHEMA)]
            written = self.store.write(channel, segment_name(batch, 0), batches, SCHEMA)
            segments = [NewSegment(channel, written.path, written.rows, written.bytes, "local/0", 0.0, 1.0)]
        self.catalog.publish(operator, batch, segments, '{"bundles": []}', read_to or {})
        for log in ("offsets", "commits"):
            path = self.folder / "checkpoints" / operator / log
            path.mkdir(parents=True, exist_ok=True)
            (path / str(batch)).touch()

    def start(self, definition: TopologyDefinition, *forget: str) -> tuple[str, ...]:
        shape = shape_of(definition, {})
        old = read_old_state(self.catalog, self.checkpoints)
        succession = settle(definition, old, shape, forget)
        check_checkpoints(old, [definition.operator(name) for name in succession.carried], self.checkpoints)
        check_segments(definition, old, succession, self.catalog, self.store)
        check_sinks(definition, old, OWNER, shape, succession, self.catalog)
        layout = channels_of(definition)
        return hand_over(self.catalog, old, succession, shape, layout, self.checkpoints, self.store)

    @property
    def left(self) -> set[str]:
        return {path.name for kind in ("checkpoints", "segments") for path in (self.folder / kind).iterdir()}


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path)
    yield world
    world.catalog.close()


def ran(world: World, *names: str, read: int = 30) -> None:
    """Three batches of ten rows, of which each sink and `count` has read so many."""
    world.start(declared(*names))
    for batch in range(3):
        world.published("numbers", batch, rows=10)
    for name in names:
        world.published(name, 0, read_to={"numbers.out": read})
    if "count" in names:
        world.published("count", 1, rows=5)
        world.published("counts", 0, read_to={"count.out": 5})


def test_a_start_on_the_same_declaration_changes_nothing(world: World) -> None:
    ran(world, "out", "count", read=20)
    before = world.catalog.load()
    assert world.start(declared("out", "count")) == ()
    assert world.catalog.load() == before
    assert world.left == {"numbers", "out", "count", "counts", "numbers.out", "count.out"}


def test_what_a_removed_operator_left_goes(world: World) -> None:
    ran(world, "out", "count", "late")
    record_tasks(world.catalog, "count", 4)
    begin(world.catalog, "count", 8)
    kept = (KeptState(next(iter(Kind)), 3),)
    record = KeptRecord(world.catalog, lambda operator: 7)
    for name in ("count", "other"):
        record.note(name, 7, kept)
    record.write()
    told = world.start(declared("out"), "count")
    assert [line.split('"')[1] for line in told] == ["count", "counts", "late"]
    assert world.left == {"numbers", "out", "numbers.out"}
    after = world.catalog.load()
    assert set(after.last_batches) == {"numbers", "out"}
    assert set(after.positions) == {("out", "numbers.out")}
    assert set(after.ends) == {"numbers.out"}
    assert recorded_tasks(world.catalog) == {}
    assert under_way(world.catalog) is None
    assert set(KeptRecord(world.catalog, lambda operator: 7).known) == {"other"}, "nothing is left inside what is gone"
    assert world.start(declared("out")) == ()


def test_an_operator_that_is_added_again_begins_where_its_inputs_end(world: World) -> None:
    ran(world, "out", "late")
    world.start(declared("out"))
    world.published("numbers", 3, rows=10)
    world.published("out", 1, read_to={"numbers.out": 40})
    world.start(declared("out", "late"))
    assert world.catalog.load().positions["late", "numbers.out"] == Position(40, 40)
    assert world.catalog.last_batch("late") is None
    assert batches_before(world.catalog) == {"late": 2}, "it had batch 0, and may have begun another"


def test_batches_before_add_up(world: World) -> None:
    ran(world, "out")
    world.start(declared("out"), "out")
    world.published("out", 0, read_to={"numbers.out": 30})
    world.published("out", 1, read_to={"numbers.out": 30})
    world.start(declared("out"), "out")
    assert batches_before(world.catalog) == {"out": 2 + 3}


def test_rows_that_wait_are_counted_where_nothing_was_read_too(world: World) -> None:
    world.start(declared("out", "late"))
    for batch in range(3):
        world.published("numbers", batch, rows=10)
    world.published("out", 0, read_to={"numbers.out": 20})
    old = read_old_state(world.catalog, world.checkpoints)
    assert old.unread == {("out", "numbers.out"): 10, ("late", "numbers.out"): 30}
    with pytest.raises(PenstockError) as caught:
        world.start(declared("other"))
    assert caught.value.name == "STATE_DOES_NOT_FIT"
    assert '"out"' in caught.value.message
    assert "30 rows" in caught.value.message
    assert caught.value.hint.endswith("--forget out --forget late.")
    assert world.catalog.load().ends == {"numbers.out": 30}, "nothing was touched"
    assert world.left == {"numbers", "out", "numbers.out"}


def test_what_crashed_after_the_checkpoint_was_deleted_is_not_taken_for_whole(world: World) -> None:
    ran(world, "out", "count")
    world.checkpoints.drop("count")
    with pytest.raises(PenstockError) as caught:
        world.start(declared("out", "count"))
    assert "--forget count" in caught.value.hint
    world.start(declared("out", "count"), "count")
    assert world.catalog.last_batch("count") is None


def test_what_crashed_before_files_were_deleted_is_swept_by_the_next_start(world: World) -> None:
    ran(world, "out", "late")
    for left in ("checkpoints/gone/offsets", "segments/gone.out", "checkpoints/notes", "segments/notes"):
        (world.folder / left).mkdir(parents=True)
    (world.folder / "segments" / "gone.out" / segment_name(0, 0)).touch()
    (world.folder / "segments" / "notes" / "todo.txt").touch()
    world.start(declared("out", "late"))
    assert "gone" not in world.left
    assert "gone.out" not in world.left
    assert "notes" in world.left, "what is not ours is not deleted"
    assert (world.folder / "segments" / "notes" / "todo.txt").exists()


def test_checkpoints_without_their_catalog_are_refused(world: World) -> None:
    check_empty(declared("out"), world.checkpoints)
    ran(world, "out")
    with pytest.raises(PenstockError) as caught:
        check_empty(declared("out"), world.checkpoints)
    assert caught.value.name == "STATE_DOES_NOT_FIT"
    assert '"numbers"' in caught.value.message or '"out"' in caught.value.message


def test_operators_that_an_older_penstock_left_behind_do_not_come_back(world: World) -> None:
    """It forgot the shape of a removed operator, and kept its batches, position and checkpoint."""
    ran(world, "out")
    world.published("late", 4, read_to={"numbers.out": 10})
    world.start(declared("out", "late"))
    assert world.catalog.last_batch("late") is None
    assert world.catalog.load().positions["late", "numbers.out"] == Position(30, 30)
    assert not world.checkpoints.has("late")


def test_files_of_a_source_are_forgotten_with_it(world: World) -> None:
    ran(world, "out")
    for name in ("numbers", "numbers2"):
        world.catalog.set_meta(f"files/{name}/parts", "1")
    world.start(declared("out"), "numbers")
    assert world.catalog.get_meta("files/numbers/parts") is None
    assert world.catalog.get_meta("files/numbers2/parts") == "1"
    assert world.catalog.load().ends == {"numbers.out": 30}, "what it emitted goes on"


def test_segments_that_are_not_where_they_are_looked_for_are_refused(world: World) -> None:
    ran(world, "out", read=10)
    world.store = SegmentStore(str(world.folder / "elsewhere"))
    with pytest.raises(PenstockError) as caught:
        world.start(declared("out"))
    assert caught.value.name == "STATE_DOES_NOT_FIT"
    assert "numbers.out" in caught.value.message
    assert "--forget out" in caught.value.hint
    world.start(declared("out"), "out")


def test_segments_that_were_read_may_be_gone(world: World) -> None:
    ran(world, "out", read=20)
    first, second, third = sorted(path.name for path in (world.folder / "segments" / "numbers.out").iterdir())
    world.store.delete([f"numbers.out/{first}", f"numbers.out/{second}"])
    world.start(declared("out"))
    world.store.delete([f"numbers.out/{third}"])
    with pytest.raises(PenstockError) as caught:
        world.start(declared("out"))
    assert third in caught.value.message


@pytest.mark.parametrize(
    ("file", "refused"),
    [
        ("part-0000000001-00000-{}-out.parquet", True),
        ("part-0000000001-00000.1-{}-out.parquet", True),
        ("part-0000000003-00000-{}-out.numbers.parquet", True),
        ("part-0000000000-00000-{}-out.parquet", False),
        ("part-0000000002-00000-{}-out.numbers.parquet", False),
        ("part-0000000009-00000-{}x4-out.parquet", False),
        ("part-0000000009-00000-{}-out.numbers.4.parquet", False),
        ("part-0000000009-00000-{}-out-too.parquet", False),
        ("part-0000000009-00000-ffffffff-out.parquet", False),
    ],
)
def test_a_restored_state_does_not_write_behind_the_rows_of_the_newer_one(
    world: World, tmp_path: Path, file: str, refused: bool
) -> None:
    """Its next batch would have the name of another one: some rows would be lost, and others would be there twice."""
    data = tmp_path / "data"
    world.start(declared("out", folder=data))
    for batch in range(3):
        world.published("numbers", batch, rows=10)
    world.published("out", 0, read_to={"numbers.out": 10})
    (data / "out").mkdir(parents=True)
    (data / "out" / file.format(OWNER.identity)).touch()
    if not refused:
        world.start(declared("out", folder=data))
        return
    with pytest.raises(PenstockError) as caught:
        world.start(declared("out", folder=data))
    assert caught.value.name == "STATE_DOES_NOT_FIT"
    assert file.format(OWNER.identity) in caught.value.message
    world.start(declared("out", folder=data), "out")  # it begins anew, with other names
    (data / "out" / f"part-0000000000-00000-{OWNER.identity}x2-out.parquet").touch()
    with pytest.raises(PenstockError) as caught:
        world.start(declared("out", folder=data))
    assert "x2-out" in caught.value.message


def test_a_sink_of_a_chain_keeps_its_names_also_if_it_is_forgotten(world: World, tmp_path: Path) -> None:
    """It has published nothing of its own: its files have the batch numbers of the chain's first operator."""
    data = tmp_path / "data"
    world.start(declared("out", folder=data))
    world.published("numbers", 0, rows=10)
    (data / "out").mkdir(parents=True)
    (data / "out" / f"part-0000000001-00000-{OWNER.identity}-out.numbers.parquet").touch()
    for forget in ((), ("out",)):
        with pytest.raises(PenstockError) as caught:
            world.start(declared("out", folder=data), *forget)
        assert caught.value.name == "STATE_DOES_NOT_FIT"


def test_nobody_can_forget_what_nobody_knows(world: World) -> None:
    with pytest.raises(PenstockError) as caught:
        world.start(declared("out"), "ouch")
    assert caught.value.name == "UNKNOWN_OPERATOR"
    assert "out" in caught.value.hint


def test_folders_of_sinks(world: World, tmp_path: Path) -> None:
    data = tmp_path / "data"
    world.start(declared("out", folder=data))
    (data / "out").mkdir(parents=True)
    (data / "out" / "part-0000000000-00000-ffffffff-out.parquet").touch()
    # It goes on there, whoever else wrote meanwhile, also when it begins anew.
    world.start(declared("out", folder=data))
    world.start(declared("out", folder=data), "out")
    moved = tmp_path / "moved"
    (moved / "out").mkdir(parents=True)
    for name in (f"part-0000000007-00000-{OWNER.identity}x9-out.parquet", "_staging", ".hidden"):
        (moved / "out" / name).touch()
    world.start(declared("out", folder=moved))  # what is there is its own, from before
    (moved / "late").mkdir()
    (moved / "late" / "year=2025").mkdir()
    with pytest.raises(PenstockError) as caught:
        world.start(declared("out", "late", folder=moved))
    assert caught.value.name == "SINK_NOT_EMPTY"
    assert '"late"' in caught.value.message
    assert "year=2025" in caught.value.message
    for before in (declared("out", folder=moved), declared("out")):
        world.start(before)
    with pytest.raises(PenstockError) as caught:
        world.start(declared("out", folder=data))
    assert caught.value.name == "SINK_NOT_EMPTY", "another folder than the one it has been writing to"
    world.start(declared("out", "late", folder=moved, existing="append"))
