"""Ranges of a Kafka partition as an executor reads them, from librdkafka's own mock cluster."""

from __future__ import annotations

import json
import math
import socket
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from kafka_cluster import KafkaCluster, kafka_cluster

from penstock import sinks, sources
from penstock.errors import PenstockError
from penstock.kafka_client import Brokers
from penstock.sinks.kafka_sink import KafkaWriter
from penstock.sources import kafka_messages

confluent_kafka = pytest.importorskip("confluent_kafka")
KafkaError, KafkaException = confluent_kafka.KafkaError, confluent_kafka.KafkaException


@pytest.fixture(scope="module")
def cluster() -> Iterator[KafkaCluster]:
    with kafka_cluster(numbers=2, words=1, orders=1, other=1, short=1) as made:
        made.produce("numbers", [(n % 2, b"%d" % n) for n in range(60_000)])
        yield made


def values(spec: sources.KafkaSource, load: list[object]) -> list[object]:
    return [value for batch in spec.read(load, None) for value in batch.column("value").to_pylist()]


def test_a_range_has_exactly_its_messages_in_their_order(cluster: KafkaCluster) -> None:
    spec = sources.kafka(cluster.servers, "numbers")
    assert values(spec, ["numbers", 1, 0, 5]) == [b"%d" % n for n in range(1, 11, 2)]
    # The next range goes on with what was fetched, the same one and an earlier one are fetched again.
    assert values(spec, ["numbers", 1, 5, 20_005]) == [b"%d" % n for n in range(11, 40_011, 2)]
    assert values(spec, ["numbers", 1, 5, 20_005]) == [b"%d" % n for n in range(11, 40_011, 2)]
    assert values(spec, ["numbers", 1, 2, 4]) == [b"5", b"7"]
    assert values(spec, ["numbers", 0, 29_998, 30_000]) == [b"59996", b"59998"]


def test_what_is_known_of_a_message_is_in_columns(cluster: KafkaCluster) -> None:
    cluster.produce("words", [(0, b"one"), (0, None), (0, "drei \u00e4".encode())], key=b"k", headers=[("h", b"1")])
    metadata = ["key", "topic", "partition", "offset", "timestamp", "headers"]
    spec = sources.kafka(cluster.servers, "words", value="text", metadata=metadata)
    [batch] = spec.read(["words", 0, 0, 3], None)
    assert batch.schema == spec.schema
    rows = batch.to_pylist()
    assert [row["value"] for row in rows] == ["one", None, "drei \u00e4"]
    assert [row["offset"] for row in rows] == [0, 1, 2]
    assert {(row["key"], row["topic"], row["partition"]) for row in rows} == {(b"k", "words", 0)}
    assert rows[0]["headers"] == [{"name": "h", "value": b"1"}]
    assert rows[0]["timestamp"] is not None


def test_objects_become_columns_and_bad_ones_go_elsewhere(cluster: KafkaCluster) -> None:
    good = [b'{"id": %d,\n "item": "x"}' % n for n in range(5)]
    texts = [*good[:2], b"no JSON", good[2], b'{"id": "seven"}', None, b" ", good[3], b"null", good[4], b"{} {}"]
    cluster.produce("orders", [(0, text) for text in texts])
    spec = sources.kafka(cluster.servers, "orders", value="json", schema="id long, item string", metadata=["offset"])
    bad: list[tuple[str, str]] = []
    rows = pa.Table.from_batches(spec.read(["orders", 0, 0, len(texts)], lambda *one: bad.append(one))).to_pylist()
    assert [(row["id"], row["offset"]) for row in rows] == [(0, 0), (1, 1), (2, 3), (3, 7), (4, 9)]
    assert [row for row, _ in bad] == ["no JSON", '{"id": "seven"}', "", " ", "null", "{} {}"]
    assert '"seven" is no long' in bad[1][1]
    with pytest.raises(PenstockError, match=r"offset 2 in partition 0 of \"orders\"") as caught:
        list(spec.read(["orders", 0, 0, len(texts)], None))
    assert caught.value.name == "BAD_ROW"


