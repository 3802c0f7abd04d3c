"""What an Arrow function may return, and what is made of it."""

from __future__ import annotations

import pyarrow as pa
import pytest

from penstock.errors import PenstockError
from penstock.topology import DEAD_LETTER, DEAD_LETTER_SCHEMA, outputs_of_call, parse_schema

NUMBERS = parse_schema("n long")
WORDS = parse_schema("word string")
ONE = {"out": NUMBERS}
TWO = {"numbers": NUMBERS, "words": WORDS}
numbers = pa.record_batch({"n": [1, 2]})
words = pa.record_batch({"word": ["a"]})


def called(result, outputs=ONE):
    return [(output, batch.to_pydict()) for output, batch in outputs_of_call(result, outputs)]


@pytest.mark.parametrize(
    "result",
    [
        numbers,
        [numbers],
        iter([numbers]),
        (batch for batch in [numbers]),
        pa.Table.from_batches([numbers]),
        [pa.Table.from_batches([numbers])],
        {"out": numbers},
        {"out": [numbers]},
    ],
)
def test_shapes_of_one_output(result):
    assert called(result) == [("out", {"n": [1, 2]})]


@pytest.mark.parametrize("result", [None, [], {}, {"out": None}, {"out": []}, NUMBERS.empty_table()])
def test_no_rows(result):
    assert called(result) == []


def test_a_table_becomes_its_batches():
    assert len(called(pa.Table.from_batches([numbers, numbers]))) == 2


def test_several_outputs_come_by_name():
    result = {"words": words, "numbers": (numbers, numbers)}
    assert [output for output, _ in called(result, TWO)] == ["words", "numbers", "numbers"]
    assert called(None, TWO) == []


def test_the_dead_letter_output_does_not_make_a_plain_result_ambiguous():
    outputs = {**ONE, DEAD_LETTER: DEAD_LETTER_SCHEMA}
    assert called(numbers, outputs) == [("out", {"n": [1, 2]})]


def test_the_right_batch_is_passed_on_untouched():
    ((_, batch),) = outputs_of_call(numbers, ONE)
    assert batch is numbers


def test_a_batch_that_differs_in_nullability_takes_the_declared_schema():
    strict = pa.schema([pa.field("n", pa.int64(), nullable=False)], metadata={"made": "elsewhere"})
    ((_, batch),) = outputs_of_call(numbers.cast(strict), ONE)
    assert batch.schema.equals(NUMBERS, check_metadata=True)


@pytest.mark.parametrize(
    ("result", "outputs", "name", "part"),
    [
        (words, ONE, "FUNCTION_SCHEMA", 'declared as "n long", but the function returned "word string"'),
        (pa.record_batch({"n": pa.array([1], pa.int32())}), ONE, "FUNCTION_SCHEMA", '"n int"'),
        (pa.table({"word": pa.array([], pa.string())}), ONE, "FUNCTION_SCHEMA", '"word string"'),
        ([numbers, words], ONE, "FUNCTION_SCHEMA", '"word string"'),
        ({"words": numbers}, TWO, "FUNCTION_SCHEMA", 'output "words"'),
        (numbers, TWO, "BAD_FUNCTION", "numbers, words"),
        ({"other": numbers}, ONE, "BAD_FUNCTION", "'other'"),
        ({"out": {"out": numbers}}, ONE, "BAD_FUNCTION", "str"),
        (42, ONE, "BAD_FUNCTION", "int"),
        ("rows", ONE, "BAD_FUNCTION", "str"),
        ([{"n": 1}], ONE, "BAD_FUNCTION", "dict"),
        (numbers.to_pandas(), ONE, "BAD_FUNCTION", "DataFrame"),
        ({"out": 42}, ONE, "BAD_FUNCTION", "int"),
    ],
)
def test_anything_else_is_named(result, outputs, name, part):
    with pytest.raises(PenstockError) as caught:
        called(result, outputs)
    assert caught.value.name == name
    assert caught.value.where is None
    assert part in caught.value.message


def test_nulls_in_a_column_declared_without_them():
    strict = {"out": pa.schema([pa.field("n", pa.int64(), nullable=False)])}
    with pytest.raises(PenstockError, match="null values") as caught:
        called(pa.record_batch({"n": pa.array([1, None], pa.int64())}), strict)
    assert caught.value.name == "FUNCTION_SCHEMA"


def test_what_a_generator_raises_passes_through():
    def failing():
        yield numbers
        raise KeyError("n")

    with pytest.raises(KeyError):
        called(failing())
