"""The rules about one operator and the streams into it: numbers, `on_error`, groupings, keys, outputs."""

from __future__ import annotations

import math

import pyarrow as pa

from penstock.errors import PenstockError
from penstock.schema import same_schema, schema_text, type_text
from penstock.topology.dataframe_function import takes_dataframes
from penstock.topology.definition import (
    GROUP_COLUMN,
    OUTPUT_COLUMN,
    Broadcast,
    ByKey,
    Keyed,
    Map,
    OnError,
    Operator,
    Sink,
    Source,
    Stream,
    TopologyDefinition,
)

MAX_TASKS = 4096
OUTPUT_MODES = ("append", "update", "complete")


def check_operator(definition: TopologyDefinition, operator: Operator) -> None:
    """Check everything about one operator except its function."""
    _check_numbers(operator)
    _check_columns(operator)
    _check_weight(operator)
    _check_on_error(operator)
    _check_flags(operator)
    inputs = definition.inputs_of(operator.name)
    for stream in inputs:
        _check_grouping(stream, operator)
        _check_key(stream, definition)
    if isinstance(operator, Keyed | Map) and any(isinstance(stream.grouping, ByKey) for stream in inputs):
        _check_instances_fit_tasks(operator)
    if isinstance(operator, Keyed) and operator.output_mode not in OUTPUT_MODES:
        raise PenstockError(
            "BAD_OUTPUT_MODE",
            f'"{operator.name}" has output_mode={operator.output_mode!r}, which is unknown.',
            f"Use one of: {', '.join(OUTPUT_MODES)}.",
            operator.where,
        )
    if takes_dataframes(operator):
        _check_dataframe_outputs(operator)


def _check_flags(operator: Operator) -> None:
    flags = {"chained": operator.chained}
    if isinstance(operator, Map):
        flags["gather"] = operator.gathers
    if isinstance(operator, Keyed):
        flags["takes_updates"] = operator.takes_updates
    for what, value in flags.items():
        if not isinstance(value, bool):
            raise PenstockError(
                "BAD_CHAINING",
                f'"{operator.name}" has {what}={value!r}.',
                f"Set {what} to True or False.",
                operator.where,
            )


def _check_columns(operator: Operator) -> None:
    for schema in operator.outputs.values():
        if GROUP_COLUMN in schema.names:
            raise PenstockError(
                "BAD_SCHEMA",
                f'"{operator.name}" has a column "{GROUP_COLUMN}", which is a reserved name.',
                "Rename the column: channels that are split by key keep the group of a row under this name.",
                operator.where,
            )


def _check_numbers(operator: Operator) -> None:
    numbers = {"instances": operator.instances, "min_instances": operator.min_instances}
    if isinstance(operator, Map | Keyed):
        numbers["tasks"] = operator.tasks
    for what, number in numbers.items():
        # True is an int to Python, but nobody means it as a number.
        if not isinstance(number, int) or isinstance(number, bool) or number < 1:
            raise PenstockError(
                "BAD_INSTANCES",
                f'"{operator.name}" has {what}={number!r}.',
                f"Set {what} to a whole number of at least 1.",
                operator.where,
            )
    if operator.min_instances > operator.instances:
        raise PenstockError(
            "BAD_INSTANCES",
            f'"{operator.name}" has min_instances={operator.min_instances} but only {operator.instances} instances.',
            "Raise instances, or lower min_instances.",
            operator.where,
        )
    if numbers.get("tasks", 1) > MAX_TASKS:
        raise PenstockError(
            "BAD_INSTANCES",
            f'"{operator.name}" has tasks={numbers["tasks"]}.',
            f"Set tasks to at most {MAX_TASKS}: every task costs files and time in every micro-batch.",
            operator.where,
        )


def _check_instances_fit_tasks(operator: Keyed | Map) -> None:
    if operator.instances > operator.tasks:
        raise PenstockError(
            "MORE_INSTANCES_THAN_TASKS",
            f'"{operator.name}" has {operator.instances} instances but only {operator.tasks} tasks.',
            "Raise tasks (they are the most instances that the operator can use), or lower instances.",
            operator.where,
        )


def _check_weight(operator: Operator) -> None:
    weight = operator.weight if isinstance(operator, Sink) else 1.0
    if not isinstance(weight, int | float) or isinstance(weight, bool) or not math.isfinite(weight) or weight < 0:
        raise PenstockError(
            "BAD_SINK",
            f'sink "{operator.name}" has the weight {weight!r}.',
            "Give a number of at least 0: it says how much a row counts, compared with rows of other sinks.",
            operator.where,
        )


