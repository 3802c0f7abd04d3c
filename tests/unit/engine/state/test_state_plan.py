"""What two plans keep as state is compared by its meaning: not by names, ids, or what comes before and after it.

The plans are written as Spark writes them, but for what says nothing; tests/spark compares real ones."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest

from penstock.engine.state.meaning import INPUT, fingerprint, inputs_read, stateful_steps

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


def summed_after_a_join(summed: int, first: int) -> Flat:
    """left.join(right, left.key == right.key).groupBy(left.key).agg(sum(value)), the value of one of the two inputs."""
    plan = Plan(first)
    columns = [[plan.column("key"), plan.column("value", "long")] for _ in range(2)]
    sides = []
    for index, side in enumerate(columns):
        marked = plan.named(f"{INPUT}{index}", plan.column("value", "long"))
        rows = node("Project", node("StreamingRelationV2"), projectList=[marked])
        sides.append(node("MapInArrow", rows, output=side))
    keys = expression("EqualTo", *(refer(side[0]) for side in columns))
    rows = node("Join", *sides, joinType={"object": "Inner"}, condition=keys)
    total = plan.named("total", plan.function("Sum", refer(columns[summed][1])))
    return node("Aggregate", rows, groupingExpressions=[refer(columns[0][0])], aggregateExpressions=[total])


def test_columns_of_two_inputs_are_two_though_they_have_one_name() -> None:
    assert inputs_read(summed_after_a_join(0, 0)) == [0, 1]
    one, again, other = (
        fingerprint(summed_after_a_join(summed, first), inputs_apart=True)
        for summed, first in ((0, 0), (0, 1_000), (1, 0))
    )
    assert one == again
    assert one != other
    assert len(one) == 2, "the join and the aggregate"


def grouped_by(key: Callable[[Plan, Flat], Flat], first: int) -> Flat:
    """rows.groupBy(key(rows.value)).count()"""
    plan = Plan(first)
    value = plan.column("value")
    named = plan.named("key", key(plan, refer(value)))
    rows = node("Project", stream(value), projectList=[named])
    counted = plan.named("n", plan.function("Count", number(1)))
    return node("Aggregate", rows, groupingExpressions=[refer(named)], aggregateExpressions=[counted])


def transformed(counter: int, used: int = 0) -> Callable[[Plan, Flat], Flat]:
    """transform(value, (x, y) -> f(x)): Spark puts a counter of its whole process behind the names of variables."""

    def key(plan: Plan, value: Flat) -> Flat:
        variables = [
            expression("NamedLambdaVariable", name=f"{name}_{counter + at}", dataType="long", exprId=plan._id())
            for at, name in enumerate("xy")
        ]
        body = expression("Negative", variables[used])
        function = expression("LambdaFunction", body, *variables, function=0, arguments=[1, 2], hidden=False)
        return expression("ArrayTransform", value, function, argument=0, function=1)

    return key


def test_variables_of_lambdas_have_other_names_in_every_session() -> None:
    assert fingerprint(grouped_by(transformed(1), 0)) == fingerprint(grouped_by(transformed(8), 50))
    assert fingerprint(grouped_by(transformed(1), 0)) != fingerprint(grouped_by(transformed(1, used=1), 0))


def seeded(kind: str, seed: int) -> Callable[[Plan, Flat], Flat]:
    def key(plan: Plan, value: Flat) -> Flat:
        if kind in ("Rand", "Randn"):
            return expression("Add", value, expression(kind, number(seed), child=0, hideSeed=False))
        if kind == "RandStr":
            return expression(kind, value, number(seed), length=0, seedExpression=1, hideSeed=True)
        return expression(kind, *([value] if kind == "Shuffle" else []), randomSeed=seed)

    return key


@pytest.mark.parametrize("kind", ["Rand", "Randn", "RandStr", "Shuffle", "Uuid"])
def test_seeds_are_drawn_anew_in_every_session(kind: str) -> None:
    assert fingerprint(grouped_by(seeded(kind, 1), 0)) == fingerprint(grouped_by(seeded(kind, 2), 0))
    step = "".join(stateful_steps(grouped_by(seeded(kind, 1), 0)))
    assert kind in step
    assert ("value:" in step) == (kind != "Uuid"), "what is not a seed counts"


def input_stream(index: int) -> Flat:
    plan = Plan(index)
    marked = plan.named(f"{INPUT}{index}", plan.column("value"))
    return node("MapInArrow", node("Project", node("StreamingRelationV2"), projectList=[marked]))


def test_inputs_are_read_in_the_order_of_the_leaves() -> None:
    assert inputs_read(node("Union", input_stream(1), input_stream(0))) == [1, 0]
    assert inputs_read(node("Join", input_stream(0), node("Deduplicate", input_stream(0)))) == [0, 0]
    assert inputs_read(stream()) == []
