"""What holds for every topology and every schema."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import PenstockError
from penstock.kinds import SinkKind, SourceKind
from penstock.topology import Topology, as_json, as_mermaid, as_text, parse_schema, same_schema, schema_text

SCHEMA = parse_schema("word string")
#: These tests are about results; on a busy machine one example may take any time.
unhurried = settings(deadline=None)


@dataclass(frozen=True)
class FakeSpec(SourceKind, SinkKind):
    schema: pa.Schema = SCHEMA
    kind: str = "fake"

    def describe(self) -> Mapping[str, Any]:
        return {}


@dataclass(frozen=True)
class Graph:
    """Operators 0, 1, ...: `inputs[i]` are those that i reads, all below i; without any it is a source."""

    inputs: tuple[tuple[int, ...], ...]
    declared: tuple[int, ...]

    @property
    def inner(self) -> list[int]:
        return [operator for operator, inputs in enumerate(self.inputs) if inputs]

    def below(self, operator: int) -> set[int]:
        """The operators that can be reached from here, and this one."""
        found = {operator}
        for reader, inputs in enumerate(self.inputs):
            if found & set(inputs):
                found.add(reader)
        return found

    def declare(self, back: tuple[int, int] | None = None) -> Topology:
        """The topology, with an edge more if asked for; a sink reads what nobody else reads."""
        topology = Topology("random")
        read = {producer for inputs in self.inputs for producer in inputs}
        for operator in self.declared:
            inputs = list(self.inputs[operator])
            if back and back[1] == operator:
                inputs.append(back[0])
            if inputs:
                names = [f"op{producer}" for producer in inputs]
                topology.map(f"op{operator}", lambda batch: batch, inputs=names, schema=SCHEMA)
            else:
                topology.source(f"op{operator}", FakeSpec())
            if operator not in read:
                topology.sink(f"sink{operator}", FakeSpec(), inputs=[f"op{operator}"])
        return topology


@st.composite
def graphs(draw: st.DrawFn, min_inner: int = 0) -> Graph:
    size = draw(st.integers(1 + min_inner, 9))
    inputs: list[tuple[int, ...]] = [()]
    for operator in range(1, size):
        least = 1 if operator <= min_inner else 0
        inputs.append(tuple(sorted(draw(st.sets(st.integers(0, operator - 1), min_size=least, max_size=3)))))
    return Graph(tuple(inputs), tuple(draw(st.permutations(range(size)))))


@unhurried
@given(graphs())
def test_a_random_graph_comes_in_topological_order(graph):
    definition = graph.declare().definition()
    place = {operator.name: index for index, operator in enumerate(definition.operators)}
    assert len(place) == len(definition.operators)
    assert {f"op{operator}" for operator in graph.declared} <= place.keys()
    assert all(place[stream.producer] < place[stream.consumer] for stream in definition.streams)


@unhurried
@given(graphs())
def test_sources_come_in_the_order_of_declaration(graph):
    definition = graph.declare().definition()
    order = [f"op{operator}" for operator in graph.declared if not graph.inputs[operator]]
    assert [source.name for source in definition.sources] == order


@unhurried
@given(graphs(min_inner=1), st.data())
def test_an_edge_back_is_always_a_cycle(graph, data):
    ancestor = data.draw(st.sampled_from(graph.inner))
    descendant = data.draw(st.sampled_from(sorted(graph.below(ancestor))))
    with pytest.raises(PenstockError) as caught:
        graph.declare(back=(descendant, ancestor)).definition()
    assert caught.value.name == "CYCLE"
    assert caught.value.where.file == __file__
    first, *_, last = caught.value.message.removeprefix("the streams form a cycle: ").removesuffix(".").split(" -> ")
    assert first == last


@unhurried
@given(graphs())
def test_every_valid_topology_can_be_drawn(graph):
    definition = graph.declare().definition()
    assert json.loads(json.dumps(as_json(definition)))["name"] == "random"
    assert as_mermaid(definition).count(" -->") == len(definition.streams)
    assert all(operator.name in as_text(definition) for operator in definition.operators)


SIMPLE = st.sampled_from(
    [
        *(pa.string(), pa.bool_(), pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.float32(), pa.float64()),
        *(pa.binary(), pa.date32(), pa.timestamp("us", "UTC"), pa.timestamp("us")),
    ]
)
DECIMALS = st.integers(1, 38).flatmap(lambda digits: st.builds(pa.decimal128, st.just(digits), st.integers(0, digits)))
NAMES = st.text("abÄß漢_12 -.`'\"<>(),:;\n", min_size=1, max_size=6)


def named(types):
    return st.lists(st.tuples(NAMES, types), min_size=1, max_size=4, unique_by=lambda part: part[0])


TYPES = st.recursive(
    SIMPLE | DECIMALS,
    lambda types: types.map(pa.list_) | st.builds(pa.map_, types, types) | named(types).map(pa.struct),
    max_leaves=6,
)


@unhurried
@given(named(TYPES).map(pa.schema))
def test_a_schema_survives_its_text(schema):
    assert parse_schema(schema_text(schema)).equals(schema)
    assert same_schema(parse_schema(schema_text(schema)), schema)


@unhurried
@given(st.text(max_size=30) | st.text("ab`<>(),: decimalrystuct1", max_size=30))
def test_any_text_is_a_schema_or_a_named_error(text):
    try:
        schema = parse_schema(text)
    except PenstockError as error:
        assert error.name == "BAD_SCHEMA"
    else:
        assert parse_schema(schema_text(schema)).equals(schema)
