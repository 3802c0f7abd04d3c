"""Files of a Parquet sink, from staged to final: one that is nowhere is an error, and never counts as written."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow.parquet as pq
import pytest

from penstock import Settings, sources
from penstock.channels.catalog import Catalog
from penstock.engine.query import publisher
from penstock.engine.query.frames import OperatorFrame
from penstock.engine.query.micro_batches import MicroBatches
from penstock.engine.query.staged_files import check_staged, finish_files
from penstock.engine.run.opening import finish_sinks
from penstock.errors import PenstockError
from penstock.kinds import SinkPlace
from penstock.monitor.report import BatchReport, BundleReport
from penstock.sinks.parquet_sink import ParquetSink, ParquetWriter

ROWS = sources.numbers().rows(0, 20)


@pytest.fixture
def writer(tmp_path: Path) -> ParquetWriter:
    return ParquetWriter(str(tmp_path / "out"), "mark")


@pytest.fixture
def catalog(tmp_path: Path):
    catalog = Catalog.open(f"sqlite:///{tmp_path}/catalog.sqlite", "t")
    yield catalog
    catalog.close()


def report_of(*staged: tuple[str, str], batch: int = 7, operator: str = "out") -> BatchReport:
    bundle = BundleReport("local/0", 1, 0, None, "", 0, 0, 0, {}, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, staged=staged)
    return BatchReport(operator, batch, 0.0, 0.0, 0, {}, (bundle,))


def staged_path(file: tuple[str, str]) -> Path:
    return Path(file[0].rpartition("|")[2])


def test_a_staged_file_that_the_driver_cannot_see_is_an_error_before_the_batch_is_published(writer) -> None:
    first, second = writer.write([ROWS], "part-7-0"), writer.write([ROWS], "part-7-1")
    check_staged(report_of(first, second))
    staged_path(second).unlink()  # as on the disk of another machine
    with pytest.raises(PenstockError) as error:
        check_staged(report_of(first, second))
    assert error.value.name == "SINK_NOT_SHARED"
    assert str(staged_path(second)) in error.value.message
    assert "share" in error.value.hint


def test_a_file_that_is_neither_staged_nor_final_is_an_error(writer, catalog) -> None:
    file = writer.write([ROWS], "part-7-0")
    staged_path(file).unlink()
    with pytest.raises(PenstockError) as error:
        finish_files(report_of(file), catalog)
    assert error.value.name == "SINK_FILE_LOST"
    assert str(staged_path(file)) in error.value.message
    assert file[1] in error.value.message


def test_files_that_were_finished_before_the_driver_died_are_left_as_they_are(writer, catalog) -> None:
    first, second = writer.write([ROWS], "part-7-0"), writer.write([ROWS], "part-7-1")
    finish_files(report_of(first), catalog)
    finish_files(report_of(first, second), catalog)
    assert [pq.read_table(path).num_rows for path in (first[1], second[1])] == [20, 20]


@pytest.mark.parametrize("operator", ["out", "first-of-a-chain"])
def test_a_start_finishes_what_is_staged_and_misses_what_is_lost(operator, writer, catalog) -> None:
    file = writer.write([ROWS], "part-7-0")
    catalog.publish(operator, 7, [], report_of(file, operator=operator).as_json(), {})
    finish_sinks([operator, "other"], catalog)
    assert pq.read_table(file[1]).num_rows == 20
    lost = writer.write([ROWS], "part-8-0")
    catalog.publish(operator, 8, [], report_of(lost, batch=8, operator=operator).as_json(), {})
    staged_path(lost).unlink()
    with pytest.raises(PenstockError) as error:
        finish_sinks([operator, "other"], catalog)
    assert error.value.name == "SINK_FILE_LOST"
    Path(lost[1]).touch()  # what the error advises to who can do without
    finish_sinks([operator, "other"], catalog)


def test_a_final_file_that_somebody_has_taken_away_is_not_missed(writer, catalog) -> None:
    """Programs behind a folder take files out of it: once a file was there under its final name, it is theirs."""
    file = writer.write([ROWS], "part-7-0")
    catalog.publish("out", 7, [], report_of(file).as_json(), {})
    finish_files(report_of(file), catalog)
    Path(file[1]).unlink()
    finish_sinks(["out"], catalog)


def test_a_final_file_that_is_taken_away_before_the_others_have_their_names_is_not_missed(writer, catalog) -> None:
    """A disk without room for another name, or a kill, comes between the files of a batch."""
    first, second = writer.write([ROWS], "part-7-0"), writer.write([ROWS], "part-7-1")
    catalog.publish("out", 7, [], report_of(first, second).as_json(), {})
    (in_the_way := Path(second[1]) / "x").mkdir(parents=True)
    with pytest.raises(OSError, match="part-7-1"):
        finish_files(report_of(first, second), catalog)
    Path(first[1]).unlink()
    in_the_way.rmdir()
    in_the_way.parent.rmdir()
    finish_sinks(["out"], catalog)
    assert pq.read_table(second[1]).num_rows == 20


def test_what_must_survive_a_power_cut_is_on_the_disk_before_it_counts(
    tmp_path: Path, catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []
    real, noted = os.fsync, catalog.set_meta

    def fsync(handle: int) -> None:
        synced.append(Path(f"/proc/self/fd/{handle}").readlink().name)
        real(handle)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(catalog, "set_meta", lambda *one: (synced.append("noted"), noted(*one)))
    durable = ParquetSink(str(tmp_path / "out")).file_writer(SinkPlace("out", "mark", durable=True))
    file = durable.write([ROWS], "part-7-0")
    assert synced == [staged_path(file).name, "_staging"]
    finish_files(report_of(file), catalog, durable=True)
    assert synced[2:] == ["noted", "out"], "its name too"
    synced.clear()
    plain = ParquetSink(str(tmp_path / "out")).file_writer(SinkPlace("out", "mark"))
    finish_files(report_of(plain.write([ROWS], "part-8-0"), batch=8), catalog)
    assert synced == ["noted"]


def test_a_staged_file_is_moved_whatever_the_catalog_says(writer, catalog) -> None:
    """A power cut may undo a move that the catalog remembers: then the file is back where it was staged."""
    file = writer.write([ROWS], "part-7-0")
    catalog.publish("out", 7, [], report_of(file).as_json(), {})
    finish_files(report_of(file), catalog)
    Path(file[1]).rename(staged_path(file))
    finish_sinks(["out"], catalog)
    assert pq.read_table(file[1]).num_rows == 20


def test_a_batch_that_is_written_again_replaces_itself(writer, catalog, tmp_path: Path) -> None:
    for _ in range(2):
        finish_files(report_of(writer.write([ROWS], "part-7-0")), catalog)
        assert [path.name for path in (tmp_path / "out").glob("*.parquet")] == ["part-7-0-mark.parquet"]
    assert list((tmp_path / "out" / "_staging").iterdir()) == []


def test_a_replay_of_a_batch_that_was_published_gives_its_files_their_names(
    writer, catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk that is full in the moment after a batch was published: its query ends and is started again, and Spark
    asks for the batch once more, which is not to run again."""
    file = writer.write([ROWS], "part-7-0")
    catalog.publish("out", 7, [], report_of(file).as_json(), {})
    monkeypatch.setattr(publisher, "check_batch", lambda *asked: None)  # it fits
    ended: list[int] = []
    channels = SimpleNamespace(last_batch=lambda name: 7, catalog=catalog)
    # Only what a replay asks for, without Spark.
    chain: Any = [SimpleNamespace(name="out")]
    context: Any = SimpleNamespace(channels=channels, checkpoint_log=lambda name: None, settings=Settings())
    frame: Any = OperatorFrame(None, [])  # type: ignore[arg-type]
    intake: Any = SimpleNamespace(ended=lambda work, busy: ended.append(work))
    nothing: Any = None
    batches = MicroBatches(chain, context, frame, intake, nothing, nothing)
    assert not batches.wants(7)
    assert ended == [0]
    assert pq.read_table(file[1]).num_rows == 20
    assert not batches.wants(7), "again it changes nothing"