def _check_on_error(operator: Operator) -> None:
    # What such a source yields, Spark has read already.
    from_spark = isinstance(operator, Source) and not operator.spec.read_by_bundles
    if operator.on_error is not OnError.FAIL and (
        takes_dataframes(operator) or isinstance(operator, Sink) or from_spark
    ):
        raise PenstockError(
            "BAD_ON_ERROR",
            f'the {operator.kind} "{operator.name}" cannot have on_error="{operator.on_error}".',
            "Leave on_error out: only maps with an Arrow function, and sources that Penstock reads itself, can tell "
            "which row is bad.",
            operator.where,
        )


def _check_grouping(stream: Stream, operator: Operator) -> None:
    grouping = stream.grouping
    if isinstance(grouping, Broadcast) and (takes_dataframes(operator) or isinstance(operator, Sink)):
        raise PenstockError(
            "BAD_GROUPING",
            f'the stream from "{stream.producer}" is broadcast into "{operator.name}".',
            "Leave .broadcast() out: only a map with an Arrow function can read a broadcast.",
            stream.where,
        )
    if isinstance(operator, Keyed) and grouping != ByKey(operator.key):
        raise PenstockError(
            "BAD_GROUPING",
            f'the stream from "{stream.producer}" is grouped {grouping}, but "{operator.name}" has the key '
            f"{', '.join(map(str, operator.key))}.",
            "Leave .by_key(...) out: a keyed operator groups its inputs by its own key.",
            stream.where,
        )


def _check_key(stream: Stream, definition: TopologyDefinition) -> None:
    if not isinstance(stream.grouping, ByKey):
        return
    schema = definition.schema_of(stream)
    if not stream.grouping.columns:
        raise PenstockError(
            "UNKNOWN_KEY",
            f'the stream from "{stream.producer}" to "{stream.consumer}" has a key without columns.',
            f"Name at least one of: {', '.join(schema.names)}.",
            stream.where,
        )
    for column in stream.grouping.columns:
        if column not in schema.names:
            raise PenstockError(
                "UNKNOWN_KEY",
                f'the key {column!r} of "{stream.consumer}" is not in the stream from "{stream.producer}", which has '
                f'"{schema_text(schema)}".',
                _hint_for_key(column, stream, definition),
                stream.where,
            )
        type_ = schema.field(column).type
        if pa.types.is_nested(type_) or pa.types.is_floating(type_):
            raise PenstockError(
                "BAD_KEY",
                f'the key "{column}" of "{stream.consumer}" has the type {type_text(type_)}.',
                "Rows of one key must compare equal bit by bit: use a string, a whole number, a date or the like.",
                stream.where,
            )


def _hint_for_key(column: str, stream: Stream, definition: TopologyDefinition) -> str:
    names = definition.schema_of(stream).names
    others = [one for one in definition.inputs_of(stream.consumer) if one != stream]
    if isinstance(definition.operator(stream.consumer), Keyed) and any(
        column in definition.schema_of(other).names for other in others
    ):
        return (
            f'All inputs of this keyed operator must have the key as a column "{column}": rename the column of '
            f'"{stream.producer}" before the join, in a map_dataframe with frame.withColumnRenamed(..., "{column}"). '
            f"Its columns are: {', '.join(names)}."
        )
    return f"Use one or more of: {', '.join(names)}."


def _check_dataframe_outputs(operator: Operator) -> None:
    if len(operator.outputs) < 2:
        return
    (first, schema), *others = operator.outputs.items()
    for output, other in others:
        if not same_schema(schema, other):
            raise PenstockError(
                "BAD_SCHEMA",
                f'"{operator.name}" returns one DataFrame for all its outputs, but "{first}" is '
                f'"{schema_text(schema)}" and "{output}" is "{schema_text(other)}".',
                "Give all outputs of a DataFrame function the same schema, or declare an operator for each.",
                operator.where,
            )
    if OUTPUT_COLUMN in schema.names:
        raise PenstockError(
            "BAD_SCHEMA",
            f'"{operator.name}" has several outputs and a column "{OUTPUT_COLUMN}" of its own.',
            f'Rename the column: with several outputs, "{OUTPUT_COLUMN}" names the output of each row.',
            operator.where,
        )
