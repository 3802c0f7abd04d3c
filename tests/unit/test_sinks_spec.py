"""What the constructors of penstock.sinks make, and refuse; and that no password gets out."""

from __future__ import annotations

import json
import pickle

import pytest

from penstock import sinks
from penstock.errors import PenstockError


def keep(dataframe, batch_id):
    return None


@pytest.mark.parametrize(
    ("spec", "kind"),
    [
        (sinks.noop(), "noop"),
        (sinks.parquet("/data/out"), "parquet"),
        (sinks.console(rows=5, every=2), "console"),
        (sinks.jdbc("jdbc:postgresql://host/db", "counts", {"user": "me"}, batch_column="batch_id"), "jdbc"),
        (sinks.function(keep), "function"),
        (sinks.arrow(print), "arrow"),
    ],
)
def test_specs_are_values(spec, kind):
    assert spec.kind == kind
    assert json.loads(json.dumps(spec.describe()))["kind"] == kind
    assert pickle.loads(pickle.dumps(spec)) == spec


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("jdbc:postgresql://host:5432/db", "jdbc:postgresql://host:5432/db"),
        ("jdbc:postgresql://host/db?user=me&password=hunter2", "jdbc:postgresql://host/db"),
        ("jdbc:postgresql://host/db?user=me&password=p@hunter2", "jdbc:postgresql:..."),
        ("jdbc:mysql://me:hunter2@host/db", "jdbc:mysql:...@host/db"),
        ("jdbc:mysql://me:p@hunter2@host/db", "jdbc:mysql:...@host/db"),
        ("jdbc:mysql://me:hunter2?@host/db", "jdbc:mysql:..."),
        ("jdbc:mysql://(host=h,user=me,password=hunter2)/db", "jdbc:mysql:..."),
        ("jdbc:oracle:thin:scott/hunter2@//host:1521/db", "jdbc:oracle:...@//host:1521/db"),
        ("jdbc:sqlserver://host:1433;databaseName=db;password=hunter2", "jdbc:sqlserver://host:1433"),
    ],
)
def test_no_password_is_shown(url, shown):
    spec = sinks.jdbc(url, "counts", {"user": "me", "password": "hunter2", "sslkey": "hunter2"})
    assert spec.describe()["url"] == shown
    assert spec.url == url
    for text in (json.dumps(spec.describe()), repr(spec), str(spec)):
        assert "hunter2" not in text


@pytest.mark.parametrize(
    "declare",
    [
        lambda: sinks.parquet(""),
        lambda: sinks.parquet("/data/out", existing="overwrite"),
        lambda: sinks.console(rows=0),
        lambda: sinks.console(every=0),
        lambda: sinks.jdbc("postgresql://host/db", "counts"),
        lambda: sinks.jdbc("jdbc:postgresql://host/db", ""),
        lambda: sinks.jdbc("jdbc:postgresql://host/db", "counts", batch_column="batch id"),
        lambda: sinks.function("print"),
        lambda: sinks.arrow("print"),
    ],
)
def test_mistakes(declare):
    with pytest.raises(PenstockError) as caught:
        declare()
    assert caught.value.name == "BAD_SINK"
    assert caught.value.where.file == __file__
