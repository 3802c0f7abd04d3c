"""What a Parquet sink has written, for the tests that compare it with what it should have."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.dataset as ds

#: Seconds that a small topology may take on a machine that is busy with other things.
WAIT = 120


def rows_of(folder: Path) -> list[dict[str, Any]]:
    return ds.dataset(folder, format="parquet").to_table().to_pylist() if folder.exists() else []


def column_of(folder: Path, name: str) -> list[Any]:
    """The values of one column, sorted: the order in which rows arrive is nobody's promise."""
    return sorted(row[name] for row in rows_of(folder))
