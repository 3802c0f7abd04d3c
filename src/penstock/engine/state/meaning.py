"""What Spark keeps as state for a keyed operator's function, in words that can be compared with those of another run.

Spark goes on with old state whenever the types of its columns fit: counts of windows of ten seconds become counts of
windows of twenty. So each stateful step of the analysed plan is described by what its state means: the keys, the
aggregates, the condition of a join, each traced back through the projections to the columns of the inputs. What comes
before and after (filters, names of results) may change, as Spark allows, and so may the user's own code over state.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

Node = Mapping[str, Any]
#: As Spark writes a tree in JSON: all nodes in one list, each before its children.
Flat = Sequence[Node]

_STREAMS = ("StreamingRelation", "StreamingRelationV2", "StreamingExecutionRelation")
_STATEFUL = (
    "Aggregate",
    "Deduplicate",
    "DeduplicateWithinWatermark",
    "Distinct",
    "FlatMapGroupsInPandasWithState",
    "FlatMapGroupsWithState",
    "GlobalLimit",
    "Join",
    "TransformWithState",
    "TransformWithStateInPandas",
    "TransformWithStateInPySpark",
)
#: What differs from run to run and from machine to machine, or says nothing about the state.
_PASSING = (
    "class",
    "num-children",
    "child",
    "children",
    "left",
    "right",
    "exprId",
    "resultId",
    "qualifier",
    "metadata",
    "nullable",
    "timeZoneId",
    "evalContext",
    "evalMode",
    "hint",
    "nonInheritableMetadataKeys",
    "explicitMetadata",
    "functionExpr",
    "initialState",
    "outputAttrs",
    "udf",
    "func",
    "randomSeed",
)
#: Their only child is a seed. Without one in the user's code, Spark draws a seed whenever the function is called.
_OF_A_SEED = ("Rand", "Randn")
#: The name of the column that the stream behind an input of a rehearsal has, without the input's number.
INPUT = "penstock_input_"


def fingerprint(plan: Flat, inputs_apart: bool = False) -> list[str]:
    """The kind of every stateful step, with a number that is another as soon as its state means something else. With
    `inputs_apart`, columns of two inputs count as two also if they have one name."""
    steps = stateful_steps(plan, inputs_apart)
    return [f"{step.split()[0]} {hashlib.sha256(step.encode()).hexdigest()[:16]}" for step in steps]


def stateful_steps(plan: Flat, inputs_apart: bool = False) -> list[str]:
    """One text for each stateful step of an analysed plan, from the result down to the inputs."""
    tree = _Tree(plan, inputs_apart)
    return [tree.described(index) for index in range(len(plan)) if tree.is_stateful(index)]


def inputs_read(plan: Flat) -> list[int]:
    """The numbers of the inputs that a rehearsed function reads, in the order in which Spark writes down their
    offsets: that of the leaves. One that is read twice is there twice."""
    return [index for node in plan for index in _inputs_named(node)]


def _inputs_named(node: Node) -> list[int]:
    named = [one["name"] for flat in _expressions(node) for one in flat if _name(one) == "Alias"]
    return [int(name.removeprefix(INPUT)) for name in named if name.startswith(INPUT)]


class _Tree:
    """A plan with what its named expressions stand for."""

    def __init__(self, plan: Flat, inputs_apart: bool) -> None:
        self._plan = plan
        #: By the id of a column of a rehearsed input: the number of the input.
        self._inputs: dict[int, int] = {}
        #: Behind the last node of the tree below each node.
        self._ends = _ends(plan)
        #: By the id of an expression that has a name: the expression itself, or several where rows are multiplied.
        self._meanings: dict[int, list[Flat]] = {}
        for index, node in enumerate(plan):
            for flat in _expressions(node):
                for at, one in enumerate(flat):
                    if _name(one) == "Alias":
                        self._meanings[one["exprId"]["id"]] = [_below(flat, at)[0]]
            if inputs_apart and (inputs := _inputs_named(node)):
                # The stream behind an input; what is right above it gives the rows their schema.
                above = plan[index - 1].get("output", ()) if index else ()
                self._inputs |= {flat[0]["exprId"]["id"]: inputs[0] for flat in above}
            if _name(node) == "Expand":
                for position, output in enumerate(node["output"]):
                    variants = [projection[position] for projection in node["projections"]]
                    self._meanings[output[0]["exprId"]["id"]] = variants

    def is_stateful(self, index: int) -> bool:
        name, children = _name(self._plan[index]), self._children(index)
        if name not in _STATEFUL or not self._streams(index):
            return False
        return name != "Join" or all(self._streams(child) for child in children)

    def described(self, index: int) -> str:
        node = self._plan[index]
        name = _name(node)
        if name == "Aggregate":
            keys = [self._text(flat) for flat in node["groupingExpressions"]]
            functions = dict.fromkeys(
                self._text(flat[at:])
                for flat in node["aggregateExpressions"]
                for at, one in enumerate(flat)
                if _name(one) == "AggregateExpression"
            )
            return f"Aggregate by [{', '.join(keys)}] of [{', '.join(functions)}]"
        if name.startswith("TransformWithStateIn"):
            projected = self._plan[self._children(index)[0]].get("projectList", ())
            keys = [self._text(flat) for flat in projected[: int(node["groupingAttributesLen"])]]
            return f"{name} by [{', '.join(keys)}] {self._fields(node)}"
        return f"{name} {self._fields(node)}"

    def _children(self, index: int) -> list[int]:
        children, at = [], index + 1
        for _ in range(self._plan[index]["num-children"]):
            children.append(at)
            at = self._ends[at]
        return children

    def _streams(self, index: int) -> bool:
        return any(_name(node) in _STREAMS for node in self._plan[index : self._ends[index]])

    def _fields(self, node: Node, variables: dict[int, int] | None = None) -> str:
        shown = {
            key: self._value(value, variables)
            for key, value in node.items()
            if key not in _PASSING and value is not None and not _repeats(value)
        }
        return ", ".join(f"{key}={value}" for key, value in sorted(shown.items()))

    def _value(self, value: Any, variables: dict[int, int] | None) -> str:
        if _is_expression(value):
            return self._text(value, variables)
        if isinstance(value, list):
            return f"[{', '.join(self._value(one, variables) for one in value)}]"
        return json.dumps(value, sort_keys=True)

    def _text(self, flat: Flat, variables: dict[int, int] | None = None) -> str:
        """An expression, with names replaced by what they stand for. `variables` are those of lambda functions that the
        expression around it has shown so far, by id: Spark counts them through the life of its process, so here each
        is called by its order."""
        first = flat[0]
        name = _name(first)
        children = _below(flat, 0)
        variables = {} if variables is None else variables
        if name == "Alias":
            return self._text(children[0], variables)
        if name == "AttributeReference":
            meanings = self._meanings.get(first["exprId"]["id"])
            if meanings is None:
                told = self._inputs.get(first["exprId"]["id"])
                of = "" if told is None else f"{told}."
                return f"{of}{first['name']}:{json.dumps(first['dataType'], sort_keys=True)}"
            texts = [self._text(one, variables) for one in meanings]
            return texts[0] if len(set(texts)) == 1 else f"each({', '.join(texts)})"
        if name == "NamedLambdaVariable":
            first = {**first, "name": variables.setdefault(first["exprId"]["id"], len(variables))}
        inside = [self._text(one, variables) for at, one in enumerate(children) if not _is_seed(first, at)]
        fields = self._fields(first, variables)
        return f"{name}({', '.join([*inside, fields] if fields else inside)})"


def _is_seed(node: Node, child: int) -> bool:
    return _name(node) in _OF_A_SEED or node.get("seedExpression") == child


def _name(node: Node) -> str:
    return str(node["class"]).rpartition(".")[2]


def _repeats(value: Any) -> bool:
    """A pair, or a list of them, repeats what the children are, with ids that differ from run to run."""
    first = value[0] if isinstance(value, list) and value else value
    return isinstance(first, Mapping) and "product-class" in first


def _is_expression(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and isinstance(value[0], Mapping) and "num-children" in value[0]


def _expressions(node: Node) -> Iterator[Flat]:
    """Every expression in the fields of a node, however deep in lists."""

    def inside(value: Any) -> Iterator[Flat]:
        if _is_expression(value):
            yield value
        elif isinstance(value, list):
            for one in value:
                yield from inside(one)

    for value in node.values():
        yield from inside(value)


def _ends(flat: Flat) -> list[int]:
    ends = [0] * len(flat)
    for index in range(len(flat) - 1, -1, -1):
        at = index + 1
        for _ in range(flat[index]["num-children"]):
            at = ends[at]
        ends[index] = at
    return ends


def _below(flat: Flat, index: int) -> list[Flat]:
    """The children of a node of an expression, each with all that is below it."""
    ends = _ends(flat)
    children, at = [], index + 1
    for _ in range(flat[index]["num-children"]):
        children.append(flat[at : ends[at]])
        at = ends[at]
    return children
