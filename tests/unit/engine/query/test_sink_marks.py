"""A sink that begins anew counts its batches from 0 again: it neither replaces what it wrote nor takes it for done."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pyarrow as pa

from penstock import sinks
from penstock.engine.query.context import mark_of
from penstock.engine.run.opening import clear_left_sinks
from penstock.engine.state.ownership import Owner
from penstock.sinks.function_sink import FunctionWriter
from penstock.sinks.jdbc_sink import JdbcWriter
from penstock.sinks.parquet_sink import ParquetWriter


def test_marks_of_two_beginnings_differ_and_so_do_the_names_they_are_in(tmp_path: Path) -> None:
    marks = [mark_of("0a0b0c0d", "out", before) for before in (0, 7)]
    rows = pa.record_batch([[1]], names=["id"])
    finals = {ParquetWriter(str(tmp_path), mark).write([rows], "part-0000000000-00000")[1] for mark in marks}
    assert len(finals) == 2
    spec = sinks.jdbc("jdbc:postgresql://host/db", "counts", batch_column="batch")
    assert len({JdbcWriter(spec, mark).number(0) for mark in marks}) == 2


def test_a_function_never_sees_a_number_again_for_other_rows() -> None:
    seen: list[int] = []
    spec = sinks.function(lambda frame, batch: seen.append(batch))
    for writer in (FunctionWriter(spec), FunctionWriter(spec, before=2)):
        writer.write(cast("Any", None), 0)
    assert seen == [0, 2]


def test_what_is_staged_is_cleared_however_often_its_sink_began_anew(tmp_path: Path) -> None:
    staging = tmp_path / "_staging"
    staging.mkdir()
    own = [mark_of("0a0b0c0d", "out", before) for before in (0, 7, 12)]
    own.append(f"{own[1]}.numbers.3")  # written by the query of a chain
    others = [mark_of("ffffffff", "out", 0), mark_of("0a0b0c0d", "other", 0), mark_of("0a0b0c0d", "out-2", 0)]
    for mark in (*own, *others):
        (staging / f"part-0000000000-00000-{mark}-{'0' * 32}.parquet").touch()
    ParquetWriter(str(tmp_path), own[1]).clear()
    assert sorted(path.name.split("-", 3)[3].rpartition("-")[0] for path in staging.iterdir()) == sorted(others)


def test_what_is_staged_for_a_sink_that_is_gone_or_writes_elsewhere_now_is_cleared(tmp_path: Path) -> None:
    def staged(folder: str, sink: str, identity: str = "0a0b0c0d") -> Path:
        path = tmp_path / folder / "_staging" / f"part-0000000000-00000-{identity}-{sink}-{'0' * 32}.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
        return path

    gone, moved, stays = staged("gone", "gone"), staged("before", "moved"), staged("stays", "stays")
    others = [staged("gone", "other"), staged("gone", "gone", "ffffffff"), staged("now", "moved")]
    folders = {"gone": "gone", "moved": "before", "stays": "stays"}
    old: dict[str, Any] = {sink: {"folder": str(tmp_path / folder)} for sink, folder in folders.items()}
    old |= {"numbers": {}, "printed": {"folder": None}, "unknown": {"folder": "nosuch://bucket/rows"}}
    declared = {sink: {"folder": str(tmp_path / folder)} for sink, folder in (("moved", "now"), ("stays", "stays"))}
    clear_left_sinks(old, declared, Owner("t", "0a0b0c0d"))
    assert not gone.exists()
    assert not moved.exists()
    assert all(path.exists() for path in (*others, stays)), "of others, or cleared by the sink that writes there"
