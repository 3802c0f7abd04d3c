"""Schemas as users write them, "word string, n long", and as Penstock uses them, pyarrow.Schema.

The text is Spark's DDL, so that a schema can be copied from and to a Spark program.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Sequence
from typing import NoReturn, TypeAlias

import pyarrow as pa

from penstock.errors import Location, PenstockError

Schema: TypeAlias = str | pa.Schema

#: Where a type has two spellings, schema_text writes the first.
SIMPLE_TYPES = {
    "string": pa.string(),
    "boolean": pa.bool_(),
    "byte": pa.int8(),
    "tinyint": pa.int8(),
    "short": pa.int16(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "integer": pa.int32(),
    "long": pa.int64(),
    "bigint": pa.int64(),
    "float": pa.float32(),
    "real": pa.float32(),
    "double": pa.float64(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
}
NESTED_TYPES = ("decimal", "array", "map", "struct")
MAX_PRECISION = 38

_SPELLINGS = {type_: name for name, type_ in reversed(SIMPLE_TYPES.items())}
_PLAIN_NAME = re.compile(r"\w+")
_TOKEN = re.compile(r"`(?:[^`]|``)*`|\w+|[<>(),:]|\S")
_END = ""


def parse_schema(text: Schema, where: Location | None = None) -> pa.Schema:
    """The schema that a DDL string says, or the pyarrow.Schema as it is; anything else is BAD_SCHEMA."""
    if isinstance(text, pa.Schema):
        schema = text
    elif isinstance(text, str):
        schema = pa.schema(_Reader(text, where).read())
    else:
        raise PenstockError(
            "BAD_SCHEMA",
            f"a schema is given as a {type(text).__name__}.",
            'Write it like "word string, n long", or give a pyarrow.Schema.',
            where,
        )
    _check_names(schema.names, schema_text(schema), where)
    return schema


def schema_text(schema: pa.Schema) -> str:
    """The inverse of parse_schema. A type that the DDL lacks appears under Arrow's own name."""
    return ", ".join(f"{_name_text(column.name)} {type_text(column.type)}" for column in schema)


def type_text(type_: pa.DataType) -> str:
    """One type as schema_text writes it."""
    if type_ in _SPELLINGS:
        return _SPELLINGS[type_]
    if pa.types.is_decimal128(type_) and type_.scale >= 0:
        return f"decimal({type_.precision},{type_.scale})"
    if pa.types.is_list(type_):
        return f"array<{type_text(type_.value_type)}>"
    if pa.types.is_map(type_):
        return f"map<{type_text(type_.key_type)}, {type_text(type_.item_type)}>"
    if pa.types.is_struct(type_):
        return f"struct<{', '.join(f'{_name_text(part.name)}: {type_text(part.type)}' for part in type_)}>"
    return str(type_)


def same_schema(a: pa.Schema, b: pa.Schema) -> bool:
    """Whether names and types agree; nullability and metadata are not looked at."""
    return a.equals(b) or (a.names == b.names and all(map(_same_type, a.types, b.types)))


def common_schema(schemas: Sequence[pa.Schema]) -> pa.Schema:
    """Of schemas that agree in names and types, the one that all their rows fit: a value, or a part of one, may be null
    if it may be in any of them."""
    first, *others = schemas
    if all(first.equals(other) for other in others):
        return first
    return pa.unify_schemas([schema.remove_metadata() for schema in schemas])


def _same_type(a: pa.DataType, b: pa.DataType) -> bool:
    # Arrow's own comparison looks at the nullability of the parts, so nested types are compared part by part.
    if a.equals(b):
        return True
    if pa.types.is_list(a) and pa.types.is_list(b):
        return _same_type(a.value_type, b.value_type)
    if pa.types.is_map(a) and pa.types.is_map(b):
        return _same_type(a.key_type, b.key_type) and _same_type(a.item_type, b.item_type)
    if pa.types.is_struct(a) and pa.types.is_struct(b):
        return same_schema(pa.schema(list(a)), pa.schema(list(b)))
    return False


def _name_text(name: str) -> str:
    return name if _PLAIN_NAME.fullmatch(name) else "`" + name.replace("`", "``") + "`"


