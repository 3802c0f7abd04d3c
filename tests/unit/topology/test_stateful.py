"""The declaration of a stateful operator: what it becomes, and its mistakes as named errors at the user's line."""

from __future__ import annotations

import inspect
import time
from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from topology_fakes import FakeSink, rows

from penstock import PenstockError, Topology, state
from penstock.errors import Location
from penstock.schema import parse_schema
from penstock.topology import Keyed
from penstock.topology.state.columns import Columns
from penstock.topology.state.memory import MemoryHandle
from penstock.topology.state.on_spark import SparkProcessor
from penstock.topology.state.processing import Processing
from penstock.topology.state.values import fitting
from penstock.topology.state.worker import Worker

START = datetime(2026, 1, 1, tzinfo=UTC)


class Echo(state.Processor):
    def rows(self, key: dict, rows: Iterator[dict]) -> Iterator[dict]:
        yield from ()


class Timed(Echo):
    def timer(self, key: dict, at: datetime) -> Iterator[dict]:
        yield from ()


class Mortal(Echo):
    first = state.value("at timestamp, n long", ttl=2.5)
    second = state.map("word string", "n long")


class Demanding(Echo):
    def __init__(self, threshold: int) -> None:
        self.threshold = threshold


class Silent(state.Processor):
    pass


def declared(processor: Any = Echo, **options: Any) -> Topology:
    topology = Topology("t")
    source = topology.source("s", rows("key string, at timestamp, n long"))
    options = {"key": "key", "schema": "key string", **options}
    topology.sink("o", FakeSink(), inputs=topology.stateful("x", processor, inputs=source, **options))
    return topology


def operator_of(topology: Topology) -> Keyed:
    found = topology.definition().operator("x")
    assert isinstance(found, Keyed)
    return found


@pytest.mark.parametrize(
    ("processor", "options", "mode"),
    [
        (Echo, {}, "None"),
        (Timed, {}, "ProcessingTime"),
        (Mortal, {}, "ProcessingTime"),
        (Timed, {"event_time": "at", "lateness": 3}, "EventTime"),
        (Demanding(3), {"event_time": "at"}, "EventTime"),
    ],
)
def test_it_is_a_keyed_operator_and_its_clock_follows_from_what_it_does(processor, options, mode) -> None:
    operator = operator_of(declared(processor, tasks=20, instances=5, **options))
    assert operator.kind == "keyed"
    assert (operator.tasks, operator.instances, operator.output_mode) == (20, 5, "append")
    assert isinstance(operator.function, Processing)
    assert operator.function.time_mode == mode


def test_what_a_checkpoint_depends_on_is_told_in_words() -> None:
    function = operator_of(declared(Mortal)).function
    assert function.words == {"first": "value at timestamp, n long with ttl", "second": "map n long by word string"}


def test_rows_of_several_outputs_name_theirs() -> None:
    topology = Topology("t")
    source = topology.source("s", rows("key string"))
    made = topology.stateful("x", Echo, inputs=source, key="key", outputs={"good": "key string", "bad": "key string"})
    for output in ("good", "bad"):
        topology.sink(output, FakeSink(), inputs=made[output])
    assert operator_of(topology).function.schema.names == ["key", "output"]


@pytest.mark.parametrize(
    ("processor", "options", "says"),
    [
        (3, {}, "no processor"),
        (dict, {}, "no processor"),
        (Demanding, {}, "threshold"),
        (Silent, {}, r"no method rows\(\)"),
        (Timed, {"event_time": 3}, "event_time=3"),
        (Timed, {"event_time": "time"}, "no column"),
        (Timed, {"event_time": "n"}, "type long"),
        (Timed, {"lateness": 3}, "no event_time"),
        (Timed, {"event_time": "at", "lateness": -1}, "lateness=-1"),
        (Timed, {"event_time": "at", "lateness": True}, "lateness=True"),
    ],
)
def test_a_bad_processor_is_named_at_the_users_line(processor, options, says) -> None:
    with pytest.raises(PenstockError, match=says) as caught:
        declared(processor, **options).definition()
    assert caught.value.name == "BAD_PROCESSOR"
    assert caught.value.where is not None
    assert caught.value.where.file == __file__


@pytest.mark.parametrize(
    ("make", "name", "says"),
    [
        (lambda: state.value("n lng"), "BAD_SCHEMA", "lng"),
        (lambda: state.value("n array<long>"), "BAD_STATE", "array<long>"),
        (lambda: state.map("at decimal(3,1)", "n long"), "BAD_STATE", "decimal"),
        (lambda: state.list("n long", ttl=0), "BAD_STATE", "ttl=0"),
        (lambda: state.list("n long", ttl="1 hour"), "BAD_STATE", "1 hour"),
        (lambda: state.value("n long", ttl=float("inf")), "BAD_STATE", "inf"),
    ],
)
def test_a_bad_state_is_named_at_its_own_line(make, name, says) -> None:
    line = inspect.getsourcelines(make)[1]
    with pytest.raises(PenstockError, match=says) as caught:
        make()
    assert (caught.value.name, caught.value.where.file) == (name, __file__)
    assert abs(caught.value.where.line - line) <= 8


