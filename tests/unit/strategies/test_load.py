"""A load is checked once, when it is made."""

from __future__ import annotations

import pytest
from loads import load

from penstock import PenstockError
from penstock.strategies.load import Load, OperatorLoad, StreamLoad


def test_inputs_are_what_parents_emit_and_what_the_outside_offers() -> None:
    one = load("a-c:10 b-c:5 c-d:3", {"a": 10, "b": 5, "c": 12, "d": 3}, external={"a": 40})
    assert one.inputs == (40, 5, 15, 3)
    assert (one.sources, one.sinks) == ((0, 1), (3,))
    assert one.throughput == 3


def test_two_streams_between_two_operators_add_up() -> None:
    one = Load((OperatorLoad("a", 10), OperatorLoad("b", 15)), (StreamLoad("a", "b", 10), StreamLoad("a", "b", 5)))
    assert one.inputs == (10, 15)
    assert one.children == ((1,), ())


A, B = OperatorLoad("a", 1), OperatorLoad("b", 1)


@pytest.mark.parametrize(
    ("operators", "streams"),
    [
        ((A, A), ()),
        ((A, OperatorLoad("b", -1)), ()),
        ((A, OperatorLoad("b", float("nan"))), ()),
        ((A, OperatorLoad("b", 1, weight=float("inf"))), ()),
        ((A, OperatorLoad("b", 1, most_instances=0)), ()),
        ((A, OperatorLoad("b", 1, external=3.0)), (StreamLoad("a", "b", 1),)),
        ((A, B), (StreamLoad("a", "z", 1),)),
        ((A, B), (StreamLoad("b", "a", 1),)),
        ((A, B), (StreamLoad("a", "b", -1),)),
    ],
)
def test_what_makes_no_sense_is_refused(operators, streams) -> None:
    with pytest.raises(PenstockError) as caught:
        Load(operators, streams)
    assert caught.value.name == "BAD_LOAD"
