"""What PySpark prints beside an error that is told as a named one."""

from __future__ import annotations

import logging
import threading

import pytest
from pyspark.errors import AnalysisException
from pyspark.logger import PySparkLogger

from penstock.engine.spark import failures


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
