"""What Spark says about a function becomes an error that names the way out. The sentences are Spark 4.3's own."""

from __future__ import annotations

import pytest

from penstock.engine.spark.failures import as_named_error, named_error
from penstock.engine.spark.refusals import explained, never_right, refused_by_spark, state_outside_keyed
from penstock.errors import Location
from penstock.topology import Keyed, Map, parse_schema

SCHEMA = {"out": parse_schema("key string")}
WHERE = Location("x.py", 3)
AGGREGATE = (
    "[STREAMING_OUTPUT_MODE.UNSUPPORTED_OPERATION] Invalid streaming output mode: append. This output mode is not "
    "supported for streaming aggregations without watermark on streaming DataFrames/DataSets. SQLSTATE: 42KDE"
)
COMPLETE = (
    "[STREAMING_OUTPUT_MODE.UNSUPPORTED_OPERATION] Invalid streaming output mode: complete. This output mode is not "
    "supported for no streaming aggregations on streaming DataFrames/DataSets. SQLSTATE: 42KDE"
)
OUTER = (
    "LeftOuter join between two streaming DataFrames/Datasets is not supported in Update output mode, only in Append "
    "output mode;\n~Join LeftOuter, (value#4L = v2#28L)\n:- ~MapInArrow ident(timestamp#0, value#1L)#2"
)
OUTER_WITHOUT_WATERMARK = (
    "Stream-stream LeftOuter join between two streaming DataFrame/Datasets is not supported without a watermark in the "
    "join keys, or a watermark on the nullable side and an appropriate range condition;\n~Join LeftOuter"
)
SORT = (
    "Sorting is not supported on streaming DataFrames/Datasets, unless it is on aggregated DataFrame/Dataset in "
    "Complete output mode;\n~Sort [value#4L ASC NULLS FIRST], true"
)
LIMIT = "Limits are not supported on streaming DataFrames/Datasets in Update output mode;\n~LocalLimit 5"
ROW_NUMBER = (
    "[NON_TIME_WINDOW_NOT_SUPPORTED] Window function is not supported in ROW_NUMBER() (as column `n`) on streaming "
    "DataFrames/Datasets. Structured Streaming only supports time-window aggregation using the WINDOW function. "
    "SQLSTATE: 42KDE"
)
SAMPLE = "Sampling is not supported on streaming DataFrames/Datasets;\n~Sample 0.0, 0.5, false, 41968, Bernoulli"


def keyed(mode: str = "update") -> Keyed:
    return Keyed(name="x", function=len, key=("key",), outputs=SCHEMA, output_mode=mode, where=WHERE)


def refused(mode: str, **words: str):
    """`words` by output mode; where there are none, Spark takes it."""
    return refused_by_spark(keyed(mode), mode, lambda mode: words.get(mode, ""))


def test_nothing_is_wrong():
    assert refused("update", append=AGGREGATE) is None


@pytest.mark.parametrize(
    ("mode", "words", "name", "decisive"),
    [
        ("append", {"append": AGGREGATE}, "BAD_OUTPUT_MODE", ['output_mode="update"', "withWatermark"]),
        ("update", {"update": OUTER, "complete": COMPLETE}, "BAD_OUTPUT_MODE", ['output_mode="append"', "watermark"]),
        (
            "update",
            {"update": OUTER, "append": OUTER_WITHOUT_WATERMARK, "complete": COMPLETE},
            "BAD_OUTPUT_MODE",
            ['output_mode="append"', "watermark"],
        ),
        (
            "append",
            {"append": OUTER_WITHOUT_WATERMARK, "update": OUTER, "complete": COMPLETE},
            "NOT_ON_A_STREAM",
            ["watermark"],
        ),
        ("update", {"append": SORT, "update": SORT}, "BAD_OUTPUT_MODE", ['output_mode="complete"', "max_by"]),
        ("complete", {"append": SORT, "update": SORT, "complete": COMPLETE}, "NOT_ON_A_STREAM", ["max_by"]),
        ("update", dict.fromkeys(("append", "update", "complete"), ROW_NUMBER), "NOT_ON_A_STREAM", ["max_by"]),
        ("update", {"update": LIMIT, "complete": COMPLETE}, "BAD_OUTPUT_MODE", ['Declare output_mode="append".']),
        ("complete", {"complete": COMPLETE}, "BAD_OUTPUT_MODE", ['output_mode="append" or output_mode="update"']),
        ("update", {"append": SAMPLE, "update": SAMPLE, "complete": COMPLETE}, "NOT_ON_A_STREAM", ["another way"]),
    ],
)
def test_each_refusal_has_its_name_and_its_way_out(mode, words, name, decisive):
    error = refused(mode, **words)
    assert error is not None
    assert error.name == name
    assert error.where == WHERE
    assert '"x"' in error.message
    for part in ("~", "SQLSTATE", "[STREAMING", "\n"):
        assert part not in str(error)
    for part in decisive:
        assert part in error.hint


