"""Every mistake in a graph has its name, and points at the line to change."""

from __future__ import annotations

import pytest
from topology_fakes import FakeSink, expect, one_source, rows, same

from penstock.topology import DEAD_LETTER_SCHEMA, Output, Topology, schema_text

WORDS = "word string, n long"


@pytest.mark.parametrize("name", ["", "-a", "_a", "a b", "a/b", "ä", "x" * 65, "a\n", None, 3])
def test_bad_name_of_a_topology(name):
    def declare():
        topology = Topology(name)  # <- here
        topology.sink("out", FakeSink(), inputs=[topology.source("lines", rows(WORDS))])
        topology.definition()

    expect("BAD_NAME", declare)


def test_bad_name_of_an_operator():
    def declare():
        topology, lines = one_source()
        topology.sink("console out", FakeSink(), inputs=[lines])  # <- here
        topology.definition()

    assert "'console out'" in expect("BAD_NAME", declare).message


def test_bad_name_of_an_output():
    def declare():
        topology, lines = one_source()
        parts = topology.map("split", same, inputs=[lines], outputs={"so far": WORDS})  # <- here
        topology.sink("out", FakeSink(), inputs=[parts])
        topology.definition()

    expect("BAD_NAME", declare)


@pytest.mark.parametrize("name", ["a", "9", "A-b_c", "x" * 64])
def test_good_names(name):
    topology = Topology(name)
    topology.sink("out", FakeSink(), inputs=[topology.source("lines", rows(WORDS))])
    assert topology.definition().name == name


@pytest.mark.parametrize(("on_error", "schema"), [("fail", schema_text(DEAD_LETTER_SCHEMA)), ("dead_letter", "a int")])
def test_dead_letter_is_a_reserved_name(on_error, schema):
    def declare():
        topology, lines = one_source()
        outputs = {"out": WORDS, "dead_letter": schema}
        split = topology.map("split", same, inputs=[lines], outputs=outputs, on_error=on_error)  # <- here
        topology.sink("out", FakeSink(), inputs=[split])
        topology.definition()

    assert "reserved" in expect("BAD_NAME", declare).message


def test_duplicate_name():
    def declare():
        topology, lines = one_source()
        topology.sink("out", FakeSink(), inputs=[lines])
        topology.sink("out", FakeSink(), inputs=[lines])  # <- here
        topology.definition()

    assert "test_graph_rules.py" in expect("DUPLICATE_NAME", declare).message  # where the first one is


def test_unknown_operator():
    def declare():
        topology, _ = one_source()
        topology.sink("out", FakeSink(), inputs=["linse"])  # <- here
        topology.definition()

    assert expect("UNKNOWN_OPERATOR", declare).hint == 'Did you mean "lines"?'


def test_unknown_operator_unlike_any():
    def declare():
        topology, _ = one_source()
        topology.sink("out", FakeSink(), inputs="zzz")  # <- here
        topology.definition()

    assert expect("UNKNOWN_OPERATOR", declare).hint == "There are: lines, out."


def test_unknown_output():
    def declare():
        topology, lines = one_source()
        split = topology.map("split", same, inputs=[lines], outputs={"good": WORDS, "late": WORDS})
        topology.sink("out", FakeSink(), inputs=[split, split["lat"]])  # <- here
        topology.definition()

    assert expect("UNKNOWN_OUTPUT", declare).hint == 'Did you mean "late"?'


def test_unknown_output_of_a_sink():
    def declare():
        topology, lines = one_source()
        topology.sink("out", FakeSink(), inputs=[lines])
        topology.sink("more", FakeSink(), inputs=[Output("out")])  # <- here
        topology.definition()

    assert "sink" in expect("UNKNOWN_OUTPUT", declare).hint


def test_dead_letter_of_an_operator_that_has_none():
    def declare():
        topology, lines = one_source()
        topology.sink("out", FakeSink(), inputs=[lines])
        topology.sink("bad", FakeSink(), inputs=[lines.dead_letter])  # <- here
        topology.definition()

    assert 'on_error="dead_letter"' in expect("UNKNOWN_OUTPUT", declare).hint


