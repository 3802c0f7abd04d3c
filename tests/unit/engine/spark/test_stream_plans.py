"""Which nodes of a stream's plan keep state; the plan is a double."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from penstock.engine.spark import stream_plans


class Node:
    def __init__(self, name: str, *children: Node, streaming: bool = False) -> None:
        self._name, self._children = name, children
        self._streaming = streaming or any(one.isStreaming() for one in children)

    def nodeName(self) -> str:
        return self._name

    def children(self) -> tuple[Node, ...]:
        return self._children

    def isStreaming(self) -> bool:
        return self._streaming


STREAM, TABLE = Node("StreamingRelationV2", streaming=True), Node("Range")


@pytest.fixture(autouse=True)
def _without_java(monkeypatch: pytest.MonkeyPatch) -> None:
    converters = SimpleNamespace(asJava=lambda children: children)
    java: Any = SimpleNamespace(scala=SimpleNamespace(jdk=SimpleNamespace(javaapi=SimpleNamespace())))
    java.scala.jdk.javaapi.CollectionConverters = converters
    monkeypatch.setattr(stream_plans, "java_of", lambda session: java)


def found(plan: Node) -> list[str]:
    execution = SimpleNamespace(analyzed=lambda: plan)
    frame: Any = SimpleNamespace(_jdf=SimpleNamespace(queryExecution=lambda: execution), sparkSession=None)
    return stream_plans.stateful_nodes(frame)


@pytest.mark.parametrize(
    "name",
    [
        "Aggregate",
        "Deduplicate",
        "DeduplicateWithinWatermark",
        "Distinct",
        "FlatMapGroupsInPandasWithState",
        "GlobalLimit",
        "TransformWithStateInPySpark",
    ],
)
def test_what_keeps_state_on_a_stream_keeps_none_on_a_table(name: str) -> None:
    assert found(Node("Project", Node(name, STREAM))) == [name]
    assert found(Node("Join", STREAM, Node(name, TABLE))) == []


def test_only_a_join_of_two_streams_keeps_state() -> None:
    assert found(Node("Join", STREAM, Node("Project", STREAM))) == ["Join"]
    assert found(Node("Join", STREAM, TABLE)) == []


@pytest.mark.parametrize("name", ["Except", "Except All"])
def test_to_take_away_the_rows_of_a_table_needs_state(name: str) -> None:
    """Spark makes an aggregate of it, after it has checked the plan."""
    assert found(Node("Project", Node(name, STREAM, TABLE))) == [name]
    assert found(Node("Join", STREAM, Node(name, TABLE, TABLE))) == []


def test_what_keeps_nothing() -> None:
    assert found(Node("Project", Node("FlatMapGroupsInPandas", Node("Filter", Node("Union", STREAM, STREAM))))) == []
