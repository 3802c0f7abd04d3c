"""Kafka as a source: every message exactly once through kills, and how fast messages come in. `make bench-kafka`.

python benchmarks/kafka.py [--rounds 3]
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

import psutil
import pyarrow.parquet as pq
from results import Bar, finish, machine, write_results

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "helpers"))

from kafka_cluster import KafkaCluster, kafka_cluster

HERE = Path(__file__).parent
TESTS = HERE.parent / "tests"
PARTITIONS = 8
MESSAGES = 200_000
#: Rows in a micro-batch while processes are killed: so many batches that a kill hits the middle.
KILLED_BATCH_ROWS = 4_000
KILLS = 2
#: For throughput. The mock keeps 5 MB of a partition, so there are more partitions.
FAST_PARTITIONS = 16
FAST_MESSAGES = 4_000_000
LEAST = 300_000
WAIT = 600.0
METHOD = """\
Kafka is librdkafka's own mock cluster (one broker) in a process of its own: no real broker installs from PyPI, npm or
Debian. Messages have 100 bytes.
Exactly once: {messages:,} messages over {partitions} partitions, through a source, a channel and a map to a Parquet
sink, two instances each, on a standalone cluster of two machines; {kills} times an executor is killed (SIGKILL), and
then the driver, which is started again on its state.
Throughput: {fast:,} messages over {fast_partitions} partitions, produced before with lz4, from a source of two
instances to a counting sink chained behind it, on one local slot of two cores; from the first counted messages to the
last. The
bare consumer is one process that takes the same messages with confluent-kafka's `consume` and counts them. Both
alternate; broker, JVM and Python workers share the two cores. The median of all rounds.
"""


def value_of(number: int) -> bytes:
    return b"%012d" % number + b"x" * 88


def produce(cluster: KafkaCluster, topic: str, messages: int, partitions: int) -> None:
    from confluent_kafka import Producer

    producer = Producer(
        {
            "bootstrap.servers": cluster.servers,
            "enable.idempotence": True,
            "linger.ms": 100,
            "compression.type": "lz4",
            "log_level": 2,
        }
    )
    for number in range(messages):
        while True:
            try:
                producer.produce(topic, value_of(number), partition=number % partitions)
                break
            except BufferError:
                producer.poll(0.1)
        if number % 10_000 == 0:
            producer.poll(0)
    if producer.flush(60):
        raise RuntimeError("the mock cluster did not take all messages")


# Exactly once


class Driver:
    """The topology in a process of its own."""

    def __init__(self, folder: Path, cluster: KafkaCluster) -> None:
        paths = [str(HERE.parent / "src"), str(TESTS / "spark"), os.environ.get("PYTHONPATH", "")]
        script = TESTS / "spark" / "killable_kafka.py"
        command = [sys.executable, str(script), str(folder), cluster.servers, "standalone", str(KILLED_BATCH_ROWS)]
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(paths)}
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)

    def await_line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def kill_executor(self) -> None:
        for one in psutil.Process(self.process.pid).children(recursive=True):
            with suppress(psutil.Error):  # it may have ended by itself
                if "CoarseGrainedExecutorBackend" in " ".join(one.cmdline()):
                    one.kill()
                    return
        raise RuntimeError("there is no executor to kill")

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()


def written(folder: Path) -> list[tuple[int, int, int]]:
    """(partition, offset, number) in the order in which the rows were published."""
    files = sorted(folder.glob("part-*.parquet"), key=lambda path: path.name.split("-")[1:3])
    rows: list[tuple[int, int, int]] = []
    for path in files:
        table = pq.read_table(path).to_pydict()
        numbers = [int(value[:12]) for value in table["value"]]
        rows += zip(table["partition"], table["offset"], numbers, strict=True)
    return rows


def wrong_rows(rows: Sequence[tuple[int, int, int]]) -> tuple[int, int]:
    """How many messages are missing or there more than once, and how many are before one that they should follow."""
    counts = dict.fromkeys(range(MESSAGES), 0)
    last: dict[int, int] = {}
    disordered = 0
    for partition, offset, number in rows:
        counts[number] += 1
        disordered += offset <= last.get(partition, -1)
        last[partition] = max(offset, last.get(partition, -1))
    return sum(count != 1 for count in counts.values()), disordered


def exactly_once(folder: Path) -> tuple[int, int, int]:
    """Messages that are not there exactly once, those out of order, and how many kills there were."""
    kills = 0
    with kafka_cluster(numbers=PARTITIONS) as cluster:
        produce(cluster, "numbers", MESSAGES, PARTITIONS)
        for _ in range(KILLS):
            driver = Driver(folder, cluster)
            try:
                if driver.await_line() == "published":
                    driver.kill_executor()
                    time.sleep(3.0)
                    kills += 1
                kills += driver.process.poll() is None
            finally:
                driver.kill()
            done = len(list((folder / "out").glob("part-*.parquet")))
            print(f"  killed an executor and the driver; {done} files so far", flush=True)
        driver = Driver(folder, cluster)
        while (line := driver.await_line()) not in ("finished", ""):
            print(f"  {line}", flush=True)
        driver.process.communicate(timeout=WAIT)
    return (*wrong_rows(written(folder / "out")), kills)


# Throughput


def bare(servers: str) -> float:
    """Messages a second of a consumer that only counts."""
    from confluent_kafka import Consumer, TopicPartition

    fetching = {"fetch.queue.backoff.ms": 5}  # as the source has it
    consumer = Consumer(
        {"bootstrap.servers": servers, "group.id": "bare", "auto.offset.reset": "error", "log_level": 2, **fetching}
    )
    consumer.assign([TopicPartition("fast", number, 0) for number in range(FAST_PARTITIONS)])
    began = got = 0.0
    while got < FAST_MESSAGES:
        messages = consumer.consume(int(min(FAST_MESSAGES - got, 10_000)), 5.0)
        if not began:
            began, first = time.monotonic(), len(messages)
        got += len(messages)
    seconds = time.monotonic() - began
    consumer.close()
    return (FAST_MESSAGES - first) / seconds


def through_penstock(servers: str, folder: Path) -> float:
    """Messages a second that are counted at the sink."""
    from penstock import Settings, Topology, sinks, sources
    from penstock.cluster.local import LocalCluster
    from penstock.engine.spark.host import SparkHost
    from penstock.engine.state.folder import StateFolder
    from penstock.engine.topology import SparkTopology

    topology = Topology("fast")
    messages = topology.source("messages", sources.kafka(servers, "fast", follow=False), instances=2)
    topology.sink("count", sinks.noop(), inputs=[messages], instances=2)
    settings = Settings()
    provider = LocalCluster(slots=1, cores=2, task_threads=24)
    with (
        SparkHost("fast", provider, settings, folder / "logs", []) as host,
        SparkTopology(topology.definition(), host, StateFolder.hold(str(folder / "state")), settings) as run,
    ):
        seen: list[tuple[float, int]] = []
        while not seen or seen[-1][1] < FAST_MESSAGES:
            run.check()
            counted = run.statistics.totals("count")[0]
            if counted and (not seen or counted > seen[-1][1]):
                seen.append((time.monotonic(), counted))
            time.sleep(0.01)
    (began, first), (ended, last) = seen[0], seen[-1]
    print(f"  batches: {[two[1] - one[1] for one, two in pairwise(seen)]}", flush=True)
    return (last - first) / (ended - began)


def in_process(what: str, *arguments: str) -> float:
    """In a process of its own: Spark is started anew every time."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(HERE.parent / "src"), str(HERE)])}
    command = [sys.executable, __file__, "--measure", what, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False, timeout=WAIT)
    if done.returncode:
        raise RuntimeError(done.stderr[-2_000:])
    *before, figure = done.stdout.splitlines()
    print("\n".join(before), flush=True)
    return float(figure)


