"""The published topologies run as the examples declare them, to the last row."""

from __future__ import annotations

import runpy
from collections.abc import Callable

import pytest
from test_results import EXAMPLES, WAIT, finite

from penstock import sinks
from penstock.engine.spark.host import SparkHost

ROWS = 400


@pytest.mark.parametrize("name", ["linear", "diamond", "star", "page_load", "processing", "network_monitoring"])
def test_a_published_topology_runs(name: str, local_host: SparkHost, running: Callable) -> None:
    module = runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="__main__")  # pickled by value, like the user's file
    definition = finite(module["topology"].definition(), ROWS, sinks.noop())
    with running(definition, local_host) as run:
        assert run.wait(WAIT)
        totals = {operator.name: run.statistics.totals(operator.name) for operator in definition.operators}
    assert all(totals[source.name][1] == ROWS for source in definition.sources)
    for operator in definition.operators:
        producers = [definition.operator(stream.producer) for stream in definition.inputs_of(operator.name)]
        if producers and all(len(producer.outputs) == 1 for producer in producers):
            assert totals[operator.name][0] == sum(totals[producer.name][1] for producer in producers), operator.name
    assert all(totals[sink.name][0] > 0 for sink in definition.sinks)
