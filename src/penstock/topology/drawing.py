"""A topology as JSON for programs, as Mermaid for documents and as plain text for terminals."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import pyarrow as pa

from penstock.errors import Location
from penstock.schema import schema_text
from penstock.topology.definition import (
    MAIN_OUTPUT,
    Broadcast,
    ByKey,
    Grouping,
    Keyed,
    Map,
    Operator,
    Shuffle,
    Sink,
    Source,
    Stream,
    TopologyDefinition,
)
from penstock.topology.state.processing import Processing

#: What encloses the text of a Mermaid node: stadium, box, cylinder (it holds state), box with double sides.
_SHAPES = {"source": ("([", "])"), "map": ("[", "]"), "keyed": ("[(", ")]"), "sink": ("[[", "]]")}
_GROUPINGS = {Shuffle: "shuffle", ByKey: "by_key", Broadcast: "broadcast"}


def as_json(definition: TopologyDefinition) -> dict[str, Any]:
    """Everything that was declared, in values that json.dumps takes; of a function, its name and its place."""
    return {
        "name": definition.name,
        "where": _where_json(definition.where),
        "operators": [_operator_json(operator) for operator in definition.operators],
        "streams": [_stream_json(stream) for stream in definition.streams],
    }


def as_mermaid(definition: TopologyDefinition) -> str:
    """A Mermaid flowchart from left to right."""
    # Numbers as node names: Mermaid trips over words such as "end" and over "--" in a name.
    node = {operator.name: f"op{index}" for index, operator in enumerate(definition.operators)}
    lines = ["flowchart LR"]
    for operator in definition.operators:
        opening, closing = _SHAPES[operator.kind]
        text = "<br/>".join(map(_mermaid_text, _node_lines(definition, operator)))
        lines.append(f'    {node[operator.name]}{opening}"{text}"{closing}')
    for stream in definition.streams:
        output = "" if stream.output == MAIN_OUTPUT else f"{stream.output}: "
        label = _mermaid_text(f"{output}{stream.grouping}")
        lines.append(f'    {node[stream.producer]} -->|"{label}"| {node[stream.consumer]}')
    return "\n".join(lines) + "\n"


def as_text(definition: TopologyDefinition) -> str:
    """Three tables, operators, streams and sources, for a terminal."""
    operators = [
        (
            operator.name,
            _kind_text(operator),
            str(operator.instances),
            str(operator.min_instances),
            str(_tasks(definition, operator) or "-"),
            operator.on_error.value,
        )
        for operator in definition.operators
    ]
    streams = [
        (
            stream.producer if stream.output == MAIN_OUTPUT else f"{stream.producer}.{stream.output}",
            stream.consumer,
            str(stream.grouping),
            schema_text(definition.schema_of(stream)),
        )
        for stream in definition.streams
    ]
    sources = [
        (
            source.name,
            "by itself" if source.spec.ends else "never",
            "its rows are read again" if source.spec.replayable else "rows that were not published are lost",
        )
        for source in definition.sources
    ]
    return "\n".join(
        [
            f"{definition.name}: {len(operators)} operators, {len(streams)} streams ({definition.where})",
            "",
            *_table(("operator", "kind", "instances", "at least", "tasks", "on error"), operators),
            "",
            *_table(("from", "to", "grouping", "rows"), streams),
            "",
            *_table(("source", "ends", "after a crash"), sources),
            "",
        ]
    )


def _operator_json(operator: Operator) -> dict[str, Any]:
    described: dict[str, Any] = {"name": operator.name, "kind": operator.kind}
    match operator:
        case Source() | Sink():
            described["spec"] = {"kind": operator.spec.kind, **_plain(operator.spec.describe())}
            if isinstance(operator, Source):
                described["ends"] = operator.spec.ends
                described["replayable"] = operator.spec.replayable
        case Map():
            described["function"] = _function_json(operator.function)
            described["takes_dataframes"] = operator.takes_dataframes
            described["tasks"] = operator.tasks
        case Keyed():
            described["function"] = _function_json(operator.function)
            described["key"] = list(operator.key)
            described["tasks"] = operator.tasks
            described["output_mode"] = operator.output_mode
            described["takes_updates"] = operator.takes_updates
    if isinstance(operator, Sink):
        described["weight"] = operator.weight
    return described | {
        "instances": operator.instances,
        "min_instances": operator.min_instances,
        "outputs": {output: schema_text(schema) for output, schema in operator.outputs.items()},
        "on_error": operator.on_error.value,
        "where": _where_json(operator.where),
    }


def _stream_json(stream: Stream) -> dict[str, Any]:
    return {
        "name": stream.name,
        "producer": stream.producer,
        "output": stream.output,
        "consumer": stream.consumer,
        "grouping": _grouping_json(stream.grouping),
        "where": _where_json(stream.where),
    }


def _grouping_json(grouping: Grouping) -> dict[str, Any]:
    columns = {"columns": list(grouping.columns)} if isinstance(grouping, ByKey) else {}
    return {"kind": _GROUPINGS[type(grouping)], **columns}


def _where_json(where: Location) -> dict[str, Any]:
    return {"file": where.file, "line": where.line}


def _function_json(function: Callable[..., Any]) -> dict[str, Any]:
    while isinstance(function, partial):
        function = function.func
    if isinstance(function, Processing):
        function = function.processor.rows  # what the user wrote
    function = inspect.unwrap(function)
    named: Any = function if hasattr(function, "__qualname__") else type(function)
    # A function and a method have code, an object that can be called has it in its class, a built-in has none.
    code = getattr(function, "__code__", None) or getattr(type(function).__call__, "__code__", None)
    return {
        "name": f"{named.__module__}.{named.__qualname__}",
        "where": {"file": code.co_filename, "line": code.co_firstlineno} if code else None,
    }


def _plain(value: Any) -> Any:
    """What a source or sink says of itself, in values that JSON has."""
    match value:
        case None | bool() | int() | float() | str():
            return value
        case pa.Schema():
            return schema_text(value)
        case Mapping():
            return {str(name): _plain(part) for name, part in value.items()}
        case list() | tuple():
            return [_plain(part) for part in value]
        case _ if callable(value):
            return _function_json(value)
        case _:
            return str(value)


def _node_lines(definition: TopologyDefinition, operator: Operator) -> list[str]:
    tasks = _tasks(definition, operator)
    shares = f", {_count(tasks, 'task')}" if tasks else ""
    return [operator.name, _kind_text(operator), _count(operator.instances, "instance") + shares]


def _tasks(definition: TopologyDefinition, operator: Operator) -> int | None:
    """None where tasks mean nothing: a map operator splits only what comes to it by key."""
    match operator:
        case Keyed():
            return operator.tasks
        case Map() if any(isinstance(stream.grouping, ByKey) for stream in definition.inputs_of(operator.name)):
            return operator.tasks
        case _:
            return None


def _kind_text(operator: Operator) -> str:
    match operator:
        case Source() | Sink():
            return f"{operator.kind}: {operator.spec.kind}"
        case Keyed():
            return f"keyed by {', '.join(operator.key)}"
        case Map() if operator.takes_dataframes:
            return "map over DataFrames"
        case _:
            return operator.kind


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def _mermaid_text(text: str) -> str:
    """Mermaid writes special signs as #name; and #number; within quotes."""
    signs = {"#": "#35;", '"': "#quot;", "<": "#lt;", ">": "#gt;", "`": "#96;"}
    return "".join(signs.get(sign, sign) for sign in text)


def _table(heading: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(heading, *rows, strict=True)]
    rule = ["-" * width for width in widths]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in (heading, rule, *rows)
    ]
