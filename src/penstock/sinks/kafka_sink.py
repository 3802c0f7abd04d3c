"""A sink that writes every row as a message to a Kafka topic. A bundle waits until the cluster has all its messages
before its batch counts as written. A batch that is run again after a failure is written again: every row is there at
least once."""

from __future__ import annotations

import base64
import json
import math
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from typing import Any

import pyarrow as pa

from penstock.errors import Location, PenstockError
from penstock.kafka_client import Brokers, check_servers, library, settings_of
from penstock.kinds import SinkKind
from penstock.sinks.mistakes import bad_sink

#: The longest that a bundle waits until the cluster has its messages.
FLUSH_SECONDS = 120.0
#: Messages between two looks at what became of those before.
LOOK_MESSAGES = 1_000


def kafka(
    servers: str | Sequence[str],
    topic: str,
    *,
    value: str | None = None,
    key: str | None = None,
    headers: Sequence[str] = (),
    config: Mapping[str, Any] | None = None,
) -> KafkaSink:
    """A sink that writes every row as a message to a Kafka topic. `value`, `key` and `headers` name columns. Without a
    `value`, a message holds all other columns as a JSON object. Messages of one key go to one partition. The producer
    is idempotent: a message that is sent again after a network error is there once. A batch that is run again after a
    failure is there twice. `config` is handed to librdkafka: security, compression, batching."""
    config = dict(config or {})
    if not isinstance(topic, str) or not topic:
        raise bad_sink(f"the topic is {topic!r}.", "Give the name of a topic.")
    names = [*([value] if value is not None else []), *([key] if key is not None else []), *headers]
    if not all(isinstance(name, str) and name for name in names) or isinstance(headers, str):
        raise bad_sink(
            "value, key or headers of sinks.kafka are not names of columns.",
            "Give the name of a column as value and as key, and a list of names as headers.",
        )
    return KafkaSink(check_servers(servers, config, bad_sink), topic, value, key, tuple(headers), config)


@dataclass(frozen=True)
class KafkaSink(SinkKind):
    """Its config may hold a password, so it does not appear where the sink is printed."""

    servers: str
    topic: str
    value: str | None
    key: str | None
    headers: tuple[str, ...]
    config: Mapping[str, Any] = field(repr=False)

    kind = "kafka"

    def describe(self) -> Mapping[str, Any]:
        return {
            "kind": self.kind,
            "servers": self.servers,
            "topic": self.topic,
            "value": self.value,
            "key": self.key,
            "headers": list(self.headers),
            "config": sorted(self.config),
        }

    def check_rows(self, schema: pa.Schema, where: Location) -> None:
        for name in [self.value, self.key, *self.headers]:
            if name is not None and name not in schema.names:
                raise PenstockError(
                    "BAD_SINK",
                    f'the Kafka sink names the column "{name}", which its rows do not have.',
                    f"Its rows have the columns: {', '.join(schema.names)}.",
                    where,
                )

    def check(self, sink: str, identity: str, goes_on: bool, where: Location | None) -> None:
        try:
            Brokers(self.servers, self.config, "BAD_SINK").partitions([self.topic])
        except PenstockError as error:
            raise PenstockError(error.name, f'the sink "{sink}": {error.message}', error.hint, where) from None

    def bundle_function(self) -> Callable[[pa.RecordBatch], Any]:
        return KafkaWriter(self)


@dataclass(frozen=True)
class KafkaWriter:
    """Runs on the executors."""

    spec: KafkaSink

    def __call__(self, batch: pa.RecordBatch) -> None:
        spec, producer, refused = self.spec, _producer(self.spec), _Refused()
        keys = [None] * batch.num_rows if spec.key is None else batch.column(spec.key).to_pylist()
        headers = batch.select(list(spec.headers)).to_pylist() if spec.headers else [None] * batch.num_rows
        for index, (key, value, beside) in enumerate(zip(keys, self._values(batch), headers, strict=True)):
            pairs = None if beside is None else [(name, _as_bytes(one)) for name, one in beside.items()]
            self._produce(producer, refused, key=_as_bytes(key), value=value, headers=pairs)
            if index % LOOK_MESSAGES == 0:
                producer.poll(0)
        left = producer.flush(FLUSH_SECONDS)
        if left or refused.why:
            _drop(producer)
            raise self._problem(refused.why or f"{left:,} messages were not taken within {FLUSH_SECONDS:g} s")

    def _values(self, batch: pa.RecordBatch) -> list[bytes | None]:
        spec = self.spec
        if spec.value is not None:
            return [_as_bytes(one) for one in batch.column(spec.value).to_pylist()]
        named = {spec.key, *spec.headers}
        rest = batch.select([name for name in batch.schema.names if name not in named])
        return [_as_json(row) for row in rest.to_pylist()]

    def _produce(self, producer: Any, refused: _Refused, **message: Any) -> None:
        kafka = library()
        while True:
            try:
                producer.produce(self.spec.topic, on_delivery=refused, **message)
                return
            except BufferError:  # its queue is full
                producer.poll(0.1)
            except kafka.KafkaException as error:
                _drop(producer)
                raise self._problem(error) from None

    def _problem(self, why: object) -> PenstockError:
        return PenstockError(
            "KAFKA_NOT_WRITTEN",
            f'the Kafka topic "{self.spec.topic}" at {self.spec.servers} did not take a message: {why}.',
            "Is the cluster up, may this user write to the topic, and are messages smaller than its limit? Started "
            "again with the same --state, the topology writes the rows of this batch anew.",
        )


class _Refused:
    """Hears what became of messages; keeps the first reason for which one was not taken."""

    def __init__(self) -> None:
        self.why = ""

    def __call__(self, error: Any, message: Any) -> None:
        if error is not None and not self.why:
            self.why = str(error.str())


_PRODUCERS: dict[Any, Any] = {}
_MAKING = threading.Lock()


def _producer(spec: KafkaSink) -> Any:
    """The producer of this worker process; it stays connected."""
    key = (spec.servers, repr(sorted(spec.config.items())))
    with _MAKING:
        if key not in _PRODUCERS:
            mine = {"enable.idempotence": True, "acks": "all"}
            ahead = {"linger.ms": 5, "compression.type": "lz4"}
            _PRODUCERS[key] = library().Producer({**ahead, **settings_of(spec.servers, spec.config), **mine})
        return _PRODUCERS[key]


def _drop(producer: Any) -> None:
    """Not to be used again: after a fatal error it refuses every message. What still waits in it is not sent later,
    beside the attempt that follows."""
    with _MAKING:
        for key in [key for key, one in _PRODUCERS.items() if one is producer]:
            del _PRODUCERS[key]


def _as_bytes(value: Any) -> bytes | None:
    if value is None or isinstance(value, bytes):
        return value
    return value.encode() if isinstance(value, str) else _as_json(value)


def _as_json(value: Any) -> bytes:
    try:
        return json.dumps(value, default=_plain, allow_nan=False).encode()
    except ValueError:
        return json.dumps(_with_finite_numbers(value), default=_plain, allow_nan=False).encode()


def _with_finite_numbers(value: Any) -> Any:
    """JSON has no number for NaN and the infinities: their names as text. Rows nest them in structs, lists and maps."""
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, dict):
        return {name: _with_finite_numbers(one) for name, one in value.items()}
    return [_with_finite_numbers(one) for one in value] if isinstance(value, list | tuple) else value


def _plain(value: Any) -> Any:
    """What JSON has no way to write: bytes as base64, times as ISO 8601, everything else as text."""
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    return value.isoformat() if isinstance(value, date | datetime) else str(value)
