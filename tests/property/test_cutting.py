"""Whatever is in a file: its parts together have the rows that the whole has, in the same order."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pyarrow.fs import LocalFileSystem

from penstock.errors import PenstockError
from penstock.sources import CsvOptions, cutting
from penstock.sources.file_bytes import Part
from penstock.sources.reading import read_rows
from penstock.topology import parse_schema

SCHEMA = parse_schema("a string, b string")
#: Pieces of CSV that make trouble when they meet.
BITS = st.sampled_from(
    ['"', '""', ",", "\n", "\r\n", "x", 'x"', '"x"', '"a\nb"', ' "', '",', '"\n', '5" pipe', "yy", ";"]
)


def rows_of(path: Path, format: str, parts: list[Part], options: CsvOptions | None = None) -> list[tuple[str, ...]]:
    """All rows, good and bad, as they come."""
    found: list[tuple[str, ...]] = []

    def refuse(row: str, error: str) -> None:
        found.append(("bad", row))

    for part in parts:
        for batch in read_rows(LocalFileSystem(), str(path), format, SCHEMA, options, refuse, part):
            found += [tuple(row.values()) for row in batch.to_pylist()]
    return found


def parts_of(cutter: cutting.Cutter, path: Path, least: int) -> list[Part]:
    cuts, at = [0], 0
    while (found := cutter.cut(str(path), at, least)) is not None:
        assert found > at
        cuts.append(found)
        at = found
    return [Part(low, high) for low, high in zip(cuts, [*cuts[1:], None], strict=True)]


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cutting, "PART_BYTES", 1)
    monkeypatch.setattr(cutting, "STEP_BYTES", 1)


@settings(max_examples=400, deadline=None)
@given(
    bits=st.lists(BITS, max_size=60),
    block=st.integers(1, 50),
    least=st.integers(1, 60),
    separator=st.sampled_from([",", ";"]),
    tail=st.sampled_from(["", "\n"]),
    mark=st.sampled_from(["", "\ufeff"]),
)
@example(bits=['"a\nb"', ",", "x", "\n", "yy"], block=50, least=1, separator=",", tail="\n", mark="\ufeff")
def test_parts_of_csv(bits, block, least, separator, tail, mark) -> None:
    options = CsvOptions(header=False, separator=separator)
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        path = Path(folder) / "rows.csv"
        path.write_text(mark + "".join(bits) + tail, newline="")
        patch.setattr(cutting, "BLOCK_BYTES", block)
        parts = parts_of(cutting.Cutter(LocalFileSystem(), "csv", options), path, least)
        assert outcome(path, options, parts) == outcome(path, options, [Part()])


@pytest.mark.parametrize("format", ["csv", "json", "parquet"])
def test_another_file_under_the_same_name_is_cut_between_its_own_rows(format: str, tmp_path: Path) -> None:
    path = tmp_path / "rows"
    cutter = cutting.Cutter(LocalFileSystem(), format, CsvOptions(header=False))

    def write(text: str, count: int) -> None:
        if format == "parquet":
            pq.write_table(pa.table({"a": [text] * count}), path, row_group_size=1)
        else:
            row = f'"{text}\n",b\n' if format == "csv" else json.dumps({"a": text}) + "\n"
            path.write_text(row * count)

    write("x" * 10, 30)
    assert len(parts_of(cutter, path, 20)) > 1
    path.unlink()
    assert cutter.cut(str(path), 0, 20) is None
    write("y" * 37, 9)
    parts = parts_of(cutter, path, 20)
    assert parts == parts_of(cutting.Cutter(LocalFileSystem(), format, CsvOptions(header=False)), path, 20)
    assert rows_of(path, format, parts, CsvOptions(header=False)) == rows_of(
        path, format, [Part()], CsvOptions(header=False)
    )


def test_another_file_of_the_same_size_under_the_same_name(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    cutter = cutting.Cutter(LocalFileSystem(), "csv", CsvOptions(header=False))
    path.write_text("aaa,b\n" * 10)
    parts_of(cutter, path, 1)
    path.write_text('"a\n",b\n' * 8 + "aa,b")
    os.utime(path, ns=(1, 1))
    assert parts_of(cutter, path, 1)[0] == Part(0, 7)


def outcome(path: Path, options: CsvOptions, parts: list[Part]) -> tuple[list[tuple[str, ...]], list[tuple[str, ...]]]:
    """Good rows in their order, and bad ones, such as a quote that is never closed, which are reported block by block;
    or the error, where the file is no CSV."""
    try:
        rows = rows_of(path, "csv", parts, options)
    except PenstockError as error:
        return [(error.name,)], []
    return [row for row in rows if row[0] != "bad"], sorted(row for row in rows if row[0] == "bad")


@settings(max_examples=100, deadline=None)
@given(
    texts=st.lists(st.text(max_size=12), max_size=40),
    blank=st.integers(1, 5),
    least=st.integers(1, 100),
    end=st.sampled_from(["", "\n", "\r\n\n"]),
)
def test_parts_of_json_lines(texts, blank, least, end) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.json"
        lines = [json.dumps({"a": text}) + ("\n" if index % blank else "") for index, text in enumerate(texts)]
        path.write_text("\n".join(lines) + end, newline="")
        cutter = cutting.Cutter(LocalFileSystem(), "json", None)
        parts = parts_of(cutter, path, least)
        whole = rows_of(path, "json", [Part()])
        assert rows_of(path, "json", parts) == whole
        assert [row[0] for row in whole] == texts
        assert rows_of(path, "json", cutter.between(str(path), 0, None, least)) == whole


@settings(max_examples=50, deadline=None)
@given(rows=st.integers(0, 50), group=st.integers(1, 20), least=st.integers(1, 2_000))
def test_parts_of_parquet(rows, group, least) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.parquet"
        pq.write_table(pa.table({"a": [str(row) for row in range(rows)]}), path, row_group_size=group)
        cutter = cutting.Cutter(LocalFileSystem(), "parquet", None)
        parts = parts_of(cutter, path, least)
        assert rows_of(path, "parquet", parts) == [(str(row), None) for row in range(rows)]
        assert len(parts) <= max(-(-rows // group), 1)
