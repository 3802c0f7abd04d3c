"""The engine on Spark is a `RunningTopology`: the suite that its double passes too."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from conftest import TEST_SETTINGS, Hosts
from running_topology_contract import OPERATORS, RunningTopologyContract, declared, until

from penstock.engine.state.folder import StateFolder
from penstock.engine.topology import SparkTopology
from penstock.running import RunningTopology


@pytest.fixture(scope="module")
def running(hosts: Hosts, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningTopology]:
    folder = StateFolder.hold(str(tmp_path_factory.mktemp("contract")))
    try:
        with SparkTopology(declared(), hosts.get("local"), folder, TEST_SETTINGS) as running:
            yield running
    finally:
        folder.release()


@pytest.mark.usefixtures("local_host")
class TestTheEngine(RunningTopologyContract):
    def flow(self, running: RunningTopology) -> None:
        before = {name: running.statistics.batches(name) for name in OPERATORS}
        until(
            running,
            lambda: all(running.statistics.batches(name) > count for name, count in before.items()),
            "rows flow through every operator",
        )
