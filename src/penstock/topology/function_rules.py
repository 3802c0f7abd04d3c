"""The rules about an operator's function: it can be called, its inputs fit together, it returns what was declared."""

from __future__ import annotations

import inspect

import pyarrow as pa

from penstock.errors import PenstockError
from penstock.logs import LOGGER
from penstock.schema import same_schema, schema_text
from penstock.topology.arrow_function import outputs_of_call
from penstock.topology.dataframe_function import accepts, frames_taken, takes_dataframes
from penstock.topology.definition import Keyed, Map, Operator, Sink, TopologyDefinition
from penstock.topology.state.processing import Processing


def check_function(definition: TopologyDefinition, operator: Operator) -> None:
    """BAD_FUNCTION, SCHEMA_MISMATCH, FUNCTION_SCHEMA, BAD_PROCESSOR."""
    inputs = len(definition.inputs_of(operator.name))
    if isinstance(operator, Sink):
        _check_inputs_agree(definition, operator)
    elif isinstance(operator, Map) and not operator.takes_dataframes:
        _check_callable(operator)
        _check_takes_a_batch(operator)
        _check_inputs_agree(definition, operator)
        _check_returns_what_is_declared(definition, operator)
    elif isinstance(operator, Map | Keyed):
        _check_callable(operator)
        if _dataframes(operator, inputs) == 1:
            _check_inputs_agree(definition, operator)
        if isinstance(operator.function, Processing):
            operator.function.check_inputs(definition.schema_of_all(definition.inputs_of(operator.name)))


def _check_callable(operator: Map | Keyed) -> None:
    if not callable(operator.function):
        raise PenstockError(
            "BAD_FUNCTION",
            f'the function of "{operator.name}" is a {type(operator.function).__name__}, which cannot be called.',
            "Give a function, or another object that can be called.",
            operator.where,
        )
    if inspect.iscoroutinefunction(operator.function) or inspect.isasyncgenfunction(operator.function):
        raise PenstockError(
            "BAD_FUNCTION",
            f'the function of "{operator.name}" is async.',
            "Give a plain function. If it waits a lot, give the operator more instances.",
            operator.where,
        )


def _check_takes_a_batch(operator: Map) -> None:
    if not accepts(operator.function, 1):
        raise PenstockError(
            "BAD_FUNCTION",
            f'the function of "{operator.name}" cannot be called with one argument.',
            "Penstock calls it with a pyarrow.RecordBatch: give other parameters a default, or use functools.partial.",
            operator.where,
        )


def _dataframes(operator: Map | Keyed, inputs: int) -> int:
    frames = frames_taken(operator.function, inputs)
    if frames is None:
        per_input = f", or {inputs} (a DataFrame for each input)" if inputs > 1 else ""
        raise PenstockError(
            "BAD_FUNCTION",
            f'the function of "{operator.name}" does not take as many DataFrames as there are inputs ({inputs}).',
            f"Let it take 1 argument (a DataFrame with the rows of all inputs){per_input}.",
            operator.where,
        )
    return frames


def _check_inputs_agree(definition: TopologyDefinition, operator: Operator) -> None:
    first, *others = definition.inputs_of(operator.name)
    schema = definition.schema_of(first)
    for stream in others:
        other = definition.schema_of(stream)
        if not same_schema(schema, other):
            raise PenstockError(
                "SCHEMA_MISMATCH",
                f'"{operator.name}" reads "{schema_text(schema)}" from "{first.producer}" but "{schema_text(other)}" '
                f'from "{stream.producer}".',
                "Let the function take a DataFrame for each input, or give the inputs the same schema."
                if takes_dataframes(operator)
                else "Give the inputs the same schema, for example with a map before this operator.",
                stream.where,
            )


def _check_returns_what_is_declared(definition: TopologyDefinition, operator: Map) -> None:
    """Calls the function once, with no rows, so that a wrong schema shows before Spark starts."""
    schema = definition.schema_of_all(definition.inputs_of(operator.name))
    no_rows = pa.RecordBatch.from_pylist([], schema=schema)
    try:
        for _ in outputs_of_call(operator.function(no_rows), operator.outputs):
            pass
    except PenstockError as problem:
        raise PenstockError(
            problem.name, f'"{operator.name}": {problem.message}', problem.hint, operator.where
        ) from None
    except Exception:
        # The function may only fail on an empty batch. The engine checks every batch while the topology runs.
        LOGGER.info('the function of "%s" raised on a batch with no rows', operator.name, exc_info=True)
