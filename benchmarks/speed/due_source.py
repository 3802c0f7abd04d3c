"""A source for plain Structured Streaming that gives rows when they are due, as Penstock's rate source does.

Spark's own gives those of a whole second at once, which would count as latency.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from contents import content_of
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

from penstock.schema import schema_text

SLOTS = 2
BATCH_ROWS = 65_536


class DueReader(DataSourceStreamReader):
    def __init__(self, workload: str, rate: float, began: float) -> None:
        self._workload = workload
        self._rate = rate
        self._began = began

    def initialOffset(self) -> dict[str, int]:
        return {"row": 0}

    def latestOffset(self) -> dict[str, int]:
        return {"row": int(max(time.time() - self._began, 0.0) * self._rate)}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        rows = range(start["row"], end["row"])
        cuts = [len(rows) * index // SLOTS for index in range(SLOTS + 1)]
        return [InputPartition((rows.start + low, rows.start + high)) for low, high in itertools.pairwise(cuts)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        low, high = partition.value
        content = content_of(self._workload)
        for first in range(low, high, BATCH_ROWS):
            yield content.rows(first, min(BATCH_ROWS, high - first))

    def commit(self, end: dict[str, int]) -> None:
        pass


class DueSource(DataSource):
    def __init__(self, options: Any) -> None:
        super().__init__(options)

    @classmethod
    def name(cls) -> str:
        return "due"

    def schema(self) -> str:
        return schema_text(content_of(self.options["workload"]).schema)

    def streamReader(self, schema: Any) -> DataSourceStreamReader:
        return DueReader(self.options["workload"], float(self.options["rate"]), float(self.options["began"]))
