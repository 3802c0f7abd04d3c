"""The arguments of a declaration in the forms that users may write, as what an operator is made of.

A wrong argument is a named error at the line of its declaration.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa

from penstock.errors import Location, PenstockError
from penstock.schema import Schema, common_schema, parse_schema, same_schema
from penstock.topology.definition import DEAD_LETTER, DEAD_LETTER_SCHEMA, MAIN_OUTPUT, OnError
from penstock.topology.output import Input


def as_sequence(inputs: Sequence[Input] | Input) -> Sequence[Input]:
    """One input or several, as several. What is neither is named by the check of each input."""
    return (inputs,) if isinstance(inputs, str) or not isinstance(inputs, Sequence) else inputs


def key_columns(key: str | Sequence[str]) -> tuple[str, ...]:
    return tuple(key) if isinstance(key, Sequence) and not isinstance(key, str) else (key,)


def interleaved(schemas: Sequence[pa.Schema]) -> pa.Schema:
    """The schema of the rows of all inputs. Inputs that do not agree are the validation's to refuse."""
    agree = all(same_schema(schemas[0], other) for other in schemas)
    return common_schema(schemas) if agree else schemas[0]


def chosen_on_error(name: str, on_error: str, where: Location) -> OnError:
    try:
        return OnError(on_error)
    except ValueError:
        choices = ", ".join(OnError)
        raise PenstockError(
            "BAD_ON_ERROR", f'"{name}" has on_error="{on_error}", which is unknown.', f"Use one of: {choices}.", where
        ) from None


def declared_outputs(
    name: str, schema: Schema | None, outputs: Mapping[str, Schema] | None, where: Location
) -> dict[str, pa.Schema]:
    if (schema is None) == (not outputs):
        raise PenstockError(
            "BAD_SCHEMA",
            f'"{name}" needs either a schema (for one output) or outputs (for several), and not both.',
            'For example schema="word string", or outputs={"good": "id long", "bad": "line string"}.',
            where,
        )
    if outputs is not None and not isinstance(outputs, Mapping):
        raise PenstockError(
            "BAD_SCHEMA",
            f'the outputs of "{name}" are a {type(outputs).__name__}.',
            'Give a dict of schemas by name, like {"good": "id long", "bad": "line string"}.',
            where,
        )
    declared = {MAIN_OUTPUT: schema} if schema is not None else dict(outputs or {})
    return {output: parse_schema(text, where) for output, text in declared.items()}


def with_dead_letter(outputs: dict[str, pa.Schema], chosen: OnError) -> dict[str, pa.Schema]:
    """The outputs, and one more for bad rows if that was chosen. An output of that name that the user declared is kept
    here, for the validation to refuse."""
    reserved = {DEAD_LETTER: outputs.get(DEAD_LETTER, DEAD_LETTER_SCHEMA)}
    return outputs | reserved if chosen is OnError.DEAD_LETTER else outputs
