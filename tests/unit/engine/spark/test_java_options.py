"""The options of Java that a session starts with: ours stand before the user's, and never take their place."""

from __future__ import annotations

from penstock.cluster.provider import DRIVER_JAVA, EXECUTOR_JAVA
from penstock.engine.spark.session import with_java_options


def test_options_of_the_driver_are_no_setting() -> None:
    """A setting would take the place of the one in the user's spark-defaults.conf, which only Spark reads."""
    conf, for_driver = with_java_options({"spark.app.name": "a"}, {DRIVER_JAVA: "-Xours"})
    assert conf == {"spark.app.name": "a"}
    assert for_driver == "-Xours"
    conf, _ = with_java_options({DRIVER_JAVA: "-Xmine"}, {DRIVER_JAVA: "-Xours"})
    assert conf == {DRIVER_JAVA: "-Xmine"}, "Spark puts it behind what is in the environment"


def test_options_of_executors_stand_before_the_users() -> None:
    options = {DRIVER_JAVA: "", EXECUTOR_JAVA: "-Xours"}
    assert with_java_options({EXECUTOR_JAVA: "-Xmine"}, options) == ({EXECUTOR_JAVA: "-Xours -Xmine"}, "")
    assert with_java_options({}, {EXECUTOR_JAVA: ""}) == ({}, ""), "nothing is said where there is nothing to say"