def _check_names(names: Iterable[str], text: str, where: Location | None) -> None:
    seen: set[str] = set()
    for name in names:
        if name in seen or not name:
            problem = f'has the column "{name}" twice' if name else "has a column without a name"
            raise PenstockError(
                "BAD_SCHEMA", f'the schema "{text}" {problem}.', "Give every column a name of its own.", where
            )
        seen.add(name)
    if not seen:
        raise PenstockError("BAD_SCHEMA", "a schema has no column.", 'Write it like "word string, n long".', where)


class _Reader:
    """Reads one DDL string from left to right; what it stumbles over is named in the error."""

    def __init__(self, text: str, where: Location | None) -> None:
        self.text = text
        self.where = where
        self.tokens = _TOKEN.findall(text)
        self.next = 0

    def read(self) -> list[pa.Field]:
        return self.columns(_END) if self.tokens else []

    def columns(self, end: str) -> list[pa.Field]:
        """`name type, name: type, ...` up to and including `end`."""
        columns = []
        while True:
            name = self.name()
            if self.peek() == ":":
                self.take()
            columns.append(pa.field(name, self.type(name)))
            if self.peek() == end:
                self.take()
                return columns
            self.expect(",", f'After the type of "{name}" comes a comma{f" or {end}" if end else ""}.')

    def name(self) -> str:
        token = self.take()
        if token.startswith("`") and len(token) > 1:
            return token[1:-1].replace("``", "`")
        if not _PLAIN_NAME.fullmatch(token):
            self.fail(token, "Here belongs the name of a column; put a name with other signs in backquotes.")
        return token

    def type(self, column: str) -> pa.DataType:
        token = self.take()
        name = token.lower()
        if name in SIMPLE_TYPES:
            return SIMPLE_TYPES[name]
        if name == "decimal":
            return self.decimal()
        if name == "array":
            return pa.list_(self.bracketed(column, 1)[0])
        if name == "map":
            return pa.map_(*self.bracketed(column, 2))
        if name == "struct":
            self.expect("<", "Write it like struct<x: double, y: double>.")
            parts = self.columns(">")
            _check_names((part.name for part in parts), self.text, self.where)
            return pa.struct(parts)
        known = (*SIMPLE_TYPES, *NESTED_TYPES)
        closest = difflib.get_close_matches(name, known, n=1)
        suggestion = f'Did you mean "{closest[0]}"? ' if closest else ""
        self.fail(token, f'{suggestion}The type of "{column}" must be one of: {", ".join(known)}.')

    def bracketed(self, column: str, count: int) -> list[pa.DataType]:
        """`<type>` or `<type, type>`."""
        example = "Write it like array<string> or map<string, long>."
        self.expect("<", example)
        types = [self.type(column)]
        while len(types) < count:
            self.expect(",", example)
            types.append(self.type(column))
        self.expect(">", example)
        return types

    def decimal(self) -> pa.DataType:
        """`decimal(precision, scale)`; Spark's defaults are 10 and 0."""
        precision, scale = 10, 0
        if self.peek() == "(":
            self.take()
            precision = self.number()
            if self.peek() == ",":
                self.take()
                scale = self.number()
            self.expect(")", "Write it like decimal(10,2).")
        if not (1 <= precision <= MAX_PRECISION and scale <= precision):
            self.fail(
                f"decimal({precision},{scale})",
                f"A decimal has 1 to {MAX_PRECISION} digits, and not more of them after the point.",
            )
        return pa.decimal128(precision, scale)

    def number(self) -> int:
        token = self.take()
        if not (token.isascii() and token.isdigit()):
            self.fail(token, "Write it like decimal(10,2).")
        return int(token)

    def peek(self) -> str:
        return self.tokens[self.next] if self.next < len(self.tokens) else _END

    def take(self) -> str:
        token = self.peek()
        self.next += 1
        return token

    def expect(self, mark: str, hint: str) -> None:
        token = self.take()
        if token != mark:
            self.fail(token, hint)

    def fail(self, token: str, hint: str) -> NoReturn:
        part = f'"{token}"' if token else "the end"
        raise PenstockError("BAD_SCHEMA", f'cannot read {part} of the schema "{self.text}".', hint, self.where)
