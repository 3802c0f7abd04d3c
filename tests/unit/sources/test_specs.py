"""What the constructors of penstock.sources make, and refuse."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import pytest

from penstock import sources
from penstock.errors import PenstockError
from penstock.topology import parse_schema


class FakeSpark:
    """Writes down how its reader is called."""

    def __init__(self):
        self.calls = []

    @property
    def readStream(self):
        return self

    def __getattr__(self, name):
        def call(*arguments):
            self.calls.append((name, *arguments))
            return self

        return call


@pytest.mark.parametrize(
    ("spec", "kind"),
    [
        (sources.rate(100), "rate"),
        (sources.rate(sources.stepped([(1, 2), (3, 4)]), sources.sentences(), rows=10), "rate"),
        (sources.files("/data", format="json", schema="n long"), "files"),
        (sources.files("/data", format="csv", schema="n long", separator=";"), "files"),
        (sources.socket("localhost", 9999), "dataframe"),
    ],
)
def test_specs_are_values(spec, kind):
    assert spec.kind == kind
    assert json.loads(json.dumps(spec.describe()))["kind"] == kind
    assert pickle.loads(pickle.dumps(spec)) == spec


def test_rate():
    assert sources.rate(100).schema.equals(parse_schema("id long, value double"))
    assert sources.rate(100).due(60) == 6000
    assert sources.rate(100, rows=500).due(60) == 500


def test_files():
    csv = sources.files(Path("/data"), format="csv", schema="n long", header=False)
    assert (csv.path, csv.follow, csv.options) == ("/data", True, sources.CsvOptions(header=False, separator=","))
    parquet = sources.files("/data", format="parquet", schema="n map<string, long>", follow=False)
    assert (parquet.options, parquet.follow) == (None, False)


def test_dataframe():
    def read(spark):
        return spark

    spec = sources.dataframe(read, schema="value string")
    assert spec.function is read
    assert spec.describe()["function"].endswith("read")


def test_socket_is_a_reader_of_spark():
    spark = FakeSpark()
    spec = sources.socket("localhost", 9999)
    assert spec.function(spark) is spark
    assert spark.calls == [("format", "socket"), ("option", "host", "localhost"), ("option", "port", 9999), ("load",)]
    assert spec.schema.equals(parse_schema("value string"))


@pytest.mark.parametrize(
    ("declare", "name"),
    [
        (lambda: sources.rate(-1), "BAD_SOURCE"),
        (lambda: sources.rate(None), "BAD_SOURCE"),
        (lambda: sources.rate(1, content="words"), "BAD_SOURCE"),
        (lambda: sources.rate(1, rows=-1), "BAD_SOURCE"),
        (lambda: sources.files("/data", format="avro", schema="n long"), "BAD_SOURCE"),
        (lambda: sources.files("", format="json", schema="n long"), "BAD_SOURCE"),
        (lambda: sources.files("/data", format="json", schema="n lnog"), "BAD_SCHEMA"),
        (lambda: sources.files("/data", format="json", schema="n long", header=True), "BAD_SOURCE"),
        (lambda: sources.files("/data", format="csv", schema="n long", separator="||"), "BAD_SOURCE"),
        (lambda: sources.files("/data", format="csv", schema="n array<long>"), "BAD_SOURCE"),
        (lambda: sources.files("/data", format="json", schema="n struct<m: map<string, long>>"), "BAD_SOURCE"),
        (lambda: sources.dataframe(1, schema="n long"), "BAD_SOURCE"),
        (lambda: sources.socket("localhost", 0), "BAD_SOURCE"),
    ],
)
def test_mistakes(declare, name):
    with pytest.raises(PenstockError) as caught:
        declare()
    assert caught.value.name == name
    assert caught.value.where.file == __file__
