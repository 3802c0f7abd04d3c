"""Schemas are read from Spark's DDL and written back."""

from __future__ import annotations

import pyarrow as pa
import pytest

from penstock.errors import Location, PenstockError
from penstock.schema import common_schema
from penstock.topology import parse_schema, same_schema, schema_text

HERE = Location("user.py", 7)


def test_every_type_is_read():
    text = (
        "a string, b boolean, c byte, d tinyint, e short, f smallint, g int, h integer, i long, j bigint, k float, "
        "l real, m double, n binary, o date, p timestamp, q timestamp_ntz, r decimal(10,2), s array<string>, "
        "t map<string, long>, u struct<x: double, y: array<int>>"
    )
    assert parse_schema(text, HERE).types == [
        *(pa.string(), pa.bool_(), pa.int8(), pa.int8(), pa.int16(), pa.int16(), pa.int32(), pa.int32()),
        *(pa.int64(), pa.int64(), pa.float32(), pa.float32(), pa.float64(), pa.binary(), pa.date32()),
        *(pa.timestamp("us", "UTC"), pa.timestamp("us"), pa.decimal128(10, 2), pa.list_(pa.string())),
        pa.map_(pa.string(), pa.int64()),
        pa.struct([("x", pa.float64()), ("y", pa.list_(pa.int32()))]),
    ]


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("word: STRING,n:BigInt", "word string, n long"),
        ("  p struct< x double , y: real >\n", "p struct<x: double, y: float>"),
        ("price decimal, tax decimal(5)", "price decimal(10,0), tax decimal(5,0)"),
        ("`two words` int, `back``quote` int, `plain` int", "`two words` int, `back``quote` int, plain int"),
        ("m map<string, array<map<int, struct<a: int>>>>", "m map<string, array<map<int, struct<a: int>>>>"),
        ("string string, 2nd int, größe int", "string string, 2nd int, größe int"),
    ],
)
def test_spellings(written, read):
    assert schema_text(parse_schema(written, HERE)) == read


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("", "no column"),
        ("   ", "no column"),
        ("word", "the end"),
        ("word string,", "the end"),
        ("word string n long", '"n"'),
        ("word strng", '"strng"'),
        ("word string; n long", '";"'),
        (", word string", '","'),
        ("tags array<string", "the end"),
        ("tags array", "the end"),
        ("tags array<>", '">"'),
        ("m map<string>", '">"'),
        ("p struct<>", '">"'),
        ("p struct<x: int, x: int>", '"x" twice'),
        ("price decimal(40,2)", '"decimal(40,2)"'),
        ("price decimal(4,5)", '"decimal(4,5)"'),
        ("price decimal(ten)", '"ten"'),
        ("price decimal(10,2", "the end"),
        ("a int, a long", '"a" twice'),
        ("`` int", "without a name"),
        ("`open int", '"`"'),
        ("a int)", '")"'),
        (["word string"], "a list"),
        (None, "a NoneType"),
        (pa.schema([]), "no column"),
        (pa.schema([("a", pa.int8()), ("a", pa.int8())]), '"a" twice'),
    ],
)
def test_what_cannot_be_read_is_named(text, part):
    with pytest.raises(PenstockError) as caught:
        parse_schema(text, HERE)
    assert caught.value.name == "BAD_SCHEMA"
    assert caught.value.where == HERE
    assert part in caught.value.message


def test_a_misspelt_type_gets_a_suggestion():
    with pytest.raises(PenstockError, match='Did you mean "string"'):
        parse_schema("word strng", HERE)


def test_an_arrow_schema_is_taken_as_it_is():
    schema = pa.schema([pa.field("n", pa.uint8(), nullable=False)])
    assert parse_schema(schema, HERE) is schema


def test_types_that_the_ddl_lacks_are_written_as_arrow_names_them():
    schema = pa.schema([("a", pa.uint8()), ("b", pa.timestamp("ns")), ("c", pa.list_(pa.large_string()))])
    assert schema_text(schema) == "a uint8, b timestamp[ns], c array<large_string>"


def test_same_schema_ignores_nullability_and_metadata_at_every_depth():
    def nested(*, nullable, metadata):
        inner = pa.struct([pa.field("x", pa.int8(), nullable)])
        return pa.schema(
            [
                pa.field("l", pa.list_(pa.field("item", inner, nullable)), nullable),
                pa.field("m", pa.map_(pa.string(), pa.field("value", inner, nullable)), nullable),
            ],
            metadata,
        )

    assert same_schema(nested(nullable=True, metadata=None), nested(nullable=False, metadata={"a": "b"}))


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ("a int", "a long"),
        ("a int", "b int"),
        ("a int, b int", "b int, a int"),
        ("a int", "a int, b int"),
        ("a array<int>", "a array<long>"),
        ("a map<string, int>", "a map<string, long>"),
        ("a struct<x: int>", "a struct<y: int>"),
        ("a timestamp", "a timestamp_ntz"),
    ],
)
def test_different_schemas(a, b):
    assert not same_schema(parse_schema(a), parse_schema(b))


@pytest.mark.parametrize("strict_first", [True, False])
def test_the_common_schema_allows_the_nulls_of_all(strict_first):
    strict = pa.schema([pa.field("a", pa.list_(pa.field("item", pa.int64(), nullable=False)), nullable=False)])
    loose = pa.schema([pa.field("a", pa.list_(pa.int64()))], metadata={"made": "by pandas"})
    schemas = [strict, loose] if strict_first else [loose, strict]
    assert common_schema(schemas).equals(loose)
    assert common_schema([strict, strict]) is strict


def test_each_of_two_schemas_may_be_the_looser_one_in_a_column():
    one = pa.schema([pa.field("a", pa.int64(), nullable=False), pa.field("b", pa.int64())])
    other = pa.schema([pa.field("a", pa.int64()), pa.field("b", pa.int64(), nullable=False)])
    assert common_schema([one, other]).equals(parse_schema("a long, b long"))
