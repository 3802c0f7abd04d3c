"""Rows of several inputs come in one schema, whatever each of them says about nulls."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from penstock.channels.keys import grouped_schema, sort_by_group
from penstock.channels.segments import SegmentStore
from penstock.engine.executor.instance import in_handy_batches
from penstock.engine.executor.readers import ChannelReader
from penstock.engine.message.shares import Descriptor, Piece, Spread
from penstock.schema import common_schema

STRICT = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("tags", pa.list_(pa.field("item", pa.string(), nullable=False)), nullable=False),
        pa.field("at", pa.struct([pa.field("x", pa.int64(), nullable=False)])),
        pa.field("by", pa.map_(pa.string(), pa.field("value", pa.int64(), nullable=False))),
    ]
)
LOOSE = pa.schema(
    [
        ("id", pa.int64()),
        ("tags", pa.list_(pa.string())),
        ("at", pa.struct([("x", pa.int64())])),
        ("by", pa.map_(pa.string(), pa.int64())),
    ]
)
ROWS = {
    "strict": [{"id": 1, "tags": ["a"], "at": {"x": 1}, "by": [("k", 1)]}] * 3,
    "loose": [{"id": None, "tags": [None], "at": {"x": None}, "by": [("k", None)]}] * 2,
}
SPREADS = [Spread.SHUFFLE, Spread.BY_KEY, Spread.BROADCAST]


@pytest.fixture
def store(tmp_path: Path) -> SegmentStore:
    return SegmentStore(str(tmp_path))


def descriptor(store: SegmentStore, spread: Spread) -> Descriptor:
    pieces = []
    for name, schema in (("strict", STRICT), ("loose", LOOSE)):
        batch, written, groups = pa.RecordBatch.from_pylist(ROWS[name], schema=schema), schema, 0
        if spread is Spread.BY_KEY:
            batch, written, groups = sort_by_group(batch, ["id"], 4), grouped_schema(schema), 4
        segment = store.write(f"{name}.out", "1.arrow", [batch], written)
        pieces.append(Piece(segment.path, 0, segment.rows, spread, 1.0, 2.0, "a/0", 0, groups))
    return Descriptor("a/0", 1, tuple(pieces), None)


@pytest.mark.parametrize("spread", SPREADS)
def test_rows_of_two_inputs_can_be_joined(store: SegmentStore, spread: Spread) -> None:
    reader = ChannelReader(store, common_schema([STRICT, LOOSE]))
    [portions] = reader.read(descriptor(store, spread), None)
    [batch] = in_handy_batches(batch for _, batch in portions)
    assert batch.schema.equals(LOOSE)
    assert batch.to_pylist() == ROWS["strict"] + ROWS["loose"]


@pytest.mark.parametrize("spread", SPREADS)
def test_rows_for_spark_sql_have_one_schema(store: SegmentStore, spread: Spread) -> None:
    reader = ChannelReader(store, common_schema([STRICT, LOOSE]))
    batches = list(reader.rows(descriptor(store, spread)))
    assert all(batch.schema.equals(LOOSE) for batch in batches)
    assert [row for batch in batches for row in batch.to_pylist()] == ROWS["strict"] + ROWS["loose"]


def test_rows_of_one_schema_stay_as_they_are(store: SegmentStore) -> None:
    segment = store.write("s.out", "1.arrow", [pa.RecordBatch.from_pylist(ROWS["strict"], schema=STRICT)], STRICT)
    pieces = (Piece(segment.path, 0, 3, Spread.SHUFFLE, 1.0, 2.0, "a/0"),)
    [batch] = ChannelReader(store, STRICT).rows(Descriptor("a/0", 1, pieces, None))
    assert batch.schema.equals(STRICT)
