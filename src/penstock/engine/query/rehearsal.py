"""The rehearsal: before anything is touched, every DataFrame function is called with streams that never give a row.

The DataFrame that a function returns says all there is to know beforehand: its schema, whether it keeps state, and
whether Spark can run it on a stream. So a mistake is found before the catalog is opened and before any query starts.
Each function is called again when its query starts, and whenever the query is replaced.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema

from penstock.engine.spark.failures import named_error, told_once
from penstock.engine.spark.refusals import needs_rocksdb, never_right, refused_by_spark, state_outside_keyed
from penstock.engine.spark.stream_plans import is_own_state, refusal_of, stateful_nodes
from penstock.engine.state.meaning import INPUT
from penstock.errors import PenstockError
from penstock.schema import same_schema, schema_text
from penstock.topology.dataframe_function import frames_taken
from penstock.topology.definition import OUTPUT_COLUMN, Keyed, Map, Operator, Stream, TopologyDefinition
from penstock.topology.state.processing import Processing


@told_once()
def rehearse(definition: TopologyDefinition, spark: SparkSession, state_store: str) -> dict[str, DataFrame]:
    """By operator: the DataFrame that its function returns. Raises the error of the first function that will not do,
    or that needs another state store than the run has.
    Functions of sources are not called: they may look at the world outside, and are checked when the source starts."""
    frames = {}
    for operator in definition.operators:
        if isinstance(operator, Keyed) or (isinstance(operator, Map) and operator.takes_dataframes):
            session = spark.newSession()  # as in the run: functions may name their views alike
            schemas = [definition.schema_of_all(group) for group in input_groups(definition, operator)]
            streams = [_no_rows(session, index, schema) for index, schema in enumerate(schemas)]
            frames[operator.name] = frame = frame_of(operator, operator.function, streams)
            own = isinstance(operator.function, Processing) or any(map(is_own_state, stateful_nodes(frame)))
            if own and state_store != "rocksdb":
                raise needs_rocksdb(operator, state_store)
    return frames


def input_groups(definition: TopologyDefinition, operator: Operator) -> list[Sequence[Stream]]:
    """The streams of each DataFrame that an operator gets: all of them in one, interleaved, or one each."""
    inputs = definition.inputs_of(operator.name)
    function = getattr(operator, "function", None)
    apart = function is not None and len(inputs) > 1 and frames_taken(function, len(inputs)) != 1
    return [[stream] for stream in inputs] if apart else [list(inputs)]


def frame_of(operator: Operator, function: Callable[..., Any], arguments: Sequence[Any]) -> DataFrame:
    """The DataFrame that the user's function returns, checked: it is a stream of the declared schema, it has state only
    in a keyed operator, and Spark can run it."""
    try:
        frame = function(*arguments)
    except Exception as error:
        raise named_error(operator, error) from error
    _check_frame(operator, frame)
    stateful = stateful_nodes(frame)
    if wrong := never_right(operator, stateful):
        raise wrong
    if stateful and not isinstance(operator, Keyed):
        raise state_outside_keyed(operator, stateful)
    mode = operator.output_mode if isinstance(operator, Keyed) else "append"
    if refused := refused_by_spark(operator, mode, lambda mode: refusal_of(frame, mode)):
        raise refused
    returned: DataFrame = frame
    return returned


def _check_frame(operator: Operator, frame: Any) -> None:
    declared = next(iter(operator.outputs.values()))
    if len(operator.outputs) > 1:
        declared = declared.append(pa.field(OUTPUT_COLUMN, pa.string()))
    if not hasattr(frame, "isStreaming"):
        problem, name = f"the function returned a {type(frame).__name__}, not a DataFrame.", "BAD_FUNCTION"
    elif not frame.isStreaming:
        problem, name = "the function returned a DataFrame that is not a stream.", "BAD_FUNCTION"
    else:
        returned = to_arrow_schema(frame.schema, timezone="UTC")
        if same_schema(returned, declared):
            return
        name = "FUNCTION_SCHEMA"
        problem = f'declared is "{schema_text(declared)}", but the function returned "{schema_text(returned)}".'
    raise PenstockError(
        name,
        f'"{operator.name}": {problem}',
        "Change the declaration, or select and cast in the function.",
        operator.where,
    )


def _no_rows(session: SparkSession, index: int, schema: pa.Schema) -> DataFrame:
    """The stream that takes the place of an input. The column behind it tells it from other inputs in a plan."""
    rows = session.readStream.format("rate").load().selectExpr(f"value AS {INPUT}{index}")
    return rows.mapInArrow(_nothing, from_arrow_schema(schema))


def _nothing(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Never run: the stream is only looked at."""
    yield from ()
