"""What a failure that reached the driver tells of."""

from __future__ import annotations

import errno
import os
import sqlite3

import pytest

from penstock.channels.database import Database
from penstock.engine.spark.failures import tells_of_a_full_disk
from penstock.errors import PenstockError

#: As they came on a full tmpfs: pyarrow through Spark, Spark's own files, Python.
FULL = [
    "PythonException: OSError: [Errno 28] Error writing bytes to file. Detail: [errno 28] No space left on device",
    "org.apache.spark.SparkException: Job aborted due to stage failure: java.io.IOException: No space left on device",
    str(OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "/state/x")),
    str(OSError(errno.EDQUOT, os.strerror(errno.EDQUOT))),
]


@pytest.mark.parametrize("text", FULL)
def test_a_full_disk_is_known_however_it_is_said(text: str) -> None:
    assert tells_of_a_full_disk(RuntimeError(text))


def test_what_sqlite_says_of_a_full_disk_is_known() -> None:
    with sqlite3.connect(":memory:") as connection:
        connection.execute("CREATE TABLE t (x)")
        [pages] = connection.execute("PRAGMA page_count").fetchone()
        connection.execute(f"PRAGMA max_page_count = {pages}")
        with pytest.raises(sqlite3.OperationalError) as caught:
            connection.execute("INSERT INTO t VALUES (zeroblob(100000))")
    connection.close()
    database = Database.open("sqlite:///:memory:")
    assert tells_of_a_full_disk(database.unreachable(caught.value))
    database.close()


def test_other_failures_are_not_taken_for_it() -> None:
    assert not tells_of_a_full_disk(ValueError("no such thing as space"))
    assert not tells_of_a_full_disk(PenstockError("OPERATOR_FAILED", "Permission denied", ""))