def test_duplicate_stream():
    def declare():
        topology, lines = one_source()
        topology.map("split", same, inputs=[lines, lines.by_key("word")], schema=WORDS)  # <- here
        topology.sink("out", FakeSink(), inputs=["split"])
        topology.definition()

    expect("DUPLICATE_STREAM", declare)


def test_an_empty_topology_has_no_source():
    def declare():
        topology = Topology("empty")  # <- here
        topology.definition()

    expect("NO_SOURCE", declare)


def test_no_sink():
    def declare():
        topology = Topology("no-way-out")  # <- here
        topology.source("lines", rows(WORDS))
        topology.definition()

    expect("NO_SINK", declare)


def test_no_input():
    def declare():
        topology, lines = one_source()
        topology.sink("out", FakeSink(), inputs=[lines])
        topology.sink("nothing", FakeSink(), inputs=[])  # <- here
        topology.definition()

    expect("NO_INPUT", declare)


@pytest.mark.parametrize("inputs", [None, [None], {"lines"}, [3]])
def test_something_else_as_input(inputs):
    def declare():
        topology, _ = one_source()
        topology.sink("out", FakeSink(), inputs=inputs)  # <- here

    expect("NO_INPUT", declare)


def test_a_handle_is_not_a_sequence():
    _, lines = one_source()
    with pytest.raises(TypeError):
        list(lines)


def test_unused_operator():
    def declare():
        topology, lines = one_source()
        split = topology.map("split", same, inputs=[lines], outputs={"good": WORDS, "late": WORDS})  # <- here
        topology.sink("out", FakeSink(), inputs=[split])
        topology.definition()

    assert '"late"' in expect("UNUSED_OPERATOR", declare).message


def test_unused_dead_letter():
    def declare():
        topology, lines = one_source()
        split = topology.map("split", same, inputs=[lines], schema=WORDS, on_error="dead_letter")  # <- here
        topology.sink("out", FakeSink(), inputs=[split])
        topology.definition()

    error = expect("UNUSED_OPERATOR", declare)
    assert '"dead_letter"' in error.message
    assert 'on_error="skip"' in error.hint


def test_cycle():
    def declare():
        topology, lines = one_source()
        topology.map("a", same, inputs=[lines, "c"], schema=WORDS)  # <- here
        topology.map("b", same, inputs=["a"], schema=WORDS)
        topology.map("c", same, inputs=["b"], schema=WORDS)
        topology.sink("out", FakeSink(), inputs=["c"])
        topology.definition()

    assert "a -> b -> c -> a." in expect("CYCLE", declare).message


def test_cycle_of_one():
    def declare():
        topology, lines = one_source()
        topology.map("a", same, inputs=[lines, "a"], schema=WORDS)  # <- here
        topology.sink("out", FakeSink(), inputs=["a"])
        topology.definition()

    assert "a -> a." in expect("CYCLE", declare).message


def test_cycle_upstream_of_what_is_declared_first():
    def declare():
        topology, lines = one_source()
        topology.sink("out", FakeSink(), inputs=["b"])
        topology.map("a", same, inputs=[lines, "b"], schema=WORDS)  # <- here
        topology.map("b", same, inputs=["a"], schema=WORDS)
        topology.definition()

    assert "a -> b -> a." in expect("CYCLE", declare).message


def test_operators_come_in_topological_order_and_ties_as_declared():
    topology = Topology("order")
    topology.sink("out", FakeSink(), inputs=["d", "c"])
    topology.map("d", same, inputs=["b"], schema=WORDS)
    topology.source("b", rows(WORDS))
    topology.source("a", rows(WORDS))
    topology.map("c", same, inputs=["a", "b"], schema=WORDS)
    definition = topology.definition()
    assert [operator.name for operator in definition.operators] == ["b", "d", "a", "c", "out"]
    assert [stream.producer for stream in definition.inputs_of("out")] == ["d", "c"]
