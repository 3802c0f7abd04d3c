"""A function that cannot be called, or returns something else than declared, is found before Spark starts."""

from __future__ import annotations

import pyarrow as pa
import pytest
from topology_fakes import FakeSink, FakeSource, expect, one_source, rows, same

from penstock import aggregates

WORDS = "word string, n long"
LENGTHS = pa.record_batch({"length": pa.array([], pa.int32())})


async def coroutine(batch):
    return batch


async def asynchronous_generator(batch):
    yield batch


def a_definition(function, schema=WORDS):
    topology, lines = one_source()
    topology.sink("out", FakeSink(), inputs=[topology.map("work", function, inputs=[lines], schema=schema)])
    return topology.definition()


@pytest.mark.parametrize(
    "function",
    [
        "upper",
        None,
        lambda: None,
        lambda a, b: a,
        lambda batch, *, option: batch,
        coroutine,
        asynchronous_generator,
        lambda batch: 42,
        lambda batch: batch.to_pandas(),
        lambda batch: {"other": batch},
    ],
)
def test_bad_arrow_function(function):
    def declare():
        topology, lines = one_source()
        work = topology.map("work", function, inputs=[lines], schema=WORDS)  # <- here
        topology.sink("out", FakeSink(), inputs=[work])
        topology.definition()

    assert '"work"' in expect("BAD_FUNCTION", declare).message


@pytest.mark.parametrize("declaration", ["map_dataframe", "keyed"])
@pytest.mark.parametrize("function", ["sql", lambda: None, lambda a, b, c: a, coroutine])
def test_bad_dataframe_function(declaration, function):
    def declare():
        topology, lines = one_source()
        more = topology.source("more", rows(WORDS))
        key = {"key": "word"} if declaration == "keyed" else {}
        getattr(topology, declaration)("work", function, inputs=[lines, more], schema=WORDS, **key)  # <- here
        topology.sink("out", FakeSink(), inputs=["work"])
        topology.definition()

    expect("BAD_FUNCTION", declare)


@pytest.mark.parametrize(
    "function",
    [
        lambda batch: LENGTHS,
        lambda batch: [batch, LENGTHS],
        lambda batch: {"out": LENGTHS},
        lambda batch: pa.Table.from_batches([LENGTHS]),
        lambda batch: (LENGTHS for _ in range(1)),
    ],
)
def test_function_of_another_schema(function):
    def declare():
        topology, lines = one_source()
        work = topology.map("work", function, inputs=[lines], schema="length long")  # <- here
        topology.sink("out", FakeSink(), inputs=[work])
        topology.definition()

    error = expect("FUNCTION_SCHEMA", declare)
    assert '"work"' in error.message
    assert '"length long"' in error.message


def fails_without_rows(batch):
    return batch if batch.num_rows else 1 / 0


def generator_that_fails_without_rows(batch):
    yield fails_without_rows(batch)


@pytest.mark.parametrize("function", [fails_without_rows, generator_that_fails_without_rows])
def test_a_function_that_fails_without_rows_is_left_to_the_engine(function):
    assert a_definition(function).operator("work").function is function


@pytest.mark.parametrize(
    "function", [same, lambda batch: [batch], lambda *batches: batches[0], lambda batch, n=3: None]
)
def test_good_arrow_functions(function):
    assert a_definition(function).operator("work").function is function


@pytest.mark.parametrize("declaration", ["map", "map_dataframe", "keyed", "sink"])
def test_interleaved_inputs_have_one_schema(declaration):
    def declare():
        topology, lines = one_source()
        other = topology.source("other", rows("word string, n int"))
        words = {"spec": FakeSink()} if declaration == "sink" else {"function": same, "schema": WORDS}
        words |= {"key": "word"} if declaration == "keyed" else {}
        getattr(topology, declaration)("work", inputs=[lines, other], **words)  # <- here
        topology.sink("out", FakeSink(), inputs=[lines if declaration == "sink" else "work"])
        topology.definition()

    error = expect("SCHEMA_MISMATCH", declare)
    assert '"word string, n int" from "other"' in error.message


def test_inputs_in_dataframes_of_their_own_may_differ():
    topology, lines = one_source()
    other = topology.source("other", rows("word string, price double"))
    joined = topology.keyed("join", lambda a, b: a, inputs=[lines, other], key="word", schema=WORDS)
    topology.sink("out", FakeSink(), inputs=[joined])
    assert len(topology.definition().inputs_of("join")) == 2


@pytest.mark.parametrize("strict_first", [True, False])
def test_inputs_that_differ_in_nullability_only(strict_first):
    """The function is tried with what it will get: values that may be null if they may be in any input."""
    topology, lines = one_source("n long")
    strict = topology.source("strict", FakeSource(pa.schema([pa.field("n", pa.int64(), nullable=False)])))
    tried = []

    def remember(batch):
        tried.append(batch.schema.field("n").nullable)
        return batch

    inputs = [strict, lines] if strict_first else [lines, strict]
    work = topology.map("work", remember, inputs=inputs, schema="n long")
    topology.sink("out", FakeSink(), inputs=work)
    assert topology.definition().schema_of_all(topology.definition().inputs_of("work")).field("n").nullable
    assert tried == [True, True]


def test_the_key_of_an_aggregate_may_be_null_if_it_may_be_in_any_input():
    topology, lines = one_source("n long")
    strict = topology.source("strict", FakeSource(pa.schema([pa.field("n", pa.int64(), nullable=False)])))
    counts = topology.aggregate("counts", {"count": aggregates.count()}, inputs=[strict, lines], key="n")
    topology.sink("out", FakeSink(), inputs=counts)
    operators = topology.definition().operators
    assert all(one.outputs["out"].field("n").nullable for one in operators if one.name.startswith("counts"))


def test_an_aggregate_over_inputs_that_do_not_agree():
    def declare():
        topology, lines = one_source("n long")
        other = topology.source("other", rows("n int"))
        counts = topology.aggregate("counts", {"count": aggregates.count()}, inputs=[lines, other], key="n")  # <- here
        topology.sink("out", FakeSink(), inputs=counts)
        topology.definition()

    expect("SCHEMA_MISMATCH", declare)