def throughput(rounds: int) -> tuple[list[float], list[float]]:
    penstock, alone = [], []
    for index in range(rounds):
        with kafka_cluster(fast=FAST_PARTITIONS) as cluster, tempfile.TemporaryDirectory(prefix="kafka-") as folder:
            produce(cluster, "fast", FAST_MESSAGES, FAST_PARTITIONS)
            ways = [(alone, ["bare", cluster.servers]), (penstock, ["penstock", cluster.servers, folder])]
            for figures, way in ways if index % 2 else ways[::-1]:
                figures.append(in_process(*way))
                print(f"  {way[0]}: {figures[-1]:,.0f} messages/s", flush=True)
    return penstock, alone


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--measure", nargs="+")
    arguments = parser.parse_args()
    if arguments.measure:
        what, servers, *rest = arguments.measure
        print(bare(servers) if what == "bare" else through_penstock(servers, Path(rest[0])))
        return 0
    print("throughput", flush=True)
    penstock, alone = throughput(arguments.rounds)
    print("exactly once", flush=True)
    with tempfile.TemporaryDirectory(prefix="kafka-", ignore_cleanup_errors=True) as folder:
        wrong, disordered, kills = exactly_once(Path(folder))
    figure, beside = statistics.median(penstock), statistics.median(alone)
    lines = [
        METHOD.format(
            messages=MESSAGES,
            partitions=PARTITIONS,
            kills=KILLS,
            fast=FAST_MESSAGES,
            fast_partitions=FAST_PARTITIONS,
        ),
        f"| {MESSAGES:,} messages, {kills} processes killed | |",
        "| --- | --- |",
        f"| not there exactly once | {wrong:,} |",
        f"| out of order in their partition | {disordered:,} |",
        "",
        "| messages/s of 100 bytes | median | all rounds |",
        "| --- | --- | --- |",
        f"| Penstock, source to counting sink | {figure:,.0f} | {', '.join(f'{one:,.0f}' for one in penstock)} |",
        f"| a bare confluent-kafka consumer | {beside:,.0f} | {', '.join(f'{one:,.0f}' for one in alone)} |",
        "",
    ]
    bars = [
        Bar("messages that are not at the sink exactly once", wrong, 0, at_most=True),
        Bar("messages out of order in their partition", disordered, 0, at_most=True),
        Bar("processes killed in the middle", kills, 2 * KILLS, at_most=False),
        Bar("messages/s from source to counting sink", figure, LEAST, at_most=False),
    ]
    print("\n".join(lines))
    write_results("kafka", lines, bars, machine())
    return finish(bars)


if __name__ == "__main__":
    sys.exit(main())
