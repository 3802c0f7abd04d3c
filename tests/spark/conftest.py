"""Real Spark for the tests. PySpark has one JVM a process, so hosts are shared and started one after the other.

Tests that ask for `local_host` come first, then those for `standalone_host`: each is started once. Those that start a
Spark of their own are last, and find none running.
"""

from __future__ import annotations

import itertools
import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

from penstock import Settings, Topology
from penstock.cluster.local import LocalCluster
from penstock.cluster.model import Placement
from penstock.cluster.standalone import StandaloneCluster
from penstock.engine.spark.host import SparkHost
from penstock.engine.state.folder import StateFolder
from penstock.engine.topology import SparkTopology
from penstock.topology.definition import TopologyDefinition

HERE = Path(__file__).parent
#: The modules of the strangers' package. Workers import this file too, and find none of tests/helpers.
STRANGERS = HERE.parent / "strangers" / "src"
# Tests are short: Java's second compiler would cost more than it gives. Every JVM that a test starts sees this.
os.environ.setdefault("JDK_JAVA_OPTIONS", "-XX:+UseSerialGC -XX:TieredStopAtLevel=1")

#: Short micro-batches: tests should not wait. Where bundles stand, rows may take a little: batches every few
#: milliseconds, in three topologies side by side, would only take the processor from each other.
TEST_SETTINGS = Settings(
    latency_under_load=0.3,
    latency_spark=0.02,
    retention_seconds=0.5,
    drain_seconds=60,
    file_seconds=0.05,
    latency=0.2,
    shuffle=os.environ.get("PENSTOCK_TEST_SHUFFLE", "exchange"),
)


PASSWORD = "the-password-of-the-user-who-runs-the-tests"
SHARED = ("local_host", "standalone_host")
#: As many processes as `make test` has each have a local Spark: most of the tests want one.
LOCAL_GROUPS = 3
#: A file with few tests has longer ones: it counts as if it had so many more.
TESTS_MORE = 4


def shared_host(item: pytest.Item) -> str | None:
    """The host that a test shares with others; None if it starts its own."""
    return next((name for name in SHARED if name in getattr(item, "fixturenames", ())), None)


def dealt(tests_of: Mapping[str, int]) -> dict[str, int]:
    """By file: the group that it is in, so that all groups have about as much to do."""
    loads = [0] * LOCAL_GROUPS
    found = {}
    for file, tests in sorted(tests_of.items(), key=lambda one: (-one[1], one[0])):
        found[file] = loads.index(min(loads))
        loads[found[file]] += tests + TESTS_MORE
    return found


@pytest.hookimpl(tryfirst=True)  # before pytest-xdist looks for groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests that share a Spark stay together, also when `make test` runs several processes side by side; those with one
    of their own stay together by file. What takes longest begins first, so that all processes end at about the same
    time: pytest-xdist begins with the groups that have most tests, which are those of the local Sparks.
    """
    here = [item for item in items if item.path.is_relative_to(HERE)]
    local = [one for one in here if shared_host(one) == SHARED[0] and one.get_closest_marker("live") is None]
    group_of = dealt(Counter(item.path.stem for item in local))

    def turn(item: pytest.Item) -> tuple[int, str]:
        if not item.path.is_relative_to(HERE):
            return len(SHARED) + 1, ""
        host = shared_host(item)
        return (SHARED.index(host), group(item)) if host else (len(SHARED), "")

    def group(item: pytest.Item) -> str:
        host = shared_host(item)
        if host is None:
            return item.path.stem
        return f"{host}-{group_of.get(item.path.stem, 0)}" if host == SHARED[0] else host

    for item in here:
        item.add_marker(pytest.mark.xdist_group(group(item)))
    items.sort(key=turn)


class Hosts:
    """At most one host at a time."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.kind = ""
        self.host: SparkHost | None = None

    def get(self, kind: str) -> SparkHost:
        if kind != self.kind:
            self.stop()
            self.host = self._make(kind).start()
            self.kind = kind
        assert self.host is not None
        return self.host

    def _make(self, kind: str) -> SparkHost:
        folder = self.folder / kind
        events = folder / "events"
        events.mkdir(parents=True)
        conf = {
            "spark.eventLog.enabled": str(kind == "standalone").lower(),  # test_measurements.py reads it
            "spark.eventLog.dir": str(events),
            "spark.eventLog.rolling.enabled": "false",
            "spark.eventLog.compress": "false",
            # A secret of the user's, which others must not see: test_closed_doors.py.
            "spark.hadoop.tests.password": PASSWORD,
        }
        provider = (
            LocalCluster(slots=2, cores=1, task_threads=40)
            if kind == "local"
            else StandaloneCluster(2, 2, 2, 24, folder / "cluster")
        )
        return SparkHost(f"tests-{kind}", provider, TEST_SETTINGS, folder / "logs", [str(HERE), str(STRANGERS)], conf)

    def stop(self) -> None:
        if self.host is not None:
            self.host.stop()
        self.host, self.kind = None, ""


@pytest.fixture(scope="session")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hosts]:
    hosts = Hosts(tmp_path_factory.mktemp("hosts"))
    yield hosts
    hosts.stop()


@pytest.fixture(autouse=True)
def no_other_spark(request: pytest.FixtureRequest, hosts: Hosts) -> None:
    """For a test that starts its own Spark, in this process or beside it."""
    if shared_host(request.node) is None:
        hosts.stop()


@pytest.fixture
def local_host(hosts: Hosts) -> SparkHost:
    return hosts.get("local")


@pytest.fixture
def standalone_host(hosts: Hosts) -> SparkHost:
    return hosts.get("standalone")


NoRoom = Callable[[], AbstractContextManager[None]]


@pytest.fixture
def no_room() -> NoRoom:
    """`with no_room():` has runs that are started in this block run all bundles in micro-batches."""
    from no_standing_room import no_standing_room  # not above: workers would not find it

    return no_standing_room


Running = Callable[..., AbstractContextManager[SparkTopology]]


@pytest.fixture
def running(tmp_path: Path) -> Running:
    """`with running(topology, host) as run:` starts it; leaving drains and stops it. The state folder is kept for the
    length of the test, under the name given, so that a topology can be started again on it."""
    count = itertools.count()

    @contextmanager
    def start(
        topology: Topology | TopologyDefinition,
        host: SparkHost,
        state: str | None = None,
        settings: Settings = TEST_SETTINGS,
        placement: Placement | None = None,
    ) -> Iterator[SparkTopology]:
        definition = topology.definition() if isinstance(topology, Topology) else topology
        folder = StateFolder.hold(str(tmp_path / (state or f"state-{next(count)}")))
        try:
            with SparkTopology(definition, host, folder, settings, placement) as run:
                yield run
        finally:
            folder.release()

    return start
