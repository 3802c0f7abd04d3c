"""Our hash of a key is Spark's own, for every type that can be hashed, for nulls and for keys of several columns."""

from __future__ import annotations

import random
import string
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import functions as F

from penstock.channels.spark_hash import can_hash, hash_of_rows, task_of_hashes
from penstock.engine.spark.host import SparkHost

VALUES = 300
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FLOATS = [0.0, -0.0, float("nan"), float("inf"), -float("inf"), 1.5, -1.5, 1e-40, 3.4e38]


def _whole(bits: int) -> Callable[[random.Random], int]:
    edges = [0, 1, -1, (1 << bits - 1) - 1, -(1 << bits - 1)]
    return lambda rnd: rnd.choice(edges) if rnd.random() < 0.2 else rnd.randrange(-(1 << bits - 1), 1 << bits - 1)


def _text(rnd: random.Random) -> str:
    letters = string.ascii_letters + "äß€語😀\0"
    return "".join(rnd.choices(letters, k=rnd.choice([0, 1, 2, 3, 4, 5, 7, 8, 9, 15, 36, 400])))


def _bytes(rnd: random.Random) -> bytes:
    return rnd.randbytes(rnd.choice([0, 1, 2, 3, 4, 5, 6, 7, 8, 31, 1001]))


def _decimal(precision: int, scale: int) -> Callable[[random.Random], Decimal]:
    most = 10**precision - 1
    edges = [0, 1, -1, 127, 128, -128, -129, 255, 256, most, -most]

    def made(rnd: random.Random) -> Decimal:
        # Decimal's own arithmetic would round to 28 digits.
        number = rnd.choice(edges) if rnd.random() < 0.3 else rnd.randint(-most, most)
        return Decimal((int(number < 0), tuple(map(int, str(min(abs(number), most)))), -scale))

    return made


def _time(rnd: random.Random) -> datetime:
    return _EPOCH + timedelta(microseconds=rnd.randrange(-(10**15), 10**16))


KINDS: dict[str, tuple[pa.DataType, Callable[[random.Random], Any]]] = {
    "boolean": (pa.bool_(), lambda rnd: rnd.random() < 0.5),
    "byte": (pa.int8(), _whole(8)),
    "short": (pa.int16(), _whole(16)),
    "int": (pa.int32(), _whole(32)),
    "long": (pa.int64(), _whole(64)),
    "float": (pa.float32(), lambda rnd: rnd.choice(_FLOATS) if rnd.random() < 0.5 else rnd.gauss(0, 1e6)),
    "double": (pa.float64(), lambda rnd: rnd.choice(_FLOATS) if rnd.random() < 0.5 else rnd.gauss(0, 1e6)),
    "string": (pa.string(), _text),
    "large string": (pa.large_string(), _text),
    "binary": (pa.binary(), _bytes),
    "large binary": (pa.large_binary(), _bytes),
    "date": (pa.date32(), lambda rnd: date(1, 1, 1) + timedelta(days=rnd.randrange(3_000_000))),
    "timestamp": (pa.timestamp("us", "UTC"), _time),
    "timestamp without a zone": (pa.timestamp("us"), lambda rnd: _time(rnd).replace(tzinfo=None)),
    "decimal of one digit": (pa.decimal128(1, 0), _decimal(1, 0)),
    "decimal as a long": (pa.decimal128(18, 4), _decimal(18, 4)),
    "decimal as bytes": (pa.decimal128(19, 0), _decimal(19, 0)),
    "longest decimal": (pa.decimal128(38, 10), _decimal(38, 10)),
}


def made(kind: str, rnd: random.Random, nulls: float) -> pa.Array:
    type_, make = KINDS[kind]
    values = [None if rnd.random() < nulls else make(rnd) for _ in range(VALUES)]
    return pa.array(values, type_)


def test_the_hash_of_every_type_is_sparks_own(local_host: SparkHost) -> None:
    rnd = random.Random(11)
    columns = {kind: made(kind, rnd, nulls=0.2) for kind in KINDS}
    batch = pa.record_batch(columns)
    frame = local_host.spark.createDataFrame(pa.Table.from_batches([batch]))
    rows = frame.select(
        *[F.hash(F.col(f"`{name}`")).alias(f"h{index}") for index, name in enumerate(columns)]
    ).collect()
    for index, name in enumerate(columns):
        assert can_hash(KINDS[name][0]), name
        assert hash_of_rows(batch, [name]).tolist() == [row[index] for row in rows], name


@pytest.mark.parametrize("seed", range(3))
def test_the_hash_of_several_columns_is_sparks_own(local_host: SparkHost, seed: int) -> None:
    """In any order, with nulls, and of batches that begin in the middle of their buffers."""
    rnd = random.Random(seed)
    batch = pa.record_batch({kind: made(kind, rnd, 0.3) for kind in KINDS}).slice(7)
    keys = [rnd.sample(list(KINDS), rnd.randint(2, 5)) for _ in range(12)]
    frame = local_host.spark.createDataFrame(pa.Table.from_batches([batch]))
    rows = frame.select(*[F.hash(*[F.col(f"`{one}`") for one in key]) for key in keys]).collect()
    for index, key in enumerate(keys):
        assert hash_of_rows(batch, key).tolist() == [row[index] for row in rows], key


def test_the_task_of_a_hash_is_sparks_own(local_host: SparkHost) -> None:
    hashes = np.random.default_rng(3).integers(-(1 << 31), 1 << 31, 500).astype(np.int32)
    frame = local_host.spark.createDataFrame(pa.table({"hash": hashes}))
    counts = [1, 2, 3, 8, 12, 1000]
    rows = frame.select(*[F.expr(f"pmod(hash, {tasks})") for tasks in counts]).collect()
    for index, tasks in enumerate(counts):
        assert task_of_hashes(hashes, tasks).tolist() == [row[index] for row in rows]
