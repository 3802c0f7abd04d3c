"""A processor as Spark calls it: the methods of PySpark's StatefulProcessor, on the executors and once on the driver.

The class does not derive from PySpark's: a topology is declared without Spark, and Spark only calls these methods.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa

from penstock.topology.state.worker import Worker


class _Emitted(dict[str, Any]):
    """A row as Spark takes it: Spark asks a row only for this."""

    def asDict(self, recursive: bool = False) -> dict[str, Any]:
        return self


class SparkProcessor:
    def __init__(self, worker: Worker, keys: Sequence[Any]) -> None:
        """`keys` are Spark's types of the key's columns."""
        self._worker = worker
        self._restored = tuple(_RESTORED.get(type_.typeName()) for type_ in keys)

    def init(self, handle: Any) -> None:
        self._worker.processor.bind(_SparkHandle(handle))

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[_Emitted]:
        self._set_time(timerValues)
        return map(_Emitted, self._worker.rows(tuple(key), (row.asDict(True) for row in rows)))

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[_Emitted]:
        self._set_time(timerValues)
        restored = tuple(
            value if restore is None or value is None else restore(value)
            for value, restore in zip(key, self._restored, strict=True)
        )
        return map(_Emitted, self._worker.timer(restored, expiredTimerInfo.getExpiryTimeInMs()))

    def close(self) -> None:
        """Nothing is open: Spark closes its stores."""

    def _set_time(self, values: Any) -> None:
        self._worker.processor.at_time(values.getCurrentProcessingTimeInMs(), values.getCurrentWatermarkInMs())


def _moment(local: datetime) -> datetime:
    return local.astimezone(UTC)


#: By the name of a type: how the key of a timer becomes what the key of rows is. Spark brings a key back from its state
#: store: a moment in the time zone of the executor and without a name for it, bytes as a bytearray.
_RESTORED: dict[str, Callable[[Any], Any]] = {"timestamp": _moment, "binary": bytes}


class _SparkHandle:
    """PySpark's handle, for schemas of Arrow."""

    def __init__(self, handle: Any) -> None:
        self._handle = handle
        self.registerTimer = handle.registerTimer
        self.deleteTimer = handle.deleteTimer
        self.listTimers = handle.listTimers

    def getValueState(self, name: str, schema: pa.Schema, ttl: int | None) -> Any:
        return self._handle.getValueState(name, _struct(schema), ttl)

    def getListState(self, name: str, schema: pa.Schema, ttl: int | None) -> Any:
        return self._handle.getListState(name, _struct(schema), ttl)

    def getMapState(self, name: str, keys: pa.Schema, schema: pa.Schema, ttl: int | None) -> Any:
        return self._handle.getMapState(name, _struct(keys), _struct(schema), ttl)


def _struct(schema: pa.Schema) -> Any:
    from pyspark.sql.pandas.types import from_arrow_schema

    return from_arrow_schema(schema)
