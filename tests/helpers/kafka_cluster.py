"""A Kafka cluster that other processes can connect to: librdkafka's own mock, in a process that can be killed.

The mock is part of librdkafka, which confluent-kafka brings along. It speaks Kafka's protocol: producing (idempotent
too), fetching, listing offsets. It keeps about 5 MB of a partition's newest batches, and knows no timestamps."""

from __future__ import annotations

import ctypes
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_POINTER = ctypes.c_void_p
_FUNCTIONS: dict[str, tuple[list[Any], Any]] = {
    "rd_kafka_conf_new": ([], _POINTER),
    "rd_kafka_conf_set": ([_POINTER, ctypes.c_char_p, ctypes.c_char_p, _POINTER, ctypes.c_size_t], ctypes.c_int),
    "rd_kafka_new": ([ctypes.c_int, _POINTER, ctypes.c_char_p, ctypes.c_size_t], _POINTER),
    "rd_kafka_mock_cluster_new": ([_POINTER, ctypes.c_int], _POINTER),
    "rd_kafka_mock_cluster_bootstraps": ([_POINTER], ctypes.c_char_p),
    "rd_kafka_mock_topic_create": ([_POINTER, ctypes.c_char_p, ctypes.c_int, ctypes.c_int], ctypes.c_int),
}


def _library() -> Any:
    import confluent_kafka

    folder = Path(confluent_kafka.__file__).parent.parent / "confluent_kafka.libs"
    library = ctypes.CDLL(str(next(folder.glob("librdkafka*.so*"))))
    for name, (arguments, result) in _FUNCTIONS.items():
        function = getattr(library, name)
        function.argtypes, function.restype = arguments, result
    return library


def serve(topics: Sequence[str]) -> None:
    """`topics` are written as name=partitions. Prints the address, and serves until standard input is closed."""
    library, text = _library(), ctypes.create_string_buffer(512)
    conf = library.rd_kafka_conf_new()
    library.rd_kafka_conf_set(conf, b"log_level", b"0", text, 512)
    client = library.rd_kafka_new(0, conf, text, 512)
    cluster = library.rd_kafka_mock_cluster_new(client, 1)
    for topic in topics:
        name, _, partitions = topic.partition("=")
        library.rd_kafka_mock_topic_create(cluster, name.encode(), int(partitions), 1)
    print(library.rd_kafka_mock_cluster_bootstraps(cluster).decode(), flush=True)
    sys.stdin.read()


@dataclass
class KafkaCluster:
    servers: str
    process: subprocess.Popen[str]

    def produce(self, topic: str, messages: Sequence[tuple[int, bytes | None]], **more: Any) -> None:
        """(partition, value) of each, in this order."""
        from confluent_kafka import Producer

        producer = Producer(
            {"bootstrap.servers": self.servers, "enable.idempotence": True, "linger.ms": 20, "log_level": 2}
        )
        for index, (partition, value) in enumerate(messages):
            while True:
                try:
                    producer.produce(topic, value, partition=partition, **more)
                    break
                except BufferError:
                    producer.poll(0.1)
            if index % 1000 == 0:
                producer.poll(0)
        assert producer.flush(60) == 0

    def consume(self, topic: str, partitions: int) -> list[Any]:
        """All messages that are there now."""
        from confluent_kafka import Consumer, TopicPartition

        consumer = Consumer(
            {
                "bootstrap.servers": self.servers,
                "group.id": "test",
                "enable.partition.eof": True,
                "auto.offset.reset": "earliest",
                "log_level": 2,
            }
        )
        consumer.assign([TopicPartition(topic, number, 0) for number in range(partitions)])
        found, ended, deadline = [], 0, time.monotonic() + 60
        while ended < partitions and time.monotonic() < deadline:
            message = consumer.poll(1.0)
            if message is not None and message.error() is None:
                found.append(message)
            elif message is not None:
                ended += 1
        consumer.close()
        return found


@contextmanager
def kafka_cluster(**topics: int) -> Iterator[KafkaCluster]:
    """Topics by name, with their numbers of partitions."""
    process = subprocess.Popen(
        [sys.executable, __file__, *(f"{name}={partitions}" for name, partitions in topics.items())],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None and process.stdout is not None
    try:
        yield KafkaCluster(process.stdout.readline().strip(), process)
    finally:
        process.kill()
        process.wait()
        process.stdin.close()
        process.stdout.close()


if __name__ == "__main__":
    serve(sys.argv[1:])