@pytest.mark.parametrize(
    ("attributes", "options", "says"),
    [
        ({"timers": state.value("n long")}, {}, "reserved"),
        ({"_own": state.value("n long")}, {}, "reserved"),
        ({"seen": state.value("n long", ttl=3)}, {"event_time": "at"}, "ttl"),
    ],
)
def test_a_state_that_its_operator_cannot_have(attributes, options, says) -> None:
    with pytest.raises(PenstockError, match=says) as caught:
        declared(type("Odd", (Echo,), attributes), **options)
    assert caught.value.name == "BAD_STATE"
    assert caught.value.where.file == __file__


COLUMNS = "s string, b boolean, i int, l long, d double, x binary, t timestamp, w timestamp_ntz, a date"
VALUES = st.fixed_dictionaries(
    {
        "s": st.text() | st.none(),
        "b": st.booleans() | st.none(),
        "i": st.integers(-(2**31), 2**31 - 1) | st.none(),
        "l": st.integers(-(2**63), 2**63 - 1) | st.none(),
        "d": st.floats(allow_nan=False) | st.none(),
        "x": st.binary() | st.none(),
        "t": st.datetimes(datetime(1900, 1, 1), datetime(2200, 1, 1), timezones=st.just(UTC)) | st.none(),
        "w": st.datetimes(datetime(1900, 1, 1), datetime(2200, 1, 1)) | st.none(),
        "a": st.dates(date(1900, 1, 1), date(2200, 1, 1)) | st.none(),
    }
)


@given(VALUES)
def test_what_is_packed_for_the_store_comes_back(value) -> None:
    columns = Columns(parse_schema(COLUMNS))
    packed = columns.pack(value)
    assert columns.unpack(packed) == value
    # What is stored are numbers, texts and bytes only, as the stored schema says.
    assert pa.Table.from_pylist([dict(zip(columns.stored.names, packed, strict=True))], columns.stored).num_rows == 1
    assert not any(pa.types.is_temporal(column.type) for column in columns.stored)


class SparksType:
    def __init__(self, name: str) -> None:
        self.typeName = lambda: name


class SparksTimes:
    getCurrentProcessingTimeInMs = getCurrentWatermarkInMs = getExpiryTimeInMs = staticmethod(lambda: 1)


@pytest.fixture
def far_from_utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "America/New_York")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.usefixtures("far_from_utc")
def test_the_key_of_a_timer_is_the_key_of_rows() -> None:
    """Spark gives the key of rows as Arrow has it, and the key of a timer as its state store has it."""
    keys: list[dict] = []

    class Keeping(Echo):
        def rows(self, key: dict, rows: Iterator[dict]) -> Iterator[dict]:
            keys.append(key)
            return iter(())

        def timer(self, key: dict, at: datetime) -> Iterator[dict]:
            keys.append(key)
            return iter(())

    types = {"text": "string", "moment": "timestamp", "data": "binary", "local": "timestamp_ntz", "none": "timestamp"}
    worker = Worker("x", Keeping(), tuple(types), parse_schema("key string"), Location("here.py", 1))
    processor = SparkProcessor(worker, [SparksType(name) for name in types.values()])
    worker.processor.bind(MemoryHandle())
    noon = datetime(2026, 1, 1, 12)
    list(processor.handleInputRows(("a", noon.replace(tzinfo=UTC), b"x", noon, None), iter(()), SparksTimes()))
    stored = ("a", datetime(2026, 1, 1, 7), bytearray(b"x"), noon, None)
    list(processor.handleExpiredTimer(stored, SparksTimes(), SparksTimes()))
    assert keys[0] == keys[1]
    assert isinstance(keys[1]["data"], bytes)


@pytest.mark.parametrize(
    ("type_", "good", "bad"),
    [
        ("long", [3, None, 2.0, np.int64(3), Decimal(4)], ["3", True, 2.5, Decimal("2.5"), np.float32(0.5), 2**63]),
        ("int", [3, -(2**31)], [2**31, 0.1]),
        ("double", [2.5, 3, float("nan")], ["2.5", START]),
        ("string", ["x"], [3, b"\xff"]),
        ("boolean", [True], [1, "true"]),
        ("timestamp", [START, START.replace(tzinfo=None)], ["2026-01-01", 3.5, 3]),
        ("date", [date(2026, 1, 1)], [START, 3]),
        ("array<long>", [[1, 2], []], [3, ["x"]]),
    ],
)
def test_what_fits_a_column(type_: str, good: list[Any], bad: list[Any]) -> None:
    column = parse_schema(f"x {type_}").field(0)
    for value in good:
        assert fitting(column.type)(value), value
        pa.RecordBatch.from_pylist([{"x": value}], pa.schema([column]))
    assert not [value for value in bad if fitting(column.type)(value)]


def test_one_column_is_a_plain_value_and_a_key_of_several_a_tuple() -> None:
    assert Columns(parse_schema("n long")).unpack(Columns(parse_schema("n long")).pack(3)) == 3
    keys = Columns(parse_schema("a string, b long"), keys=True)
    assert keys.unpack(keys.pack(("x", 1))) == ("x", 1)
    for wrong in ({"a": "x", "b": 1}, ("x",), "x"):
        with pytest.raises(PenstockError, match="a tuple"):
            keys.pack(wrong)
