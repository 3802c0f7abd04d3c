"""What an executor writes down of a failure: the driver finds the named error again, and whether it may pass."""

from __future__ import annotations

import errno
from types import SimpleNamespace

import pyarrow as pa
import pytest

from penstock.channels.segments import open_filesystem
from penstock.engine.spark.failures import FailureKind, kind_of
from penstock.errors import Location, PenstockError
from penstock.failing import failure, found_in, may_pass, passing_in

STAGE = SimpleNamespace(operator="m", where=Location("x.py", 1))


def unreadable(cause: Exception | None, name: str = "SEGMENT_UNREADABLE") -> PenstockError:
    error = PenstockError(name, "The segment a/1 cannot be read.", "Restore it.")
    error.__cause__ = cause
    return error


def unopened(uri: str) -> PenstockError:
    with pytest.raises(PenstockError) as caught:
        open_filesystem(uri)
    return caught.value


PASSING = [
    MemoryError(),
    pa.ArrowMemoryError("malloc of size 64 failed"),
    RuntimeError("can't start new thread"),
    OSError(errno.ENOMEM, "Cannot allocate memory"),
    BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable"),
    OSError(errno.EMFILE, "Too many open files"),
    OSError(errno.ESTALE, "Stale file handle"),
    OSError(errno.EIO, "Input/output error"),
    PenstockError("FILE_UNREADABLE", "the bytes could not be fetched.", ""),
    unreadable(FileNotFoundError(errno.ENOENT, "no such file")),
    unreadable(TimeoutError("timed out")),
    unreadable(pa.ArrowMemoryError("malloc of size 64 failed")),
    unreadable(OSError("no route to the store"), "BAD_SETTING"),
]
CERTAIN = [
    ValueError("bad"),
    RuntimeError("no thread of mine"),
    FileNotFoundError(errno.ENOENT, "no such file"),
    OSError("no errno"),
    PenstockError("BAD_ROW", "line 7 cannot be read.", ""),
    unreadable(pa.ArrowInvalid("not an Arrow file")),
    unreadable(None),
    unreadable(OSError("no route to the store"), "BAD_SOURCE"),
    unopened("nonsense://x/y"),
    # What quotes a row may have any words.
    PenstockError("BAD_ROW", "line 7 cannot be read: invalid value 'No space left on device'.", ""),
    PenstockError("BAD_SOURCE", '"a.csv" has none of the columns id, but No space left on device.', ""),
    ValueError("could not convert string to float: 'No space left on device'"),
    KeyError("No space left on device"),
    pa.ArrowInvalid("Failed to parse string: 'Disk quota exceeded' as a scalar of type int64"),
]


def kind(error: Exception) -> FailureKind:
    """As the driver gets it: among the words of Spark."""
    text = (
        f"Job aborted: Traceback (most recent call last):\n  File f\nOperatorFailure: {failure(STAGE, error)}\n at java"
    )
    assert found_in(text) is not None
    assert passing_in(text) is may_pass(error)
    return kind_of(RuntimeError(text))


@pytest.mark.parametrize("error", PASSING, ids=repr)
def test_what_tells_of_the_machine_or_of_storage_may_pass(error: Exception) -> None:
    assert kind(error) is FailureKind.PASSING


@pytest.mark.parametrize("error", CERTAIN, ids=repr)
def test_what_tells_of_rows_functions_and_declarations_comes_again(error: Exception) -> None:
    assert kind(error) is FailureKind.CERTAIN


@pytest.mark.parametrize(
    "error", [OSError(errno.ENOSPC, "No space left on device"), RuntimeError("disk quota exceeded")]
)
def test_a_full_disk_is_known_also_in_a_function(error: Exception) -> None:
    assert kind_of(RuntimeError(str(failure(STAGE, error)))) is FailureKind.FULL


def test_a_file_system_that_cannot_be_opened_may_pass_if_it_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    def away(uri: str) -> None:
        raise OSError("HDFS connection failed")

    monkeypatch.setattr("penstock.channels.segments.fs.FileSystem", SimpleNamespace(from_uri=away))
    assert kind(unopened("hdfs://away/folder")) is FailureKind.PASSING


def test_the_advice_fits_the_failure() -> None:
    lacking, wrong = (found_in(str(failure(STAGE, error))) for error in (MemoryError(), ValueError("bad")))
    assert lacking is not None
    assert wrong is not None
    assert "memory" in lacking.hint
    assert "on_error" not in lacking.hint
    assert "on_error" in wrong.hint


def test_a_text_without_a_mark_or_with_a_broken_one_says_nothing() -> None:
    for text in ("no mark", "PENSTOCK-ERROR {broken} PENSTOCK-ERROR"):
        assert found_in(text) is None
        assert not passing_in(text)
