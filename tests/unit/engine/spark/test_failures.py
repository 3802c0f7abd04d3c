"""What PySpark prints beside an error that is told as a named one."""

from __future__ import annotations

import errno
import logging
import threading

import pyspark.util
import pytest
from py4j.protocol import Py4JError, Py4JNetworkError
from pyspark.errors import AnalysisException
from pyspark.logger import PySparkLogger

from penstock import Topology, sinks, sources
from penstock.engine.spark import failures
from penstock.engine.spark.failures import FailureKind
from penstock.errors import PenstockError


class Context:
    """What PySpark knows of the user's line that an exception is about."""

    def contextType(self):
        return type("Type", (), {"name": "DataFrame"})

    def callSite(self) -> str:
        return "words.py:12"

    def fragment(self) -> str:
        return "col"


def analysis_exception() -> AnalysisException:
    """As it is made when a column is not there: PySpark logs it at that moment."""
    problem = AnalysisException("[UNRESOLVED_COLUMN] no column wrod")
    problem._contexts = [Context()]
    problem._log_exception()
    return problem


@pytest.fixture
def printed(capsys: pytest.CaptureFixture[str]):
    # Its handler writes to the standard error that was there when it was made: that of this test.
    logger = PySparkLogger.getLogger("DataFrameQueryContextLogger")
    before = list(logger.handlers)
    logger.handlers = []
    PySparkLogger.addHandler(logger, logging.StreamHandler())
    yield lambda: capsys.readouterr().err
    logger.handlers = before


def test_an_error_that_is_told_by_name_is_not_printed_as_json_as_well(printed) -> None:
    analysis_exception()
    assert "UNRESOLVED_COLUMN" in printed(), "PySpark prints it by itself"
    with failures.told_once():
        analysis_exception()
    assert printed() == ""
    analysis_exception()
    assert "UNRESOLVED_COLUMN" in printed(), "what others do with PySpark is theirs"


def test_what_other_threads_do_meanwhile_is_theirs(printed) -> None:
    with failures.told_once():
        other = threading.Thread(target=analysis_exception)
        other.start()
        other.join()
    assert "UNRESOLVED_COLUMN" in printed()


def test_a_python_worker_that_died_is_a_matter_of_the_machine_and_not_of_the_function() -> None:
    """The system may have killed it for its memory. A query that ends over it is started again, so often at most."""
    text = "Task 0 failed 4 times: org.apache.spark.SparkException: Python worker exited unexpectedly (crashed)"
    assert failures.tells_of_lost_executors(RuntimeError(text))
    assert not failures.tells_of_lost_executors(RuntimeError("ValueError: no such thing"))


@pytest.mark.parametrize(
    "text",
    [
        "org.apache.spark.SparkException: Python worker failed to connect back.",
        "java.net.SocketTimeoutException: Timed out while waiting for the Python worker to connect back after 60000 ms",
    ],
)
def test_a_python_worker_that_does_not_start_in_time_is_a_matter_of_the_machine_also_in_the_first_batch(
    text: str,
) -> None:
    """What only may pass is not tried again before an operator has published. But no function has run here yet."""
    assert failures.kind_of(RuntimeError(text)) is failures.FailureKind.LOST