def test_a_sentence_without_a_rule_is_passed_on():
    error = refused("update", append=SAMPLE, update=SAMPLE, complete=COMPLETE)
    assert error is not None
    assert "Sampling is not supported on streaming DataFrames/Datasets." in error.message
    assert explained(keyed(), SAMPLE) is None


def test_where_spark_cannot_be_asked_beforehand_its_error_is_explained_all_the_same():
    from pyspark.errors import AnalysisException

    error = named_error(keyed("append"), AnalysisException(AGGREGATE))
    assert (error.name, error.where) == ("BAD_OUTPUT_MODE", WHERE)
    assert 'output_mode="append"' in error.message
    assert named_error(keyed(), AnalysisException(SAMPLE)).name == "OPERATOR_FAILED"


@pytest.mark.parametrize(
    ("node", "says"),
    [
        ("Aggregate", "aggregates"),
        ("DeduplicateWithinWatermark", "drops duplicates"),
        ("Join", "joins two streams"),
        ("FlatMapGroupsInPandasWithState", "state of its own"),
        ("TransformWithStateInPySpark", "state of its own"),
        ("GlobalLimit", "limits"),
        ("Except", "takes away the rows"),
        ("SomethingNew", "keeps state"),
    ],
)
def test_state_outside_a_keyed_operator(node, says):
    operator = Map(name="x", function=len, takes_dataframes=True, outputs=SCHEMA, where=WHERE)
    error = state_outside_keyed(operator, [node])
    assert error.name == "STATE_OUTSIDE_KEYED"
    assert says in error.message
    assert 'the map "x"' in error.message
    assert 'topology.keyed("x"' in error.hint
    assert ("left_anti" in error.hint) is (node == "Except")


@pytest.mark.parametrize("operator", [keyed("update"), Map(name="x", function=len, outputs=SCHEMA, where=WHERE)])
def test_what_spark_would_take_away_again_with_every_batch(operator):
    """Spark keeps a sum of 1 for each row that comes, and of -1 for each row of the table, which it reads with every
    batch."""
    for node in ("Except All", "ExceptAll"):
        error = never_right(operator, ["Aggregate", node])
        assert error is not None
        assert error.name == "NOT_ON_A_STREAM"
        assert '"x" uses exceptAll' in error.message
        assert "left_anti" in error.hint
        assert error.where == WHERE
    assert never_right(operator, ["Except", "Aggregate"]) is None


TRACEBACK = """Job aborted due to stage failure: Task 0 in stage 12.0 failed 4 times
org.apache.spark.api.python.PythonException: Traceback (most recent call last):
  File "/x/penstock/engine/readers.py", line 40, in run
    raise ValueError("no good") from error
pyarrow.lib.ArrowInvalid: the rows do not fit: Error 7

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "/x/penstock/engine/bundle.py", line 111, in run
    except PenstockError as error:
           ^^^^^^^^^^^^^
  File "/x/y.py", line 3, in z
    class WorseError(Exception):
"""


def test_a_line_of_code_in_a_traceback_is_no_reason():
    """Only a line that begins with the name of an exception says what was raised."""
    message = as_named_error(keyed(), TRACEBACK).message
    assert "ArrowInvalid: the rows do not fit: Error 7" in message
    assert "except PenstockError" not in message


def test_without_an_exception_the_nearest_words_are_told():
    assert "the Error has no name" in as_named_error(keyed(), "one line\nthe Error has no name\nanother").message
    assert "[A_CONDITION] what Spark says" in as_named_error(keyed(), "first\n[A_CONDITION] what Spark says").message
