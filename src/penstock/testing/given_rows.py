"""The rows that a test gives to sources or to an operator, checked and in the declared schemas."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import pyarrow as pa

from penstock.errors import PenstockError
from penstock.schema import same_schema, schema_text
from penstock.testing.clock import Clock
from penstock.topology.definition import MAIN_OUTPUT, Source, TopologyDefinition

#: One dict a row, or Arrow.
Rows: TypeAlias = "Sequence[Mapping[str, Any]] | pa.Table | pa.RecordBatch"


def given_rows(
    definition: TopologyDefinition, rows: Mapping[str, Rows], clock: Clock | None
) -> dict[str, list[pa.RecordBatch]]:
    """The batches that every source emits, by its name."""
    sources = {source.name: source for source in definition.sources}
    for name in rows:
        if name not in sources:
            raise _wrong(
                f'"{definition.name}" has no source "{name}".',
                f"{_did_you_mean(name, sources)}Its sources are: {_list(sources)}.",
            )
    return {name: _rows_of(source, rows.get(name), clock) for name, source in sources.items()}


def _rows_of(source: Source, rows: Rows | None, clock: Clock | None) -> list[pa.RecordBatch]:
    if rows is None:
        return _rows_due(source, clock)
    batches: list[pa.RecordBatch] = rows_of_schema(
        f'source "{source.name}"', rows, source.outputs[MAIN_OUTPUT]
    ).to_batches()
    return batches


def rows_of_schema(what: str, rows: Rows, schema: pa.Schema) -> pa.Table:
    """Rows that a test gives to a source or to an operator, checked."""
    if isinstance(rows, pa.Table | pa.RecordBatch):
        if not same_schema(rows.schema, schema):
            raise _wrong(
                f'{what} is given rows of "{schema_text(rows.schema)}".', f'Give rows of "{schema_text(schema)}".'
            )
        table = rows if isinstance(rows, pa.Table) else pa.Table.from_batches([rows])
        return table.cast(schema)
    listed = list(rows)
    for number, row in enumerate(listed):
        if not isinstance(row, Mapping):
            raise _wrong(
                f"row {number} of {what} is a {type(row).__name__}.",
                'Give a dict by column for each row, such as {"id": 1}, or a pyarrow Table.',
            )
        for column in row:
            if column not in schema.names:
                raise _wrong(
                    f'row {number} of {what} has the unknown column "{column}".',
                    f"{_did_you_mean(column, schema.names)}The columns are: {_list(schema.names)}.",
                )
    try:
        return pa.Table.from_pylist(listed, schema=schema)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise _wrong(
            f"the rows of {what} do not fit its schema: {error}.", f'Give rows of "{schema_text(schema)}".'
        ) from error


def _rows_due(source: Source, clock: Clock | None) -> list[pa.RecordBatch]:
    """A rate source without rows of its own emits what its schedule says by the time of the clock."""
    due = source.spec.rows_due(0.0 if clock is None else clock.elapsed)
    if due is None or clock is None:
        or_clock = " or pass clock= to have the source emit what is due" if due is not None else ""
        raise _wrong(
            f'no rows are given for source "{source.name}".',
            f'Give them by its name, {{"{source.name}": [...]}} ([] for none){or_clock}.',
        )
    return due


def _wrong(message: str, hint: str) -> PenstockError:
    return PenstockError("TEST_ROWS", message, hint)


def _did_you_mean(name: str, known: Iterable[str]) -> str:
    closest = difflib.get_close_matches(name, list(known), n=1)
    return f'Did you mean "{closest[0]}"? ' if closest else ""


def _list(names: Iterable[str]) -> str:
    return ", ".join(names)