def test_text_must_be_utf8(cluster: KafkaCluster) -> None:
    cluster.produce("other", [(0, b"good"), (0, b"\xff\xfe"), (0, b"too")])
    spec = sources.kafka(cluster.servers, "other", value="text")
    bad: list[tuple[str, str]] = []
    read = [batch.column("value").to_pylist() for batch in spec.read(["other", 0, 0, 3], lambda *one: bad.append(one))]
    assert read == [["good", "too"]]
    assert len(bad) == 1


def test_offsets_that_are_not_there_are_lost_data(cluster: KafkaCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster.produce("short", [(0, b"x")] * 10)
    monkeypatch.setattr(kafka_messages, "STALLED_SECONDS", 1.0)
    spec = sources.kafka(cluster.servers, "short")
    for load in (["short", 0, 50, 60], ["short", 0, 5, 60]):
        with pytest.raises(PenstockError) as caught:
            values(spec, load)
        assert caught.value.name == "KAFKA_DATA_LOST"


def test_retention_that_was_faster_is_an_error(cluster: KafkaCluster) -> None:
    """The mock keeps about 5 MB of a partition."""
    with kafka_cluster(large=1) as made:
        for _ in range(8):
            made.produce("large", [(0, b"y" * 10_000)] * 100)
        low = Brokers(made.servers, {}).earliest([("large", 0)])["large", 0]
        assert low > 0
        spec = sources.kafka(made.servers, "large")
        assert len(values(spec, ["large", 0, low, 800])) == 800 - low
        with pytest.raises(PenstockError) as caught:
            values(spec, ["large", 0, 0, 800])
        assert caught.value.name == "KAFKA_DATA_LOST"


def test_brokers_and_topics_are_looked_for_at_the_door(cluster: KafkaCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(PenstockError) as caught:
        sources.kafka(cluster.servers, ["numbers", "nothing"]).check(None)
    assert caught.value.name == "KAFKA_UNKNOWN_TOPIC"
    assert '"nothing"' in caught.value.message
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        monkeypatch.setattr("penstock.kafka_client.SECONDS", 0.5)
        with pytest.raises(PenstockError) as caught:
            sources.kafka(f"127.0.0.1:{unused.getsockname()[1]}", "numbers").check(None)
    assert caught.value.name == "KAFKA_UNREACHABLE"


# With a consumer of the test's own: what the mock cluster cannot leave out or refuse


class Said:
    """A message, or what the consumer says instead of one."""

    def __init__(self, offset: int, code: int | None = None) -> None:
        self._offset, self._code = offset, code

    def offset(self) -> int:
        return self._offset

    def error(self) -> Any:
        return None if self._code is None else KafkaError(self._code)

    def topic(self) -> str:
        return "t"

    def value(self) -> bytes:
        return b"%d" % self._offset


class Scripted:
    """A consumer that says one thing after the other."""

    def __init__(self, *said: list[Said], low: Any = 0) -> None:
        self.said, self.low = list(said), low

    def assign(self, partitions: object) -> None:
        pass

    def consume(self, count: int, seconds: float) -> list[Said]:
        return self.said.pop(0)

    def get_watermark_offsets(self, where: object, timeout: float) -> Any:
        if isinstance(self.low, Exception):
            raise self.low
        return None if self.low is None else (self.low, 100)

    def close(self) -> None:
        pass


def read_from(consumer: Scripted, monkeypatch: pytest.MonkeyPatch, first: int, stop: int) -> list[object]:
    monkeypatch.setattr(kafka_messages.MessageReader, "_consumer", lambda self: consumer)
    monkeypatch.setattr(kafka_messages, "_CONSUMERS", kafka_messages._Consumers())
    return values(sources.kafka("nowhere:9092", "t"), ["t", 0, first, stop])


def test_a_range_whose_tail_has_no_messages_is_complete(monkeypatch: pytest.MonkeyPatch) -> None:
    """Offsets 3 and 4 are of a transaction that was aborted."""
    assert read_from(Scripted([Said(0), Said(1), Said(2)], [Said(5), Said(6)]), monkeypatch, 0, 5) == [b"0", b"1", b"2"]
    assert read_from(Scripted([Said(5)]), monkeypatch, 0, 5) == []


def test_no_messages_are_no_rows() -> None:
    assert list(kafka_messages.rows_of([], "bytes", kafka_messages.PAYLOADS["bytes"], [], None)) == []


@pytest.mark.parametrize("name", kafka_messages.TRANSIENT + kafka_messages.OF_GROUPS)
def test_what_may_pass_or_concerns_only_groups_does_not_end_the_reading(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = Scripted([Said(0)], [Said(0, getattr(KafkaError, name))], [Said(1)])
    assert read_from(said, monkeypatch, 0, 2) == [b"0", b"1"]


def test_what_does_not_pass_ends_the_reading(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(PenstockError) as caught:
        read_from(Scripted([Said(0, KafkaError.TOPIC_AUTHORIZATION_FAILED)]), monkeypatch, 0, 2)
    assert caught.value.name == "KAFKA_UNREACHABLE"


@pytest.mark.parametrize("low", [None, KafkaException(KafkaError(KafkaError._TRANSPORT))])
def test_a_beginning_that_nobody_tells_is_a_named_error(low: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(PenstockError) as caught:
        read_from(Scripted([Said(3)], low=low), monkeypatch, 0, 4)
    assert caught.value.name == "KAFKA_UNREACHABLE"


@pytest.mark.parametrize(
    ("low", "name"),
    [(KafkaException(KafkaError(KafkaError._TRANSPORT)), "KAFKA_UNREACHABLE"), (0, "KAFKA_UNREACHABLE")],
)
def test_an_end_of_before_does_not_say_that_data_is_lost(low: Any, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A kept consumer was told where the partition ended then. Now there is more, and the broker is away."""
    monkeypatch.setattr(kafka_messages, "STALLED_SECONDS", -1.0)
    with pytest.raises(PenstockError) as caught:
        read_from(Scripted([Said(3, KafkaError._PARTITION_EOF)], low=low), monkeypatch, 3, 50)
    assert caught.value.name == name


def test_a_user_may_name_the_group(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[dict[str, Any]] = []
    monkeypatch.setattr("confluent_kafka.Consumer", made.append)
    for config in ({}, {"group.id": "mine"}):
        spec = sources.kafka("nowhere:9092", "t", config=config)
        kafka_messages.MessageReader(spec.servers, spec.config, "t", 0)._consumer()
    assert [one["group.id"] for one in made] == ["penstock", "mine"]
    assert not any(one["enable.auto.commit"] for one in made)


def test_a_setting_that_librdkafka_refuses_is_a_mistake_of_the_declaration() -> None:
    config = {"fetch.min.bytes": "many"}
    with pytest.raises(PenstockError) as caught:
        sources.kafka("nowhere:9092", "t", config=config).check(None)
    assert caught.value.name == "BAD_SOURCE"
    assert "fetch.min.bytes" in caught.value.message
    with pytest.raises(PenstockError) as caught:
        sinks.kafka("nowhere:9092", "t", config={"message.max.bytes": "many"}).check("out", "i", False, None)
    assert caught.value.name == "BAD_SINK"
    assert "message.max.bytes" in caught.value.message


def test_messages_are_json_also_where_a_number_is_not_finite() -> None:
    strict = {"parse_constant": lambda name: pytest.fail(f"{name} is no JSON")}
    floats = pa.array([1.5, math.nan, math.inf, -math.inf])
    nested = pa.array([[0.5], [math.nan], [math.inf], None])
    batch = pa.record_batch({"x": floats, "more": pa.StructArray.from_arrays([nested], ["y"])})
    rows = KafkaWriter(sinks.kafka("nowhere:9092", "t"))._values(batch)
    assert [json.loads(row, **strict) for row in rows] == [
        {"x": 1.5, "more": {"y": [0.5]}},
        {"x": "NaN", "more": {"y": ["NaN"]}},
        {"x": "Infinity", "more": {"y": ["Infinity"]}},
        {"x": "-Infinity", "more": {"y": None}},
    ]
    single = KafkaWriter(sinks.kafka("nowhere:9092", "t", value="x"))._values(batch)
    assert single == [b"1.5", b'"NaN"', b'"Infinity"', b'"-Infinity"']
