"""How an operator's failure gets from the executor to the user as one named error, without a traceback.

The executor raises a plain exception whose text carries the error as JSON behind a mark; Spark wraps it in several
layers of Java and Python, and the driver finds the mark again.
"""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException, PySparkException
from pyspark.logger import PySparkLogger

from penstock.engine.spark.java_errors import JVM_GONE, SparkError
from penstock.engine.spark.refusals import explained
from penstock.errors import PenstockError
from penstock.failing import found_in, line_of

if TYPE_CHECKING:
    from penstock.topology.definition import Operator

#: What Spark says when it has lost an executor, or what an executor held, once too often.
_LOST = re.compile(
    r"ExecutorLostFailure|FetchFailed|MetadataFetchFailed|Executor heartbeat timed out|worker lost|Worker lost"
    r"|Lost executor|Command exited with code|Remote RPC client disassociated|Could not find BlockManager"
    r"|Failed to get broadcast|maximum allowable number of (attempts|times)|Python worker exited unexpectedly"
)
#: Classes of SQLSTATE that are about rows or declarations: the same rows would fail again.
_MISTAKEN = ("07", "0A", "21", "22", "23", "2B", "38", "39", "40", "42", "46", "54", "KD", "P0")
_SQLSTATE = re.compile(r"SQLSTATE: ([0-9A-Z]{2})[0-9A-Z]{3}\b")
#: What Python raises where another process, a machine or a disk is away.
_AWAY = re.compile(
    r"^\s*(?:\w+\.)*(?:Gone|OSError|EOFError|TimeoutError|BrokenPipeError|BlockingIOError|Connection\w*Error)(?::|$)",
    re.MULTILINE,
)
#: A line that tells what was raised, and not a line of code in a traceback that has such a word in it.
_RAISED = re.compile(r"(Caused by: )?([a-z_]\w*\.)*[A-Z]\w*(Error|Exception|Invalid)(:|$)")
_TRACEBACK = "Traceback (most recent call last):"
#: How Python, Java, pyarrow and SQLite say that a disk, or a user's share of it, is full.
_NO_ROOM = re.compile(r"No space left on device|Disk quota exceeded|database or disk is full", re.IGNORECASE)
#: Where PySpark tells of exceptions that are about a line of the user's.
_LOGGERS = ("DataFrameQueryContextLogger", "SQLQueryContextLogger")


@contextmanager
def told_once() -> Iterator[None]:
    """Keep PySpark from logging exceptions of this thread: it writes thousands of characters of JSON to standard error
    for an exception that Penstock tells as one named error."""
    here = threading.get_ident()

    def is_elsewhere(record: logging.LogRecord) -> bool:
        return record.thread != here

    loggers = [PySparkLogger.getLogger(name) for name in _LOGGERS]
    for logger in loggers:
        logger.addFilter(is_elsewhere)
    try:
        yield
    finally:
        for logger in loggers:
            logger.removeFilter(is_elsewhere)


_CORRECT = "Correct the mistake that this message names. With --state, the topology then goes on where it was."


def named_error(operator: Operator, error: Exception) -> PenstockError:
    """What the driver met while it ran an operator, as an error that says where the operator was declared."""
    if isinstance(error, UnboundLocalError) and isinstance(error.__context__, PySparkException):
        error = error.__context__  # PySpark's own mistake, where it could not open a socket
    if isinstance(error, PenstockError):
        return error if error.where else PenstockError(error.name, error.message, error.hint, operator.where)
    if isinstance(error, PySparkException) and (refused := explained(operator, str(error))):
        return refused
    if isinstance(error, SparkError):
        return as_named_error(operator, str(error), line_of(error))
    return PenstockError(
        "OPERATOR_FAILED",
        f'"{operator.name}" failed with {type(error).__name__}: {error}{line_of(error)}.',
        _CORRECT,
        operator.where,
    )


def tells_of_lost_executors(error: Exception) -> bool:
    """Whether Spark gave a batch up because executors were lost under it, and not because of what it did there."""
    text = str(error)
    return found_in(text) is None and _LOST.search(text) is not None


def comes_again(error: Exception) -> bool:
    """Whether an error is sure to come again: Penstock or a function has named it, Spark says that it is about rows or
    declarations, or code of the user's was under way. What Arrow functions raise is always marked. Whatever else ends a
    query may pass: a machine that is too busy to start a worker in time, a state store that cannot be loaded now."""
    text = str(error)
    if isinstance(error, JVM_GONE) and not isinstance(error, Py4JJavaError):
        return True  # a JVM that is gone does not come back
    if isinstance(error, PenstockError | AnalysisException) or found_in(text) is not None:
        return True
    if _TRACEBACK in text:
        return _AWAY.search(text) is None
    return any(state in _MISTAKEN for state in _SQLSTATE.findall(text)) or bool(line_of(error))


def tells_of_a_full_disk(error: Exception) -> bool:
    """Whether an error tells of a full disk, on whatever machine: room may come back without any correction here."""
    return _NO_ROOM.search(str(error)) is not None


def as_named_error(operator: Operator, text: str, place: str = "") -> PenstockError:
    """The error that a query ended with: the one the executor marked, or OPERATOR_FAILED with Spark's own words."""
    if (marked := found_in(text)) is not None:
        return marked
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.strip().startswith("at ")]
    raised = [line for line in lines if _RAISED.match(line) and not line.endswith(_TRACEBACK)]
    reasons = raised or [line for line in lines if "Error" in line or "Exception" in line or line.startswith("[")]
    reason = (reasons[-1] if reasons else lines[0] if lines else "no reason given")[:600]
    return PenstockError(
        "OPERATOR_FAILED",
        f'"{operator.name}" was ended by Spark: {reason.rstrip(".")}{place}.',
        _CORRECT,
        operator.where,
    )
