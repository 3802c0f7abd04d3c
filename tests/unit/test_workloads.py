"""Operators for experiments: how long they take, and which rows they pass on."""

from __future__ import annotations

import pickle
import time

import pyarrow as pa
import pytest

from penstock import sources, workloads
from penstock.errors import PenstockError
from penstock.topology import Topology

NUMBERS = sources.numbers()
EVERY_TYPE = sources.columns(
    "a boolean, b long, c double, d string, e binary, f date, g timestamp, h decimal(10,2), "
    "i struct<x: int>, j array<string>"
)


@pytest.fixture
def naps(monkeypatch):
    taken = []
    monkeypatch.setattr(workloads.time, "sleep", taken.append)
    return taken


def test_it_waits_once_a_batch(naps):
    work = workloads.service_time(0.002)
    batch = NUMBERS.rows(0, 50)
    assert work(batch) is batch
    assert naps == [pytest.approx(0.1)]


def test_it_does_not_wait_for_nothing(naps):
    workloads.service_time(0.002)(NUMBERS.rows(0, 0))
    workloads.service_time(0)(NUMBERS.rows(0, 10))
    assert naps == []


@pytest.mark.parametrize("selectivity", [0, 0.1, 0.8, 1, 1.5, 2, 3.25])
def test_selectivity_holds_over_the_stream(selectivity):
    out = workloads.service_time(0, selectivity)(NUMBERS.rows(0, 50_000))
    assert out.num_rows == pytest.approx(50_000 * selectivity, rel=0.02)
    assert out.schema.equals(NUMBERS.schema)


@pytest.mark.parametrize("selectivity", [0.3, 1.7])
def test_batches_do_not_matter(selectivity):
    work = workloads.service_time(0, selectivity)
    parts = [work(NUMBERS.rows(first, 100)) for first in range(0, 1000, 100)]
    assert (
        pa.Table.from_batches(parts)
        .combine_chunks()
        .equals(pa.Table.from_batches([work(NUMBERS.rows(0, 1000))]).combine_chunks())
    )


def test_seeds_make_operators_independent():
    first, second = workloads.service_time(0, 0.5, seed=1), workloads.service_time(0, 0.5, seed=2)
    assert second(first(NUMBERS.rows(0, 40_000))).num_rows == pytest.approx(10_000, rel=0.05)


@pytest.mark.parametrize("column", EVERY_TYPE.schema.names)
def test_any_type_may_come_first(column):
    batch = EVERY_TYPE.rows(0, 200).select([column])
    with_null = pa.concat_batches([batch, pa.record_batch([pa.nulls(1, batch.schema.types[0])], schema=batch.schema)])
    out = workloads.service_time(0, 0.5)(with_null)
    out.validate(full=True)
    assert out.schema.equals(batch.schema)
    # A null among them changes nothing for the others.
    assert out.to_pylist()[: out.num_rows - 1] == workloads.service_time(0, 0.5)(batch).to_pylist()[: out.num_rows - 1]


def test_split_by():
    batch = pa.record_batch({"id": [1, 2, 3, 4], "tag": ["good", "bad", None, "good"]})
    out = workloads.split_by("tag", ["good", "bad"])(batch)
    assert {name: part.column("id").to_pylist() for name, part in out.items()} == {"good": [1, 4], "bad": [2]}


def test_they_travel():
    for function in (workloads.service_time(0.001, 0.5), workloads.split_by("tag", ["a"])):
        assert pickle.loads(pickle.dumps(function)) == function


def test_stand_ins_keep_the_relation_of_loads():
    topology = Topology("t")
    bolts = workloads.StandIns(topology, schema="id long, value double", instances=3, tasks=6)
    numbers = topology.source("numbers", sources.rate(1))
    slow = bolts.add("slow", numbers, load=40, selectivity=0.5)
    bolts.add_last("fast", slow, load=10)
    definition = topology.definition()
    slow, fast = definition.operator("slow"), definition.operator("fast").spec
    assert slow.function.seconds_per_row == 4 * fast.function.seconds_per_row
    assert slow.function.seed != fast.function.seed
    assert (slow.instances, slow.tasks, slow.function.selectivity) == (3, 6, 0.5)
    assert definition.operator("fast").instances == 3
    assert slow.where.file == __file__


@pytest.mark.parametrize("arguments", [(-1,), (0, -0.5), (float("nan"),), (0, float("inf"))])
def test_mistakes(arguments):
    with pytest.raises(PenstockError) as caught:
        workloads.service_time(*arguments)
    assert caught.value.name == "BAD_FUNCTION"
    assert caught.value.where.file == __file__


def test_an_operator_that_works_uses_as_much_of_a_core_as_it_says() -> None:
    work = workloads.work_time(0.002)
    cpu = time.thread_time()
    batch = NUMBERS.rows(0, 50)
    assert work(batch) is batch
    used = time.thread_time() - cpu
    assert 0.1 <= used < 0.2
    assert workloads.work_time(0, selectivity=2.0)(batch).num_rows == 100
    with pytest.raises(PenstockError, match="cpu_seconds_per_row"):
        workloads.work_time(-1)
