"""What an Arrow function returned, as batches by output. The engine goes through here with every batch.

A function returns a RecordBatch, a Table, an iterable of these, or None for no rows; with several outputs, a dict
of any of these by the name of the output.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import pyarrow as pa

from penstock.errors import PenstockError
from penstock.schema import same_schema, schema_text
from penstock.topology.definition import DEAD_LETTER

WHAT_TO_RETURN = "Return a pyarrow.RecordBatch, an iterable of them, or a dict of either by the name of the output."


def outputs_of_call(result: Any, operator_outputs: Mapping[str, pa.Schema]) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Each batch in `result` with its output's name, in exactly the declared schema.

    Raises FUNCTION_SCHEMA or BAD_FUNCTION without a location: only the caller knows the operator. What the function
    itself raises, when it is a generator, passes through.
    """
    if result is None:
        return
    by_output = result if isinstance(result, Mapping) else {_only_output(operator_outputs, result): result}
    for output, part in by_output.items():
        declared = operator_outputs.get(output)
        if declared is None:
            raise PenstockError(
                "BAD_FUNCTION",
                f"the function returned rows for the output {output!r}, which the operator does not declare.",
                f"It declares: {', '.join(operator_outputs)}.",
            )
        for batch in _batches(part, declared, output):
            yield output, batch


def _only_output(operator_outputs: Mapping[str, pa.Schema], result: Any) -> str:
    # Failed rows go to the dead-letter output by themselves, so it does not make a plain result ambiguous.
    names = [name for name in operator_outputs if name != DEAD_LETTER]
    if len(names) != 1:
        raise PenstockError(
            "BAD_FUNCTION",
            f"the function returned a {type(result).__name__}, but the operator has the outputs {', '.join(names)}.",
            "Return a dict of record batches by the name of the output.",
        )
    return names[0]


def _batches(part: Any, declared: pa.Schema, output: str) -> Iterator[pa.RecordBatch]:
    if isinstance(part, pa.RecordBatch | pa.Table):
        yield from _in_declared_schema(part, declared, output)
    elif isinstance(part, Iterable):
        for item in part:
            if not isinstance(item, pa.RecordBatch | pa.Table):
                raise PenstockError(
                    "BAD_FUNCTION",
                    f'for the output "{output}" the function returned a {type(part).__name__} '
                    f"with a {type(item).__name__} in it.",
                    WHAT_TO_RETURN,
                )
            yield from _in_declared_schema(item, declared, output)
    elif part is not None:
        raise PenstockError(
            "BAD_FUNCTION",
            f'for the output "{output}" the function returned a {type(part).__name__}.',
            WHAT_TO_RETURN,
        )


def _in_declared_schema(rows: pa.RecordBatch | pa.Table, declared: pa.Schema, output: str) -> Iterable[pa.RecordBatch]:
    returned = rows.schema
    if returned is not declared and not returned.equals(declared):
        if not same_schema(returned, declared):
            raise _other_schema(returned, declared, output)
        try:
            # Only nullability differs. A segment has one schema, so the batch takes the declared one over.
            rows = rows.cast(declared)
        except (ValueError, pa.ArrowException) as problem:
            raise _other_schema(returned, declared, output, f" ({problem})") from problem
    return (rows,) if isinstance(rows, pa.RecordBatch) else rows.to_batches()


def _other_schema(returned: pa.Schema, declared: pa.Schema, output: str, detail: str = "") -> PenstockError:
    return PenstockError(
        "FUNCTION_SCHEMA",
        f'the output "{output}" is declared as "{schema_text(declared)}", '
        f'but the function returned "{schema_text(returned)}"{detail}.',
        "Names, order and types of the columns must be the same (an int is no long): change the declaration, or cast "
        "in the function.",
    )
