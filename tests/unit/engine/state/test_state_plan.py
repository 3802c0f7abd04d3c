"""What two plans keep as state is compared by its meaning: not by names, ids, or what comes before and after it.

The plans are written as Spark writes them, but for what says nothing; tests/spark compares real ones."""

from __future__ import annotations

import itertools
from typing import Any

from penstock.engine.state.meaning import fingerprint, stateful_steps

Flat = list[dict[str, Any]]
EXPRESSIONS, PLANS = "org.apache.spark.sql.catalyst.expressions", "org.apache.spark.sql.catalyst.plans.logical"


def node(kind: str, *children: Flat, package: str = PLANS, **fields: Any) -> Flat:
    return [{"class": f"{package}.{kind}", "num-children": len(children), **fields}, *itertools.chain(*children)]


def expression(kind: str, *children: Flat, **fields: Any) -> Flat:
    return node(kind, *children, package=EXPRESSIONS, **fields)


class Plan:
    """One session: every column has an id of its own, as in Spark."""

    def __init__(self, first: int = 0) -> None:
        self._ids = itertools.count(first)
        self._session = f"session-{first}"

    def _id(self) -> dict[str, Any]:
        return {"product-class": "ExprId", "id": next(self._ids), "jvmId": self._session}

    def column(self, name: str, kind: str = "string") -> Flat:
        return expression("AttributeReference", name=name, dataType=kind, nullable=True, exprId=self._id())

    def named(self, name: str, child: Flat) -> Flat:
        return expression("Alias", child, child=0, name=name, exprId=self._id())

    def function(self, name: str, child: Flat) -> Flat:
        return expression("AggregateExpression", expression(name, child), isDistinct=False, resultId=self._id())


def refer(named: Flat) -> Flat:
    """To a column, or to what has a name."""
    return expression("AttributeReference", name=named[0]["name"], dataType="string", exprId=named[0]["exprId"])


def stream(*columns: Flat) -> Flat:
    return node("MapInArrow", node("StreamingRelationV2"), output=list(columns))


def number(value: int) -> Flat:
    return expression("Literal", value=str(value), dataType="long")


def windowed(first: int, length: int, function: str = "Sum", *, filtered: bool = False, name: str = "total") -> Flat:
    """rows.groupBy(window(at, length), key).agg(function(value).alias(name)).select(name)"""
    plan = Plan(first)
    at, key, value = plan.column("at", "timestamp"), plan.column("key"), plan.column("value", "long")
    rows = stream(at, key, value)
    if filtered:
        rows = node("Filter", rows, condition=expression("IsNotNull", refer(value)))
    window = plan.named("window", expression("Floor", refer(at), number(length)))
    rows = node("Project", rows, projectList=[window, refer(key), refer(value)])
    result = plan.named(name, plan.function(function, refer(value)))
    grouped = node(
        "Aggregate", rows, groupingExpressions=[refer(window), refer(key)], aggregateExpressions=[refer(key), result]
    )
    return node("Project", grouped, projectList=[refer(result)])


def test_the_same_function_in_another_session_is_the_same() -> None:
    assert fingerprint(windowed(0, 10)) == fingerprint(windowed(1_000, 10))
    assert len(fingerprint(windowed(0, 10))) == 1
    assert "session-0" not in str(stateful_steps(windowed(0, 10)))


def test_another_window_is_another_state_though_its_columns_are_the_same() -> None:
    assert fingerprint(windowed(0, 10)) != fingerprint(windowed(0, 20))


def test_another_aggregate_is_another_state() -> None:
    assert fingerprint(windowed(0, 10)) != fingerprint(windowed(0, 10, "Max"))


def test_filters_and_names_of_results_may_change() -> None:
    assert fingerprint(windowed(0, 10)) == fingerprint(windowed(0, 10, filtered=True, name="sum"))


def deduplicated(*keys: str, kind: str = "Deduplicate", streaming: bool = True) -> Flat:
    plan = Plan()
    columns = {name: plan.column(name) for name in ("key", "other")}
    rows = stream(*columns.values()) if streaming else node("LocalRelation", output=list(columns.values()))
    return node(kind, rows, keys=[refer(columns[name])[:1] for name in keys])


def test_keys_count() -> None:
    found = [deduplicated("key"), deduplicated("other"), deduplicated("key", "other")]
    found.append(deduplicated("key", kind="DeduplicateWithinWatermark"))
    assert len({tuple(fingerprint(one)) for one in found}) == len(found)


def joined(kind: str, streaming: bool = True) -> Flat:
    plan = Plan()
    left, right = plan.column("left"), plan.column("right")
    other = stream(right) if streaming else node("LocalRelation", output=[right])
    condition = expression("EqualTo", refer(left), refer(right))
    return node("Join", stream(left), other, joinType={"object": kind}, condition=condition)


def test_a_join_of_two_streams_has_state_and_one_with_a_table_has_none() -> None:
    assert fingerprint(joined("Inner")) != fingerprint(joined("LeftOuter"))
    assert fingerprint(joined("Inner", streaming=False)) == []
    assert fingerprint(deduplicated("key", streaming=False)) == []
    assert fingerprint(stream()) == []
