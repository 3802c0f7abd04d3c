"""The hashes of keys that segments have beside their rows: Spark's own hash, one column for each key that is asked for.

A keyed operator's task reads the rows whose hash is its own (`rows_of_tasks`). The hash is in the segment, and not the
task: it stays true when the number of tasks changes, and several readers can share it. The rows stay in the order in
which they were emitted, so a batch may be cut anywhere, and other readers of the channel see what they always saw.

A segment says itself which hashes it has. One that was written without them is still read right: then each task
computes the hashes when it reads.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from penstock.channels.spark_hash import hash_of_rows, task_of_hashes

Key = tuple[str, ...]

_COLUMN = "__hash"
#: On the field of a hash column: the columns that it is the hash of. No field of a user has this.
_HASH_OF = b"penstock.hash_of"


def with_hashes(batch: pa.RecordBatch, keys: Sequence[Key]) -> pa.RecordBatch:
    """The rows, and behind their columns a hash for each key."""
    columns, fields = list(batch.columns), list(batch.schema)
    for key in keys:
        columns.append(pa.array(hash_of_rows(batch, key)))
        fields.append(_field(key))
    return pa.record_batch(columns, schema=pa.schema(fields, batch.schema.metadata))


def hashed_schema(schema: pa.Schema, keys: Sequence[Key]) -> pa.Schema:
    """The schema of what `with_hashes` returns."""
    for key in keys:
        schema = schema.append(_field(key))
    return schema


def without_hashes(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The rows as they were emitted. Hash columns are the last ones."""
    count = batch.num_columns
    while count and _HASH_OF in (batch.schema.field(count - 1).metadata or {}):
        count -= 1
    return batch if count == batch.num_columns else batch.select(list(range(count)))


def rows_of_tasks(batch: pa.RecordBatch, key: Key, tasks: int, first: int, stop: int) -> pa.RecordBatch:
    """The rows whose keys belong to tasks [first, stop) of so many, in their order, without hashes."""
    found = task_of_hashes(_hashes(batch, key), tasks)
    mine = found == np.int32(first) if stop == first + 1 else (found >= first) & (found < stop)
    rows = without_hashes(batch)
    # Taking rows by their numbers was faster than a filter by a bitmap in every measurement.
    return rows if mine.all() else rows.take(pa.array(np.nonzero(mine)[0]))


def rows_by_task(batches: Sequence[pa.RecordBatch], key: Key, tasks: int) -> list[pa.RecordBatch]:
    """The rows of each task, in their order, without hashes. The batches have the same columns, but need not all have
    hashes."""
    found = np.concatenate([task_of_hashes(_hashes(batch, key), tasks) for batch in batches])
    order = np.argsort(found, kind="stable")
    rows = pa.concat_batches([without_hashes(batch) for batch in batches]).take(pa.array(order))
    bounds = np.searchsorted(found[order], np.arange(tasks + 1))
    return [rows.slice(first, stop - first) for first, stop in pairwise(bounds.tolist())]


def _hashes(batch: pa.RecordBatch, key: Key) -> NDArray[np.int32]:
    for index in range(batch.num_columns - 1, -1, -1):
        noted = (batch.schema.field(index).metadata or {}).get(_HASH_OF)
        if noted is None:
            break
        if tuple(json.loads(noted)) == key:
            hashes: NDArray[np.int32] = batch.column(index).to_numpy()
            return hashes
    return hash_of_rows(batch, key)


def _field(key: Key) -> pa.Field:
    return pa.field(_COLUMN, pa.int32(), nullable=False, metadata={_HASH_OF: json.dumps(key)})
