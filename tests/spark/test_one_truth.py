"""Spark's checkpoints and the catalog tell of the same batches, or nothing is run and nothing is deleted."""

from __future__ import annotations

import dataclasses
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import TEST_SETTINGS, NoRoom
from pyspark.sql import DataFrame, SparkSession
from test_sources_and_sinks import NUMBERS, until, write_numbers
from written_rows import WAIT, column_of

from penstock import PenstockError, Topology, sinks, sources
from penstock.channels.catalog import Catalog
from penstock.engine.spark.host import SparkHost

#: Apart, so that there is a channel with segments that could be swept.
APART = dataclasses.replace(TEST_SETTINGS, chaining="off")


def spark_rate(spark: SparkSession) -> DataFrame:
    frame = spark.readStream.format("rate").option("rowsPerSecond", 200).option("numPartitions", 2).load()
    return frame.selectExpr("value")


def reading(kind: str, folder: Path) -> Topology:
    spec = {
        "rate": sources.rate(1_000, sources.numbers()),
        "files": sources.files(folder / "in", format="json", schema=NUMBERS),
        "dataframe": sources.dataframe(spark_rate, schema="value long"),
    }[kind]
    topology = Topology("true")
    topology.sink("out", sinks.parquet(folder / "out"), inputs=[topology.source("rows", spec)])
    return topology


class Kept:
    """A topology that is run for some batches again and again, on one state folder of which a copy is made."""

    def __init__(self, kind: str, host: SparkHost, running: Callable, folder: Path) -> None:
        self.topology = reading(kind, folder)
        self.host, self.running, self.folder = host, running, folder
        self.state = folder / "kept"
        self.files = 0
        (folder / "in").mkdir()

    def run(self, batches: int = 3) -> None:
        """As many batches of the source, at least, as asked for."""
        with self.running(self.topology, self.host, state="kept", settings=APART) as run:
            for _ in range(batches):
                last = run.channels.last_batch("rows")
                write_numbers(self.folder / "in" / f"{self.files}.json", self.files * 10, 10)
                self.files += 1
                until(run, lambda last=last: run.channels.last_batch("rows") != last)

    def copy(self) -> None:
        shutil.copytree(self.state, self.folder / "copy", ignore=shutil.ignore_patterns("*lock"))

    def restore(self, *patterns: str) -> None:
        """What fits the patterns is as it was when the copy was made."""
        for pattern in patterns:
            for path in self.state.rglob(pattern):
                if path.is_file() and path.suffix != ".lock":
                    path.unlink()
            for path in (self.folder / "copy").rglob(pattern):
                if path.is_file():
                    place = self.state / path.relative_to(self.folder / "copy")
                    place.parent.mkdir(parents=True, exist_ok=True)
                    shutil.copy2(path, place)

    def plant_orphan(self) -> Path:
        """A file that a sweep would delete."""
        channel = next(path for path in (self.state / "segments").rglob("rows.*") if path.is_dir())
        orphan = channel / f"{99:010d}-00000-{'0' * 32}.arrow"
        orphan.touch()
        return orphan

    def batches(self) -> list[tuple]:
        with sqlite3.connect(self.state / "catalog.sqlite") as catalog:
            return catalog.execute("SELECT operator, batch, manifest FROM penstock_batches ORDER BY 1, 2").fetchall()

    def refused(self) -> PenstockError:
        """The error of a start that changes nothing."""
        orphan, batches = self.plant_orphan(), self.batches()
        with pytest.raises(PenstockError) as caught:
            self.run(3)
        assert orphan.exists(), "it was swept before anything was refused"
        assert self.batches() == batches
        return caught.value


@pytest.mark.parametrize("kind", ["rate", "files", "dataframe"])
def test_a_checkpoint_behind_the_catalog_is_refused(
    kind: str, local_host: SparkHost, running: Callable, no_room: NoRoom, tmp_path: Path
) -> None:
    """Its new batches have the numbers of published ones: taken for replays, their rows would be lost."""
    kept = Kept(kind, local_host, running, tmp_path)
    with no_room():
        kept.run(2)
        kept.copy()
        kept.run(2)
        kept.restore("rows/offsets/*", "rows/commits/*")
        error = kept.refused()
    assert error.name == "STATE_DOES_NOT_FIT"
    assert "rows" in error.message


@pytest.mark.parametrize("kind", ["rate", "files"])
def test_bundles_stand_where_micro_batches_have_ended(
    kind: str, local_host: SparkHost, running: Callable, no_room: NoRoom, tmp_path: Path
) -> None:
    kept = Kept(kind, local_host, running, tmp_path)
    with no_room():
        kept.run(2)
    before = column_of(tmp_path / "out", "id")
    kept.run(2)
    ids = column_of(tmp_path / "out", "id")
    assert ids == list(range(len(ids)))
    assert len(ids) > len(before) > 0


@pytest.mark.parametrize("before", [True, False])
def test_bundles_that_stood_and_can_no_longer_stand_are_refused(
    before: bool, local_host: SparkHost, running: Callable, no_room: NoRoom, tmp_path: Path
) -> None:
    """Whether micro-batches have run `before` or not: Spark knows nothing of what the bundles have published."""
    kept = Kept("files", local_host, running, tmp_path)
    if before:
        with no_room():
            kept.run(2)
    kept.run(2)
    with no_room():
        error = kept.refused()
    assert error.name == "STATE_DOES_NOT_FIT"
    assert "spark.executor.cores" in str(error)
    stood = column_of(tmp_path / "out", "id")
    kept.run(1)
    ids = column_of(tmp_path / "out", "id")
    assert ids == list(range(len(ids)))
    assert len(ids) > len(stood), "they go on where they can stand"


def test_a_catalog_behind_the_checkpoints_is_refused(local_host: SparkHost, running: Callable, tmp_path: Path) -> None:
    kept = Kept("rate", local_host, running, tmp_path)
    kept.run(2)
    kept.copy()
    kept.run(2)
    kept.restore("catalog.sqlite*")
    assert kept.refused().name == "CATALOG_WENT_BACK"


def test_a_whole_copy_goes_on(local_host: SparkHost, running: Callable, tmp_path: Path) -> None:
    """Checkpoints and catalog of the same moment: nothing is missing and nothing is there twice."""
    kept = Kept("files", local_host, running, tmp_path)
    kept.run(2)
    kept.copy()
    kept.run(1)
    kept.restore("catalog.sqlite*", "checkpoints/**/*", "published.json")
    shutil.rmtree(tmp_path / "out")
    kept.run(1)
    ids = column_of(tmp_path / "out", "id")
    assert ids == list(range(20, 20 + len(ids)))
    assert ids


def test_a_driver_that_was_replaced_ends(local_host: SparkHost, running: Callable, tmp_path: Path) -> None:
    state = tmp_path / "kept"
    with pytest.raises(PenstockError) as caught, running(reading("rate", tmp_path), local_host, "kept", APART) as run:
        until(run, lambda: run.channels.last_batch("out") is not None)
        [lock] = state.glob("catalog*.lock")
        lock.unlink()  # what a server that is restarted does to a lock of PostgreSQL
        other = Catalog.open(f"sqlite:///{state}/catalog.sqlite", "true")
        other.hold()
        found = other.load()
        run.wait(WAIT)
    assert caught.value.name == "STATE_TAKEN_OVER"
    assert other.load() == found
    other.close()
