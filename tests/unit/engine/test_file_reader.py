"""Files of a source that cannot be read, as one of many."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock import sources
from penstock.engine.readers import FileReader
from penstock.engine.splitting import Descriptor
from penstock.errors import PenstockError


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for number in (0, 3):
        pq.write_table(pa.table({"id": [number]}), tmp_path / f"{number}.parquet")
    (tmp_path / "1.parquet").write_bytes(b"no Parquet at all")
    return tmp_path


def read(folder: Path, names: list[str], bad: list[tuple[str, str]] | None) -> list[int]:
    spec = sources.files(str(folder), format="parquet", schema="id long")
    files = [[str(folder / name), 1] for name in names]
    descriptor = Descriptor("a/0", 1, (), {"files": files, "born": [0.0, 0.0]})
    refuse = None if bad is None else lambda row, error: bad.append((row, error))
    [portions] = FileReader(spec).read(descriptor, refuse)
    return [row for _, batch in portions for row in batch.column("id").to_pylist()]


def test_a_file_that_cannot_be_read_counts_as_one_bad_row_and_the_others_go_on(folder: Path) -> None:
    bad: list[tuple[str, str]] = []
    assert read(folder, ["0.parquet", "1.parquet", "gone.parquet", "3.parquet"], bad) == [0, 3]
    assert [Path(row).name for row, _ in bad] == ["1.parquet", "gone.parquet"]
    assert "cannot be read as Parquet" in bad[0][1]


@pytest.mark.parametrize("name", ["1.parquet", "gone.parquet"])
def test_without_a_place_for_bad_rows_it_is_a_named_error(folder: Path, name: str) -> None:
    with pytest.raises(PenstockError) as error:
        read(folder, ["0.parquet", name], None)
    assert error.value.name == "BAD_SOURCE"
    assert name in error.value.message
