"""A user's topology is run on given rows, without Spark."""

from __future__ import annotations

import subprocess
import sys
import time
from datetime import UTC, datetime

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from penstock import PenstockError, Topology, sinks, sources, testing

ORDERS = [{"id": 1, "item": "tea"}, {"id": 2, "item": "rice"}, {"id": 3, "item": None}]


def orders_source() -> sources.FileSource:
    return sources.files("/data/orders", format="json", schema="id long, item string")


def upper(batch: pa.RecordBatch) -> pa.RecordBatch:
    return pa.record_batch({"id": batch.column("id"), "item": pc.utf8_upper(batch.column("item"))})


def shouting(**options) -> Topology:
    topology = Topology("shouting")
    orders = topology.source("orders", orders_source())
    topology.map("upper", upper, inputs=orders, schema="id long, item string", **options)
    topology.sink("out", sinks.parquet("/nowhere"), inputs="upper")
    return topology


@pytest.mark.parametrize("instances", [1, 2, 5])
def test_the_rows_of_a_sink_are_dicts_in_the_order_of_the_source(instances):
    results = testing.run(shouting(instances=instances), {"orders": ORDERS})
    assert list(results) == ["out"]
    assert results["out"] == [{"id": 1, "item": "TEA"}, {"id": 2, "item": "RICE"}, {"id": 3, "item": None}]
    assert results.table("out").schema.equals(pa.schema([("id", pa.int64()), ("item", pa.string())]))
    assert results.bad_rows == {}


def test_rows_may_be_arrow_and_a_missing_column_is_null():
    table = pa.table({"id": [1], "item": ["tea"]})
    assert testing.run(shouting(), {"orders": table})["out"] == [{"id": 1, "item": "TEA"}]
    assert testing.run(shouting(), {"orders": table.to_batches()[0]})["out"] == [{"id": 1, "item": "TEA"}]
    assert testing.run(shouting(), {"orders": [{"id": 1}]})["out"] == [{"id": 1, "item": None}]
    assert testing.run(shouting(), {"orders": []})["out"] == []


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        ({"order": ORDERS}, 'Did you mean "orders"'),
        ({}, "no rows are given"),
        ({"orders": [{"id": 1, "itm": "tea"}]}, 'Did you mean "item"'),
        ({"orders": [{"id": "one"}]}, "do not fit its schema"),
        ({"orders": ["tea"]}, "is a str"),
        ({"orders": pa.table({"id": [1.5]})}, 'rows of "id double"'),
    ],
)
def test_rows_that_do_not_fit_are_a_named_error(rows, says):
    with pytest.raises(PenstockError, match=says) as caught:
        testing.run(shouting(), rows)
    assert caught.value.name == "TEST_ROWS"


def test_rows_of_a_key_meet_on_one_instance():
    """Every instance numbers its calls: rows of one key see one function call after the other."""
    seen: list[set[str]] = []

    def note(batch: pa.RecordBatch) -> pa.RecordBatch:
        if batch.num_rows:  # the check of the declaration calls it with none
            seen.append(set(batch.column("key").to_pylist()))
        return batch

    topology = Topology("keys")
    events = topology.source("events", sources.files("/e", format="json", schema="key string, n long"))
    topology.map("note", note, inputs=events.by_key("key"), schema="key string, n long", instances=3)
    topology.sink("out", sinks.noop(), inputs="note")
    rows = [{"key": f"key-{n % 7}", "n": n} for n in range(70)]
    out = testing.run(topology, {"events": rows})["out"]
    assert len(seen) > 1
    assert sum(map(len, seen)) == 7, "no key is on two instances"
    for key in {row["key"] for row in rows}:
        assert [row for row in out if row["key"] == key] == [row for row in rows if row["key"] == key]


def test_every_instance_gets_a_broadcast_row():
    topology = Topology("rules")
    topology.source("rules", orders_source())
    orders = topology.source("orders", orders_source())
    rules = topology.map("check", lambda batch: batch, inputs="rules", schema="id long, item string")
    both = [orders, rules.broadcast()]
    topology.map("apply", lambda batch: batch, inputs=both, schema="id long, item string", instances=2)
    topology.sink("out", sinks.noop(), inputs="apply")
    out = testing.run(topology, {"orders": ORDERS, "rules": [{"id": 9, "item": "rule"}]})["out"]
    assert sorted(row["id"] for row in out) == [1, 2, 3, 9, 9]


def test_several_inputs_and_outputs():
    def by_size(batch: pa.RecordBatch) -> dict[str, pa.RecordBatch]:
        small = pc.less(batch.column("id"), 2)
        return {"small": batch.filter(small), "large": batch.filter(pc.invert(small))}

    topology = Topology("sizes")
    one = topology.source("one", orders_source())
    two = topology.source("two", orders_source())
    schema = "id long, item string"
    parts = topology.map("by_size", by_size, inputs=[one, two], outputs={"small": schema, "large": schema})
    topology.sink("small", sinks.noop(), inputs=parts["small"])
    topology.sink("large", sinks.noop(), inputs=parts["large"])
    results = testing.run(topology, {"one": ORDERS, "two": [{"id": 0, "item": "salt"}]})
    assert sorted(row["id"] for row in results["small"]) == [0, 1]
    assert sorted(row["id"] for row in results["large"]) == [2, 3]


