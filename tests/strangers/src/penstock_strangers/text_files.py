"""A sink of strangers: files of comma-separated values that appear when their batch is published."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as pv

from penstock.extending import SinkKind, SinkPlace


@dataclass(frozen=True)
class TextFiles(SinkKind):
    path: str

    kind = "text_files"

    def describe(self) -> Mapping[str, Any]:
        return {"kind": self.kind, "path": self.path}

    @property
    def folder(self) -> str:
        return self.path

    def file_writer(self, place: SinkPlace) -> TextFileWriter:
        return TextFileWriter(self.path, f"{place.mark}{place.by}")


@dataclass(frozen=True)
class TextFileWriter:
    path: str
    mark: str

    def write(self, batches: Sequence[pa.RecordBatch], name: str) -> tuple[str, str]:
        staged = Path(self.path) / "_staging" / f"{name}-{self.mark}.csv"
        staged.parent.mkdir(parents=True, exist_ok=True)
        pv.write_csv(pa.Table.from_batches(batches), staged)
        return f"|{staged}", str(Path(self.path) / staged.name)

    def clear(self, before: int | None = None) -> None:
        """An attempt that is made again writes the same names: only what is left before a run needs to go."""
        if before is None:
            for staged in (Path(self.path) / "_staging").glob(f"*-{self.mark}*.csv"):
                staged.unlink()
