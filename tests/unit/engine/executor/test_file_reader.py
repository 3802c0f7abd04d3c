"""Files of a source that cannot be read, as one of many."""

from __future__ import annotations

import gzip
import io
import os
from pathlib import Path

import pyarrow as pa
import pyarrow.csv as pv
import pyarrow.parquet as pq
import pytest

from penstock import sources
from penstock.engine.executor.readers import SourceReader
from penstock.engine.message.shares import Descriptor
from penstock.errors import PenstockError


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for number in (0, 3):
        pq.write_table(pa.table({"id": [number]}), tmp_path / f"{number}.parquet")
    (tmp_path / "1.parquet").write_bytes(b"no Parquet at all")
    return tmp_path


def read(folder: Path, names: list[str], bad: list[tuple[str, str]] | None) -> list[int]:
    spec = sources.files(str(folder), format="parquet", schema="id long")
    files = [[[str(folder / name), 0, None], 1] for name in names]
    descriptor = Descriptor("a/0", 1, (), {"ranges": files, "born": [0.0, 0.0]})
    refuse = None if bad is None else [lambda row, error: bad.append((row, error))]
    [portions] = SourceReader(spec).read(descriptor, refuse)
    return [row for _, batch in portions for row in batch.column("id").to_pylist()]


def test_a_file_that_cannot_be_read_counts_as_one_bad_row_and_the_others_go_on(folder: Path) -> None:
    bad: list[tuple[str, str]] = []
    assert read(folder, ["0.parquet", "1.parquet", "3.parquet"], bad) == [0, 3]
    assert [Path(row).name for row, _ in bad] == ["1.parquet"]
    assert "cannot be read as Parquet" in bad[0][1]


def test_a_header_that_cannot_be_read_counts_as_one_bad_row_of_its_file(tmp_path: Path) -> None:
    (tmp_path / "0.csv").write_text("x" * 200_000 + ",n\n1,2\n")
    (tmp_path / "1.csv").write_bytes(b"Gr\xf6\xdfe,n\n1,2\n")
    spec = sources.files(str(tmp_path), format="csv", schema="n long")
    files = [[[str(tmp_path / name), 0, None], 1] for name in ("0.csv", "1.csv")]
    descriptor = Descriptor("a/0", 1, (), {"ranges": files, "born": [0.0, 0.0]})
    bad: list[tuple[str, str]] = []
    [portions] = SourceReader(spec).read(descriptor, [lambda row, error: bad.append((row, error))])
    assert [row for _, batch in portions for row in batch.column("n").to_pylist()] == [2]
    assert [Path(row).name for row, _ in bad] == ["0.csv"]


def test_without_a_place_for_bad_rows_it_is_a_named_error(folder: Path) -> None:
    with pytest.raises(PenstockError) as error:
        read(folder, ["0.parquet", "1.parquet"], None)
    assert error.value.name == "BAD_SOURCE"
    assert "1.parquet" in error.value.message


@pytest.mark.parametrize("bad", [[], None])
def test_a_file_that_is_not_there_is_no_bad_row(folder: Path, bad: list[tuple[str, str]] | None) -> None:
    """It may be there for others: a machine without the folder would make one bad row of every file."""
    with pytest.raises(PenstockError) as error:
        read(folder, ["0.parquet", "gone.parquet"], bad)
    assert error.value.name == "FILE_UNREADABLE"
    assert "gone.parquet" in error.value.message
    assert not bad


@pytest.mark.parametrize("name", ["rows.json", "rows.csv", "rows.csv.gz", "rows.parquet"])
@pytest.mark.parametrize("part", [[0, None], [5, None], [5, 9]])
def test_what_is_advised_for_a_deleted_file_works(name: str, part: list[int | None], tmp_path: Path) -> None:
    path, format = tmp_path / name, name.split(".")[1]
    spec = sources.files(str(tmp_path), format=format, schema=SCHEMA)
    descriptor = Descriptor("a/0", 1, (), {"ranges": [[[str(path), *part], 9]], "born": [0.0, 0.0]})

    def rows() -> int:
        [portions] = SourceReader(spec).read(descriptor, None)
        return sum(batch.num_rows for _, batch in portions)

    with pytest.raises(PenstockError) as error:
        rows()
    assert error.value.hint is not None
    assert "an empty one, or for Parquet one that has only the columns" in error.value.hint
    if format == "parquet":
        pq.write_table(pa.table({"n": pa.array([], pa.int64())}), path)
    else:
        path.touch()
    assert rows() == 0


# Bytes that cannot be fetched in the middle of a file

SCHEMA = "n long, text string"
ROWS = 30_000


class Failing(io.FileIO):
    """A file that can be read up to a point, and then raises."""

    def __init__(self, path: str, after: int, error: Exception) -> None:
        super().__init__(path)
        self.after = after
        self.error = error

    def read(self, size: int = -1) -> bytes:
        if self.tell() < 4096 or self.tell() > self.stat_size() - 20_000:  # the header, or Parquet's footer
            return super().read(size)
        if self.tell() + max(size, 0) > self.after:
            raise self.error
        return super().read(size)

    def stat_size(self) -> int:
        return os.fstat(self.fileno()).st_size