def halves(batch: pa.RecordBatch) -> pa.RecordBatch:
    if 3 in batch.column("id").to_pylist():
        raise ValueError("three has no half")
    return batch


def test_a_function_that_fails_raises_its_named_error_with_its_own_exception_as_the_cause():
    topology = Topology("halves")
    orders = topology.source("orders", orders_source())
    topology.map("halves", halves, inputs=orders, schema="id long, item string")
    topology.sink("out", sinks.noop(), inputs="halves")
    with pytest.raises(PenstockError, match="three has no half") as caught:
        testing.run(topology, {"orders": ORDERS})
    assert caught.value.name == "OPERATOR_FAILED"
    assert caught.value.where is not None and caught.value.where.file == __file__
    assert isinstance(caught.value.__cause__, ValueError)


@pytest.mark.parametrize("on_error", ["skip", "dead_letter"])
def test_bad_rows_are_skipped_or_go_to_the_dead_letter_output(on_error):
    topology = Topology("halves")
    orders = topology.source("orders", orders_source())
    good = topology.map("halves", halves, inputs=orders, schema="id long, item string", on_error=on_error)
    topology.sink("out", sinks.noop(), inputs=good)
    if on_error == "dead_letter":
        topology.sink("bad", sinks.noop(), inputs=good.dead_letter)
    results = testing.run(topology, {"orders": ORDERS})
    assert [row["id"] for row in results["out"]] == [1, 2]
    assert results.bad_rows == {"halves": 1}
    if on_error == "dead_letter":
        [letter] = results["bad"]
        assert letter["operator"] == "halves"
        assert letter["error"] == "ValueError: three has no half"


def test_a_chain_and_a_map_that_gathers():
    def total(batch: pa.RecordBatch) -> pa.RecordBatch:
        return pa.record_batch({"total": pa.array([pc.sum(batch.column("id")).as_py() or 0], pa.int64())})

    topology = Topology("chain")
    step = topology.source("orders", orders_source())
    for number in range(3):
        step = topology.map(f"upper-{number}", upper, inputs=step, schema="id long, item string", instances=2)
    topology.map("total", total, inputs=step, schema="total long", gather=True)
    topology.sink("out", sinks.noop(), inputs="total")
    assert testing.run(topology, {"orders": ORDERS})["out"] == [{"total": 6}]


def test_the_function_of_an_arrow_sink_is_called():
    written: list[int] = []
    topology = Topology("arrow")
    orders = topology.source("orders", orders_source())
    topology.sink("out", sinks.arrow(lambda batch: written.extend(batch.column("id").to_pylist())), inputs=orders)
    results = testing.run(topology, {"orders": ORDERS})
    assert written == [1, 2, 3]
    assert len(results["out"]) == 3


def test_a_rate_source_emits_what_is_due_by_the_clock_and_functions_ask_it_for_the_time():
    def stamp(batch: pa.RecordBatch) -> pa.RecordBatch:
        return pa.record_batch({"id": batch.column("id"), "at": pa.array([time.time()] * batch.num_rows, pa.float64())})

    topology = Topology("clock")
    numbers = topology.source("numbers", sources.rate(10, rows=25))
    topology.map("stamp", stamp, inputs=numbers, schema="id long, at double")
    topology.sink("out", sinks.noop(), inputs="stamp")
    clock = testing.Clock(datetime(2026, 3, 1, tzinfo=UTC))
    assert testing.run(topology, {}, clock=clock)["out"] == []
    clock.advance(0.4)
    out = testing.run(topology, {}, clock=clock)["out"]
    assert [row["id"] for row in out] == [0, 1, 2, 3]
    assert {row["at"] for row in out} == {clock()}
    assert clock.now == datetime(2026, 3, 1, 0, 0, 0, 400_000, tzinfo=UTC)
    clock.advance(60)
    assert len(testing.run(topology, {}, clock=clock)["out"]) == 25
    assert time.time() != clock()
    with pytest.raises(ValueError, match="never goes back"):
        clock.advance(-1)
    with pytest.raises(PenstockError, match="pass clock="):
        testing.run(topology, {})


def test_no_java_is_started_for_arrow_functions():
    code = (
        "import os; os.environ['PATH'] = ''; os.environ.pop('JAVA_HOME', None)\n"
        "from penstock import Topology, sinks, sources, testing\n"
        "topology = Topology('t')\n"
        "topology.source('n', sources.rate(1))\n"
        "topology.sink('out', sinks.noop(), inputs='n')\n"
        "print(testing.run(topology, {'n': [{'id': 1, 'value': 0.5}]})['out'])\n"
    )
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert answer.stdout == "[{'id': 1, 'value': 0.5}]\n", answer.stderr