JOB = "Job aborted due to stage failure: Task 0 in stage 5.0 failed 4 times, most recent failure: "
PASSING = [
    "java.io.IOException: Broken pipe",
    "java.net.SocketTimeoutException: Timed out while waiting for the Python worker to connect back after 60000 ms",
    "[CANNOT_LOAD_STATE_STORE.UNCATEGORIZED] An error occurred during loading state. SQLSTATE: 58030",
    "[STATE_STORE_INVALID_STAMP] Invalid stamp 7, current stamp: 9. SQLSTATE: XXKST",
    "PythonException: Traceback (most recent call last):\npenstock.engine.message.wire.Gone: EOFError: ",
    'PythonException: Traceback (most recent call last):\n  File "f.py", line 3\nMemoryError',
    "PythonException: Traceback (most recent call last):\nnumpy._core._exceptions._ArrayMemoryError: Unable",
    "PythonException: Traceback (most recent call last):\nRuntimeError: can't start new thread\n",
    "[FAILED_READ_FILE.NO_HINT] Encountered error while reading file nfs:/a.parquet.  SQLSTATE: KD001\n"
    "Caused by: java.io.IOException: Stale file handle",
    "[FAILED_READ_FILE.FILE_NOT_EXIST] Encountered error while reading file f. It does not exist.\nYou SQLSTATE: KD001",
]
COMING_AGAIN = [
    "[USER_RAISED_EXCEPTION] no such shelf SQLSTATE: P0001",
    "[DIVIDE_BY_ZERO] Division by zero. SQLSTATE: 22012 SQLSTATE: XXKST",
    'PythonException: Traceback (most recent call last):\n  File "f.py", line 3\nValueError: bad',
    'PythonException: Traceback (most recent call last):\n  File "f.py", line 3\nRuntimeError: bad',
    "[FAILED_READ_FILE.CANNOT_READ_FILE_FOOTER] Encountered error while reading file f. SQLSTATE: KD001",
    "[FAILED_READ_FILE.NO_HINT] Encountered error while reading file f. SQLSTATE: KD001\n"
    "Caused by: [MALFORMED_RECORD_IN_PARSING.WITHOUT_SUGGESTION] Malformed records. SQLSTATE: 22023",
    "[FAILED_READ_FILE.NO_HINT] of which Spark tells no state [MALFORMED_CSV_RECORD] Malformed SQLSTATE: KD000",
]


@pytest.mark.parametrize("text", PASSING)
def test_what_a_machine_does_may_pass(text: str) -> None:
    assert not failures.comes_again(RuntimeError(JOB + text))


@pytest.mark.parametrize("text", COMING_AGAIN)
def test_what_rows_and_functions_do_comes_again(text: str) -> None:
    assert failures.comes_again(RuntimeError(JOB + text))


def test_what_is_named_or_of_the_users_own_line_or_of_a_jvm_that_is_gone_comes_again() -> None:
    assert failures.comes_again(PenstockError("STATE_TAKEN_OVER", "somebody", "stop"))
    assert failures.comes_again(AnalysisException("[UNRESOLVED_COLUMN] no column wrod"))
    for gone in (Py4JNetworkError("Answer from Java side is empty"), Py4JError("gone"), ConnectionRefusedError(111)):
        assert failures.comes_again(gone)
    with pytest.raises(LookupError) as caught:
        raise LookupError("the shelf is full")
    assert failures.comes_again(caught.value)


def test_what_a_machine_lacks_for_a_moment_may_pass_on_the_driver_too() -> None:
    """An OSError is otherwise how the driver hears that its JVM is gone."""
    assert not failures.comes_again(OSError(errno.ENOMEM, "Cannot allocate memory"))
    assert not failures.comes_again(OSError(errno.ESTALE, "Stale file handle"))
    with pytest.raises(MemoryError) as caught:
        raise MemoryError  # in a line of the user's, as far as Penstock can tell
    assert not failures.comes_again(caught.value)


def test_every_failure_has_one_kind() -> None:
    kinds = {
        JOB + "ExecutorLostFailure (executor 1 exited)": FailureKind.LOST,
        "[Errno 28] No space left on device": FailureKind.FULL,
        JOB + PASSING[0]: FailureKind.PASSING,
        JOB + COMING_AGAIN[0]: FailureKind.CERTAIN,
    }
    assert {text: failures.kind_of(RuntimeError(text)) for text in kinds} == kinds


@pytest.mark.parametrize("words", ["No space left on device", "Lost executor 3"])
def test_what_a_row_of_a_log_file_says_is_not_what_the_machine_says(words: str) -> None:
    text = f"[CAST_INVALID_INPUT] The value '{words}' of the type \"STRING\" cannot be cast. SQLSTATE: 22018"
    assert failures.kind_of(RuntimeError(JOB + text)) is FailureKind.CERTAIN
    assert failures.kind_of(RuntimeError(JOB + words)) is not FailureKind.CERTAIN


def test_pyspark_does_not_hide_why_a_socket_did_not_open() -> None:
    topology = Topology("t")
    topology.sink("out", sinks.noop(), inputs=topology.source("rows", sources.rate(1)))
    operator = topology.definition().operator("rows")
    with pytest.raises(UnboundLocalError) as caught, pyspark.util._load_from_socket(("/none/such", None), None):
        pass
    assert "CANNOT_OPEN_SOCKET" in failures.named_error(operator, caught.value).message
