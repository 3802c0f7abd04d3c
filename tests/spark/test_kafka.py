"""Kafka topics through a topology on Spark, against librdkafka's own mock cluster in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from kafka_cluster import KafkaCluster, kafka_cluster
from killable_kafka import reading, with_users
from test_results import WAIT

from penstock import PenstockError, Topology, sinks, sources
from penstock.engine.spark.host import SparkHost

HERE = Path(__file__).parent
PARTITIONS = 4
MESSAGES = 40_000


@pytest.fixture(scope="module")
def cluster() -> Iterator[KafkaCluster]:
    with kafka_cluster(numbers=PARTITIONS, orders=2, out=2, growing=1) as made:
        made.produce("numbers", [(n % PARTITIONS, b"%d" % n) for n in range(MESSAGES)])
        yield made


def written(folder: Path) -> list[tuple[int, int, str]]:
    """(partition, offset, value) in the order in which the rows were published."""
    files = sorted(folder.glob("part-*.parquet"), key=lambda path: path.name.split("-")[1:3])
    tables = [pq.read_table(path) for path in files]
    return [(row["partition"], row["offset"], row["value"]) for table in tables for row in table.to_pylist()]


def check_all_once_in_order(folder: Path, messages: int, partitions: int) -> None:
    rows = written(folder)
    assert len(rows) == messages
    for partition in range(partitions):
        mine = [(offset, value) for one, offset, value in rows if one == partition]
        each = messages // partitions
        assert mine == [(offset, str(offset * partitions + partition)) for offset in range(each)]


@pytest.mark.parametrize("chained", [True, False])
def test_every_message_comes_once_and_in_order(
    cluster: KafkaCluster, local_host: SparkHost, running: Callable, tmp_path: Path, chained: bool
) -> None:
    with running(reading(cluster.servers, tmp_path, chained=chained), local_host) as run:
        assert run.wait(WAIT)
        assert run.statistics.totals("numbers")[0] == MESSAGES
        assert run.backlog("numbers") == 0
    check_all_once_in_order(tmp_path / "out", MESSAGES, PARTITIONS)


@pytest.mark.live
def test_a_topology_goes_on_after_its_driver_was_killed_twice(cluster: KafkaCluster, tmp_path: Path) -> None:
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")])}

    def start() -> subprocess.Popen[str]:
        command = [sys.executable, str(HERE / "killable_kafka.py"), str(tmp_path), cluster.servers, "local", "5000"]
        return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)

    for pause in (0.0, 0.4):
        driver = start()
        assert driver.stdout is not None
        assert driver.stdout.readline() == "published\n"
        time.sleep(pause)
        driver.kill()
        driver.communicate()
    driver = start()
    said, _ = driver.communicate(timeout=WAIT * 2)
    assert said.splitlines()[-1] == "finished"
    check_all_once_in_order(tmp_path / "out", MESSAGES, PARTITIONS)


def test_messages_that_are_no_objects_go_to_the_dead_letters(
    cluster: KafkaCluster, local_host: SparkHost, running: Callable, tmp_path: Path
) -> None:
    cluster.produce("orders", [(n % 2, b'{"id": %d}' % n if n % 10 else b"broken") for n in range(1_000)])
    topology = Topology("orders")
    spec = sources.kafka(cluster.servers, "orders", value="json", schema="id long", follow=False)
    orders = topology.source("orders", spec, on_error="dead_letter")
    topology.sink("good", sinks.parquet(tmp_path / "good"), inputs=[orders])
    topology.sink("bad", sinks.parquet(tmp_path / "bad"), inputs=[orders.dead_letter])
    with running(topology, local_host) as run:
        assert run.wait(WAIT)
    good = [row for path in (tmp_path / "good").glob("*.parquet") for row in pq.read_table(path)["id"].to_pylist()]
    assert sorted(good) == [n for n in range(1_000) if n % 10]
    bad = [row for path in (tmp_path / "bad").glob("*.parquet") for row in pq.read_table(path)["row"].to_pylist()]
    assert bad == ["broken"] * 100


def test_rows_become_messages_with_keys_and_headers(
    cluster: KafkaCluster, local_host: SparkHost, running: Callable, tmp_path: Path
) -> None:
    topology = Topology("writing")
    rows = topology.source("rows", sources.rate(100_000, sources.numbers(), rows=2_000), instances=2)
    words = topology.map("words", with_users, inputs=[rows], schema="user string, n long, origin string", instances=2)
    sink = sinks.kafka(cluster.servers, "out", key="user", headers=["origin"])
    topology.sink("out", sink, inputs=[words], instances=2)
    with running(topology, local_host) as run:
        assert run.wait(WAIT)
    messages = cluster.consume("out", 2)
    assert sorted(message.value() for message in messages) == sorted(b'{"n": %d}' % n for n in range(2_000))
    assert {(message.key(), tuple(message.headers())) for message in messages} == {
        (b"user %d" % user, (("origin", b"here"),)) for user in range(7)
    }
    places = {(message.key(), message.partition()) for message in messages}
    assert len(places) == 7, "messages of one key are in one partition"


def test_what_comes_later_is_read_and_shows_as_backlog_while_the_source_is_paused(
    cluster: KafkaCluster, local_host: SparkHost, running: Callable
) -> None:
    topology = Topology("growing")
    numbers = topology.source("numbers", sources.kafka(cluster.servers, "growing", start="latest"))
    topology.sink("out", sinks.noop(), inputs=[numbers])
    with running(topology, local_host) as run:
        deadline = time.monotonic() + WAIT
        cluster.produce("growing", [(0, b"x")] * 100)
        while run.statistics.totals("out")[0] < 100:
            assert time.monotonic() < deadline
            run.check()
            time.sleep(0.05)
        run.query("numbers").intake.pause()
        cluster.produce("growing", [(0, b"x")] * 50)
        while run.backlog("numbers") < 50:
            run.query("numbers").feeds[0].look()
            assert time.monotonic() < deadline
            time.sleep(0.05)
        assert run.statistics.totals("out")[0] == 100


def test_a_topic_that_is_not_there_is_refused_before_anything_runs(
    cluster: KafkaCluster, local_host: SparkHost, running: Callable
) -> None:
    topology = Topology("missing")
    rows = topology.source("rows", sources.kafka(cluster.servers, "nothing"))
    topology.sink("out", sinks.noop(), inputs=[rows])
    with pytest.raises(PenstockError) as caught, running(topology, local_host):
        pass
    assert caught.value.name == "KAFKA_UNKNOWN_TOPIC"
    assert caught.value.where is not None and caught.value.where.file == __file__
