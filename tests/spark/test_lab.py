"""A topology on a real lab: rows cross the links, machines come and go, and a killed driver leaves nothing behind."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
from conftest import HERE, TEST_SETTINGS
from lab_here import needs_a_lab
from steered import CONTENT, check_everything, steered, tag
from written_rows import WAIT

from penstock import Topology, sinks, sources
from penstock.clock import run_time
from penstock.cluster import standalone
from penstock.cluster.choice import ClusterChoice
from penstock.cluster.lab.groups import find_groups
from penstock.cluster.lab.owners import Owner
from penstock.cluster.lab.sizes import LabShape
from penstock.cluster.model import Placement
from penstock.engine.spark.host import SparkHost
from penstock.plans import requests as plans
from penstock.plans.enacting import Status

pytestmark = [needs_a_lab(), pytest.mark.live, pytest.mark.timeout(1500)]

SETTINGS = replace(
    TEST_SETTINGS, change_seconds=400, drain_seconds=400, cluster_timeout=400, slot_memory_mb=512, chaining="off"
)
MARK = "PENSTOCK_TEST_MARK"
RATE = 2000.0
MEASURED_SECONDS = 40.0


def groups_of(prefix: str) -> list[Path]:
    groups = find_groups()
    assert groups is not None
    return [found for folder in groups.folders for found in folder.glob(f"{prefix}*")]


@pytest.fixture
def lab_host(tmp_path: Path, monkeypatch) -> Iterator[SparkHost]:
    monkeypatch.setattr(standalone, "START_SECONDS", 240.0)
    choice = ClusterChoice("lab", machines=2, lab=LabShape.read(0.5, "600m", "50mbit"))
    provider = choice.provider(6, SETTINGS, tmp_path / "cluster")
    host = SparkHost("tests-lab", provider, SETTINGS, tmp_path / "logs", [str(HERE)])
    before = Path("/proc/thread-self/ns/net").readlink()
    with host:
        assert Path("/proc/thread-self/ns/net").readlink() != before, "the driver is inside"
        yield host
    assert Path("/proc/thread-self/ns/net").readlink() == before
    assert groups_of(Owner.this_process().prefix) == []


def test_rows_cross_the_links_and_machines_come_and_go(lab_host, running, tmp_path: Path) -> None:
    one, two = lab_host.cluster.slots
    assert (one.machine, two.machine) == ("10.77.0.2", "10.77.0.3")
    start = Placement(
        {"events": {one: 2}, "tag": {two: 2}, "count": {two: 1}, "rows": {one: 1}, "counts": {one: 1}},
        {"count": (two,) * 4},
    )
    with running(steered(tmp_path, RATE), lab_host, settings=SETTINGS, placement=start) as run:
        while run.statistics.batches("rows") < 20 or run.statistics.batches("counts") < 2:
            run.wait(0.1)
        emitted = run.query("events").feeds[0].position
        crossed = lab_host.provider.readings()
        # Every row of the source is read on the other machine, so its bytes have gone over both links.
        size = CONTENT.rows(0, 1000).nbytes / 1000 * emitted / 2
        assert crossed[one.machine].sent_bytes > size
        assert crossed[two.machine].received_bytes > size
        assert crossed[two.machine].cpu_seconds > 0

        [machine] = lab_host.provider.upcoming(1)
        [new] = machine.slots
        assert run.changes.carry_out(plans.add_machines([machine])).status is Status.DONE
        outcome = run.changes.carry_out(plans.set_instances(run.placement, "tag", {new: 1, two: 1}))
        assert outcome.status is Status.DONE, outcome.reason
        assert set(lab_host.provider.readings()) == {one.machine, two.machine, machine.name}
        outcome = run.changes.carry_out(plans.remove_machines(run.placement, lab_host.cluster, [machine.name]))
        assert outcome.status is Status.DONE, outcome.reason
        assert set(lab_host.provider.readings()) == {one.machine, two.machine}
        assert run.stop()
        check_everything(tmp_path, run.query("events").feeds[0].position)


def test_no_more_is_counted_than_the_interfaces_carried(lab_host, running) -> None:
    """Rows from machine to machine, Spark's shuffle of a keyed operator on both, and the driver's messages."""
    one, two = lab_host.cluster.slots
    topology = Topology("links")
    events = topology.source("events", sources.rate(4 * RATE, CONTENT))
    tagged = topology.map("tag", tag, inputs=[events], schema="id long, key string")
    # All rows go through the shuffle: nothing is combined before it.
    first = topology.keyed(
        "first",
        lambda frame: frame.dropDuplicates(["key"]),
        inputs=[tagged],
        key="key",
        schema="id long, key string",
        tasks=4,
        instances=2,
    )
    topology.sink("out", sinks.noop(), inputs=[first])
    start = Placement(
        {"events": {one: 1}, "tag": {two: 1}, "first": {one: 1, two: 1}, "out": {one: 1}},
        {"first": (one, two, one, two)},
    )
    settings = replace(SETTINGS, sample_seconds=2, window_samples=60, shuffle="exchange")
    with running(topology, lab_host, settings=settings, placement=start) as run:
        # The first micro-batches fetch classes and plans.
        while run.statistics.batches("first") < 20:
            run.wait(0.1)
        run.monitor.restart(run_time())
        before = lab_host.provider.readings()
        run.wait(MEASURED_SECONDS)
        after, seen = lab_host.provider.readings(), run.snapshot()
        assert run.stop()
    assert seen.links[one.machine, two.machine] > RATE * 20, "the source is read on the other machine"
    for machine in (one.machine, two.machine):
        seconds = after[machine].at - before[machine].at
        received = (after[machine].received_bytes - before[machine].received_bytes) / seconds
        sent = (after[machine].sent_bytes - before[machine].sent_bytes) / seconds
        came = sum(rate for (_, receiver), rate in seen.links.items() if receiver == machine) + seen.shuffled[machine]
        went = sum(rate for (sender, _), rate in seen.links.items() if sender == machine)
        told = f"{machine}: {came:,.0f} of {received:,.0f} bytes/s came, {went:,.0f} of {sent:,.0f} went: {seen.links}"
        assert seen.shuffled[machine] > 0, told
        assert {("driver", machine), (machine, "driver")} <= seen.links.keys(), told
        # Spark's own messages, which nobody counts, may be more than all that is counted.
        assert came < 1.1 * received, told
        assert went < 1.1 * sent, told


def test_nothing_is_left_of_a_driver_that_was_killed(tmp_path: Path) -> None:
    mark = uuid.uuid4().hex
    with (tmp_path / "log").open("wb") as log:
        driver = subprocess.Popen(
            [sys.executable, str(HERE / "killed_lab.py"), str(tmp_path / "state")],
            env=os.environ | {MARK: mark},
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
    with driver:
        assert driver.stdout is not None
        words = driver.stdout.readline().split()
        assert words[:1] == ["ready"], (tmp_path / "log").read_text()
        assert groups_of(words[1])
        driver.send_signal(signal.SIGKILL)
    deadline = time.monotonic() + WAIT
    while left := [*marked(mark), *map(str, groups_of(words[1]))]:
        assert time.monotonic() < deadline, "\n".join(left)
        time.sleep(0.1)


def marked(mark: str) -> list[str]:
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.environ().get(MARK) == mark and process.status() != psutil.STATUS_ZOMBIE:
                found.append(" ".join(process.cmdline()))
    return found
