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
from enum import Enum
from typing import TYPE_CHECKING

from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException, PySparkException
from pyspark.logger import PySparkLogger

from penstock.engine.spark.java_errors import JVM_GONE, SparkError
from penstock.engine.spark.refusals import explained
from penstock.errors import PenstockError
from penstock.failing import found_in, line_of, may_pass, passing_in, row_in

if TYPE_CHECKING:
    from penstock.topology.definition import Operator

#: What Spark says when it has lost an executor, or what an executor held, once too often.
_LOST = re.compile(
    r"ExecutorLostFailure|FetchFailed|MetadataFetchFailed|Executor heartbeat timed out|worker lost|Worker lost"
    r"|Lost executor|Command exited with code|Remote RPC client disassociated|Could not find BlockManager"
    r"|Failed to get broadcast|maximum allowable number of (attempts|times)|Python worker exited unexpectedly"
    # On a machine that is too busy to start it in time; for state of one's own, Spark starts one beside the driver.
    r"|Python worker (failed )?to connect back"
)
#: Classes of SQLSTATE that are about rows or declarations: the same rows would fail again.
_MISTAKEN = ("07", "0A", "21", "22", "23", "2B", "38", "39", "40", "42", "46", "54", "KD", "P0")
#: The class of SQLSTATE for values that cannot be cast, parsed or computed with.
_DATA = "22"
_SQLSTATE = re.compile(r"SQLSTATE: ([0-9A-Z]{2})[0-9A-Z]{3}\b")
#: What Spark says of a file that it cannot read now: the file is not there, or its bytes do not come. Spark has the
#: same SQLSTATE for files whose content is wrong. If Spark found a row that is wrong, its words have another SQLSTATE.
_FILE_AWAY = re.compile(r"\[FAILED_READ_FILE\.(?:FILE_NOT_EXIST|NO_HINT)\](?:(?!SQLSTATE: )[\s\S])*SQLSTATE: KD001\b")
#: What Python raises where another process, a machine or a disk is away, or a machine lacks memory or threads.
_AWAY = re.compile(
    r"^\s*(?:\w+\.)*(?:(?:Gone|OSError|EOFError|TimeoutError|BrokenPipeError|BlockingIOError|Connection\w*Error"
    r"|\w*MemoryError)(?::|$)|RuntimeError: can't start new thread)",
    re.MULTILINE,
)
#: A line that tells what was raised, and not a line of code in a traceback that has such a word in it.
_RAISED = re.compile(r"(Caused by: )?([a-z_]\w*\.)*[A-Z]\w*(Error|Exception|Invalid)(:|$)")
_TRACEBACK = "Traceback (most recent call last):"
#: How Python, Java, pyarrow and SQLite say that a disk, or a user's share of it, is full.
_NO_ROOM = re.compile(r"No space left on device|Disk quota exceeded|database or disk is full", re.IGNORECASE)
#: Where PySpark tells of exceptions that are about a line of the user's.
_LOGGERS = ("DataFrameQueryContextLogger", "SQLQueryContextLogger")


class FailureKind(Enum):
    """Why a query has ended: this decides whether it is started again, and how often (engine/run/restarts.py)."""

    #: Executors were lost under it, or what they held.
    LOST = "executors were lost"
    #: A disk was full, on whatever machine.
    FULL = "a disk was full"
    #: Anything else that need not come again.
    PASSING = "it may pass"
    #: The same would come again: it is a mistake of a function, a declaration or a row, or the JVM is gone.
    CERTAIN = "it comes again"


def kind_of(error: Exception) -> FailureKind:
    if _is_of_a_row(str(error)):
        return FailureKind.CERTAIN
    if tells_of_a_full_disk(error):
        return FailureKind.FULL
    if tells_of_lost_executors(error):
        return FailureKind.LOST
    return FailureKind.CERTAIN if comes_again(error) else FailureKind.PASSING


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
    query may pass: a machine that is too busy to start a worker in time, a state store that cannot be loaded now. What
    tells of a machine or of storage may pass as well, whoever has raised it (`failing.may_pass`)."""
    text = str(error)
    if may_pass(error) or passing_in(text):
        return False
    if isinstance(error, JVM_GONE) and not isinstance(error, Py4JJavaError):
        return True  # a JVM that is gone does not come back
    if isinstance(error, PenstockError | AnalysisException) or found_in(text) is not None:
        return True
    if _TRACEBACK in text:
        return _AWAY.search(text) is None
    states = _SQLSTATE.findall(_FILE_AWAY.sub("", text))
    return any(state in _MISTAKEN for state in states) or bool(line_of(error))


def tells_of_a_full_disk(error: Exception) -> bool:
    """Whether an error tells of a full disk, on whatever machine: room may come back without any correction here."""
    return _NO_ROOM.search(str(error)) is not None


def _is_of_a_row(text: str) -> bool:
    """Whether a text is about a value of a row. It may quote that value, and a row of a log file may have all the words
    that others say of disks and executors."""
    return row_in(text) or _DATA in _SQLSTATE.findall(text)


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
