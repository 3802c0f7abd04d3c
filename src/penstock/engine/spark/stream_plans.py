"""What Spark knows of a DataFrame before its query starts: its plan, its state, and whether Spark would refuse it."""

from __future__ import annotations

import json
from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from penstock.engine.spark.java_values import java_of
from penstock.logs import LOGGER

#: How the names of operators that keep state on a stream begin in Spark's plans.
_STATEFUL = ("Aggregate", "Deduplicate", "TransformWithState", "GlobalLimit", "Distinct", "Except")


def plan_of(frame: DataFrame) -> list[dict[str, Any]] | None:
    """The analysed plan, all nodes in one list, each before its children; None on Spark Connect, which shows none."""
    java = getattr(frame, "_jdf", None)
    if java is None:
        return None
    plan: list[dict[str, Any]] = json.loads(java.queryExecution().analyzed().toJSON())
    return plan


def stateful_nodes(frame: DataFrame) -> list[str]:
    """Spark's names of the stateful operators in a stream's plan, from the last to the first; empty on Spark Connect,
    which shows no plan."""
    if not hasattr(frame, "_jdf"):
        return []
    converters = java_of(frame.sparkSession).scala.jdk.javaapi.CollectionConverters
    found = []
    waiting = [frame._jdf.queryExecution().analyzed()]
    while waiting:
        node = waiting.pop()
        children = list(converters.asJava(node.children()))
        name = str(node.nodeName())
        with_state = name.startswith("FlatMapGroups") and name.endswith("WithState")
        streams_meet = name == "Join" and all(child.isStreaming() for child in children)
        if node.isStreaming() and (name.startswith(_STATEFUL) or with_state or streams_meet):
            found.append(name)
        waiting += children
    return found


def is_own_state(node: str) -> bool:
    """Whether a stateful operator of Spark's is transformWithState, which has several column families a store."""
    return node.startswith("TransformWithState")


def stateful_operators(frame: DataFrame) -> tuple[int, bool]:
    """How many stateful operators a streaming DataFrame has, and whether one of them is a join of two streams."""
    stateful = stateful_nodes(frame)
    return len(stateful), "Join" in stateful


def explained(frame: DataFrame) -> str:
    """The physical plan that Spark would make of a stream, in Spark's words."""
    java = java_of(frame.sparkSession)
    mode = getattr(getattr(java.org.apache.spark.sql.execution, "ExplainMode$"), "MODULE$").fromString("simple")
    return str(frame._jdf.queryExecution().explainString(mode))


def refusal_of(frame: DataFrame, output_mode: str) -> str:
    """What Spark would say if this stream were started in this output mode. The text is empty if Spark would start it,
    or was told not to look. On Spark Connect it is always empty: there Spark refuses only when a query starts."""
    session = frame.sparkSession
    if not hasattr(frame, "_jdf") or session.conf.get("spark.sql.streaming.unsupportedOperationCheck") == "false":
        return ""
    java = java_of(session)
    checker = getattr(getattr(java.org.apache.spark.sql.catalyst.analysis, "UnsupportedOperationChecker$"), "MODULE$")
    mode = getattr(java.org.apache.spark.sql.streaming.OutputMode, output_mode.capitalize())()
    try:
        checker.checkForStreaming(frame._jdf.queryExecution().analyzed(), mode)
    except PySparkException as error:
        return str(error)
    except (Py4JError, TypeError) as error:
        # Another version of Spark has its check elsewhere: it refuses what it cannot do when the query starts.
        LOGGER.info("Spark could not be asked beforehand whether it takes a stream: %s", error)
    return ""
