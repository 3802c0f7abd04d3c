"""The declaration of a stateful operator: what it becomes, and its mistakes as named errors at the user's line."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from datetime import UTC, date, datetime
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from topology_fakes import FakeSink, rows

from penstock import PenstockError, Topology, state
from penstock.topology import Keyed
from penstock.topology.schema import parse_schema
from penstock.topology.state.columns import Columns
from penstock.topology.state.processing import Processing


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


def test_one_column_is_a_plain_value_and_a_key_of_several_a_tuple() -> None:
    assert Columns(parse_schema("n long")).unpack(Columns(parse_schema("n long")).pack(3)) == 3
    keys = Columns(parse_schema("a string, b long"), keys=True)
    assert keys.unpack(keys.pack(("x", 1))) == ("x", 1)
    for wrong in ({"a": "x", "b": 1}, ("x",), "x"):
        with pytest.raises(PenstockError, match="a tuple"):
            keys.pack(wrong)