class FailingFileSystem:
    """As much of a file system as readers use. It fails once, and is well then."""

    def __init__(self, after: int, error: Exception) -> None:
        self.after = after
        self.error: Exception | None = error

    def open_input_file(self, path: str) -> pa.NativeFile:
        error, self.error = self.error, None
        return pa.PythonFile(Failing(path, self.after, error) if error else io.FileIO(path), mode="r")

    def open_input_stream(self, path: str) -> pa.NativeFile:
        raw = self.open_input_file(path)
        return pa.CompressedInputStream(raw, "gzip") if path.endswith(".gz") else raw


def write_rows(path: Path, format: str) -> None:
    table = pa.table({"n": range(ROWS), "text": [f"row {number * 7919 % ROWS}" for number in range(ROWS)]})
    file = io.BytesIO()
    if format == "parquet":
        pq.write_table(table, file, row_group_size=ROWS // 10)
    elif format == "csv":
        pv.write_csv(table, file)
    else:
        file.write(b"".join(b'{"n": %d, "text": "row"}\n' % number for number in range(ROWS)))
    path.write_bytes(gzip.compress(file.getvalue()) if path.suffix == ".gz" else file.getvalue())


@pytest.mark.parametrize(
    "error",
    [TimeoutError(110, "timed out"), OSError("no route to the store"), MemoryError("malloc"), PermissionError()],
)
@pytest.mark.parametrize("name", ["rows.json", "rows.csv", "rows.parquet", "rows.csv.gz"])
def test_bytes_that_cannot_be_fetched_are_no_bad_row(
    name: str, error: Exception, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    format = name.split(".")[1]
    write_rows(tmp_path / name, format)
    size = (tmp_path / name).stat().st_size
    failing = FailingFileSystem(size // 2, error)
    monkeypatch.setattr("penstock.sources.json_lines.BLOCK_BYTES", 1 << 16)
    monkeypatch.setattr("penstock.sources.csv_rows.BLOCK_BYTES", 1 << 16)
    monkeypatch.setattr("penstock.sources.file_source.open_filesystem", lambda path: (failing, path))
    if format == "csv":  # which is opened twice: for the names of the columns, and then for the rows
        monkeypatch.setattr("penstock.sources.csv_rows.CsvFile._names", lambda self: ["n", "text"])
    spec = sources.files(str(tmp_path), format=format, schema=SCHEMA)
    descriptor = Descriptor("a/0", 1, (), {"ranges": [[[str(tmp_path / name), 0, None], size]], "born": [0.0, 0.0]})
    bad: list[tuple[str, str]] = []

    def attempt() -> int:
        [portions] = SourceReader(spec).read(descriptor, [lambda row, why: bad.append((row, why))])
        return sum(batch.num_rows for _, batch in portions)

    with pytest.raises((PenstockError, MemoryError)) as caught:
        attempt()
    assert bad == []
    if isinstance(caught.value, PenstockError):
        assert caught.value.name == "FILE_UNREADABLE"
        assert name in caught.value.message
    assert attempt() == ROWS, "the next attempt has all rows"
    assert bad == []


@pytest.mark.parametrize("error", [pa.ArrowMemoryError("malloc of size 64 failed"), pa.ArrowCancelled("cancelled")])
def test_no_memory_for_what_is_in_a_file_is_no_bad_row(
    error: Exception, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr("penstock.sources.parquet_rows.keep_good", fail)
    bad: list[tuple[str, str]] = []
    with pytest.raises(type(error)):
        read(folder, ["0.parquet"], bad)
    assert bad == []


@pytest.mark.parametrize("name", ["rows.parquet", "rows.csv.gz"])
@pytest.mark.parametrize("damage", ["overwritten", "cut off"])
def test_what_is_broken_inside_a_file_is_one_bad_row(name: str, damage: str, tmp_path: Path) -> None:
    """pyarrow raises OSError for these as well."""
    path, format = tmp_path / name, name.split(".")[1]
    write_rows(path, format)
    data = bytearray(path.read_bytes())
    if damage == "cut off":
        del data[len(data) // 2 :]
    else:
        data[len(data) // 2 : len(data) // 2 + 4000] = bytes(4000)
    path.write_bytes(data)
    spec = sources.files(str(tmp_path), format=format, schema=SCHEMA)
    descriptor = Descriptor("a/0", 1, (), {"ranges": [[[str(path), 0, None], len(data)]], "born": [0.0, 0.0]})
    bad: list[tuple[str, str]] = []
    [portions] = SourceReader(spec).read(descriptor, [lambda row, why: bad.append((row, why))])
    assert sum(batch.num_rows for _, batch in portions) < ROWS
    assert "the file cannot be read (further)" in bad[-1][1]
