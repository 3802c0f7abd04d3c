"""How an executor reads a range of a Kafka partition, and makes rows of its messages.

Each partition has a consumer of its own, which stays open in the worker process. Where the next range begins behind the
last one, it goes on with what it has fetched meanwhile.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from penstock.errors import PenstockError
from penstock.kafka_client import SECONDS, library, settings_of, unreachable
from penstock.kinds import BadRow
from penstock.sources.bad_rows import BadRows, in_schema, keep_good, together
from penstock.sources.json_lines import parse_lines, suspects_of

#: Messages that are taken from a consumer at once.
MESSAGES = 16_384
#: The longest that one such call waits. A range without gaps is complete before that.
WAIT = 0.25
#: Without a message for so long, reading has failed; Spark then tries again.
STALLED_SECONDS = 60.0
#: What a consumer calls its group, unless the user does: librdkafka wants a name, but no group is joined.
GROUP = "penstock"
#: Open consumers that a worker process keeps.
MOST_CONSUMERS = 64
#: How a consumer fetches: so much ahead at most, and on as soon as there is room again (librdkafka waits a second).
FETCHING: Mapping[str, Any] = {
    "queued.max.messages.kbytes": 8_192,
    "fetch.queue.backoff.ms": 5,
    "fetch.wait.max.ms": 100,
    "check.crcs": True,
}
#: Errors that a consumer only tells of: it tries again by itself. (`KafkaError.retriable` is never true of them.)
TRANSIENT = (
    "_ALL_BROKERS_DOWN",
    "_RESOLVE",
    "_TIMED_OUT",
    "_TRANSPORT",
    "BROKER_NOT_AVAILABLE",
    "FENCED_LEADER_EPOCH",
    "KAFKA_STORAGE_ERROR",
    "LEADER_NOT_AVAILABLE",
    "NETWORK_EXCEPTION",
    "NOT_LEADER_FOR_PARTITION",
    "OFFSET_NOT_AVAILABLE",
    "REPLICA_NOT_AVAILABLE",
    "REQUEST_TIMED_OUT",
    "UNKNOWN_LEADER_EPOCH",
)
#: Errors about a consumer group, which is not used.
OF_GROUPS = (
    "COORDINATOR_LOAD_IN_PROGRESS",
    "COORDINATOR_NOT_AVAILABLE",
    "GROUP_AUTHORIZATION_FAILED",
    "NOT_COORDINATOR",
)

#: What a message's value becomes, where it is no object with columns of its own.
PAYLOADS: Mapping[str, pa.Schema] = {
    "bytes": pa.schema([("value", pa.binary())]),
    "text": pa.schema([("value", pa.string())]),
    "json": pa.schema([]),
}
_HEADERS = pa.list_(pa.struct([("name", pa.string()), ("value", pa.binary())]))
#: What is known of a message beside its value: the column's type, and how it is asked for.
METADATA: Mapping[str, tuple[pa.DataType, Callable[[Any], Any]]] = {
    "key": (pa.binary(), lambda message: message.key()),
    "topic": (pa.string(), lambda message: message.topic()),
    "partition": (pa.int32(), lambda message: message.partition()),
    "offset": (pa.int64(), lambda message: message.offset()),
    "timestamp": (pa.timestamp("us", "UTC"), lambda message: _microseconds(message.timestamp())),
    "headers": (_HEADERS, lambda message: _headers(message.headers())),
}


def row_schema(payload: pa.Schema, metadata: Sequence[str]) -> pa.Schema:
    return pa.schema([*payload, *(pa.field(name, METADATA[name][0]) for name in metadata)])


def data_lost(topic: str, partition: int, what: str) -> PenstockError:
    return PenstockError(
        "KAFKA_DATA_LOST",
        f'messages of partition {partition} of "{topic}" are gone, and were not read yet: {what}.',
        "The cluster's retention has deleted them, or the topic was deleted and created again. To go on without them, "
        "start with a new state folder, or give up the position of the source with --forget and the name of the "
        "source. To keep it from happening again, make the retention longer, or give the source more instances.",
    )


# Reading


class _Consumers:
    """Consumers of this worker process that nobody uses at the moment, with the offset that each gives next."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._idle: dict[Any, tuple[Any, int]] = {}

    def take(self, key: Any) -> tuple[Any, int] | None:
        with self._lock:
            return self._idle.pop(key, None)

    def give_back(self, key: Any, consumer: Any, position: int) -> None:
        with self._lock:
            old = [self._idle.pop(key)] if key in self._idle else []
            self._idle[key] = consumer, position
            while len(self._idle) > MOST_CONSUMERS:
                old.append(self._idle.pop(next(iter(self._idle))))
        for one, _ in old:
            one.close()


_CONSUMERS = _Consumers()


@dataclass(frozen=True)
class MessageReader:
    """Reads one partition."""

    servers: str
    config: Mapping[str, Any]
    topic: str
    partition: int

    def messages(self, first: int, stop: int) -> Iterator[list[Any]]:
        """The messages with offsets [first, stop), in their order. Some offsets may have none: compaction and
        transactions leave gaps."""
        key = (self.servers, repr(sorted(self.config.items())), self.topic, self.partition)
        consumer, position = _CONSUMERS.take(key) or (self._consumer(), -1)
        try:
            if position != first:
                consumer.assign([library().TopicPartition(self.topic, self.partition, first)])
            position = first
            heard, ended_at = time.monotonic(), None
            while position < stop:
                got = consumer.consume(min(stop - position, MESSAGES), WAIT)
                messages, end = self._sorted_out(got, position)
                ended_at = end if end is not None or messages else ended_at
                if messages:
                    if position == first and messages[0].offset() > first:
                        self._check_beginning(consumer, first)
                    position, heard = messages[-1].offset() + 1, time.monotonic()
                    if position > stop:  # the last offsets of the range have no messages
                        messages = [one for one in messages if one.offset() < stop]
                    if messages:
                        yield messages
                if ended_at is not None and ended_at >= stop:
                    position = max(position, ended_at)  # the last offsets of the range have no messages
                elif time.monotonic() - heard > STALLED_SECONDS:
                    raise self._stalled(consumer, position, stop, ended_at)
        except BaseException:
            consumer.close()
            raise
        _CONSUMERS.give_back(key, consumer, position)

    def _consumer(self) -> Any:
        mine = {
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "auto.offset.reset": "error",
            "enable.partition.eof": True,
        }
        return library().Consumer({**FETCHING, "group.id": GROUP, **settings_of(self.servers, self.config), **mine})

    def _sorted_out(self, got: list[Any], position: int) -> tuple[list[Any], int | None]:
        """The messages, and where the partition ends if the consumer has come there."""
        if not [one for one in got if one.error() is not None]:
            return got, None
        codes = library().KafkaError
        ended_at = None
        for one in got:
            error = one.error()
            if error is None:
                continue
            if error.code() == codes._PARTITION_EOF:
                ended_at = one.offset()
            elif error.code() in (codes._AUTO_OFFSET_RESET, codes.OFFSET_OUT_OF_RANGE):
                raise data_lost(self.topic, self.partition, f"offset {position:,} is not there ({error.str()})")
            elif error.name() not in TRANSIENT + OF_GROUPS:
                raise unreachable(self.servers, error)
        return [one for one in got if one.error() is None], ended_at

    def _check_beginning(self, consumer: Any, first: int) -> None:
        """The first messages of a range are not there: compaction may have taken them, retention must not."""
        begins, _ = self._bounds(consumer)
        if begins > first:
            raise data_lost(self.topic, self.partition, f"it begins at offset {begins:,}, and {first:,} is next")

    def _bounds(self, consumer: Any) -> tuple[int, int]:
        """Where the partition begins and ends, by its broker; KAFKA_UNREACHABLE if that does not answer."""
        where = library().TopicPartition(self.topic, self.partition)
        try:
            offsets = consumer.get_watermark_offsets(where, timeout=SECONDS)
        except library().KafkaException as error:
            raise unreachable(self.servers, error) from None
        if offsets is None:
            what = f'where partition {self.partition} of "{self.topic}" begins and ends was not answered'
            raise unreachable(self.servers, f"{what} within {SECONDS:g} s")
        begins, ends = offsets
        return int(begins), int(ends)

    def _stalled(self, consumer: Any, position: int, stop: int, ended_at: int | None) -> PenstockError:
        # That the partition ends early may be what a kept consumer was told before the range was written.
        if ended_at is not None and (ends := self._bounds(consumer)[1]) < stop:
            return data_lost(self.topic, self.partition, f"it ends at offset {ends:,}, and went on to {stop:,}")
        what = f'no message of partition {self.partition} of "{self.topic}" from offset {position:,} on came'
        return unreachable(self.servers, f"{what} for {STALLED_SECONDS:g} s")


# Rows


def rows_of(
    messages: Sequence[Any], value: str, payload: pa.Schema, metadata: Sequence[str], bad_row: BadRow | None
) -> Iterator[pa.RecordBatch]:
    """The messages as rows, in their order. A bad one goes to `bad_row`, and without that raises BAD_ROW."""
    if not messages:
        return
    values = [message.value() for message in messages]
    schema = row_schema(payload, metadata)
    beside = [pa.array(map(METADATA[name][1], messages), METADATA[name][0]) for name in metadata]
    suspects = suspects_of(payload)
    bad = BadRows(messages[0].topic(), bad_row)

    def convert(first: int, count: int) -> pa.RecordBatch:
        columns = _columns(values[first : first + count], value, payload)
        return in_schema([*columns, *(column.slice(first, count) for column in beside)], schema)

    def report(index: int, error: str) -> None:
        message, text = messages[index], values[index]
        why = suspects.explain(text, error) if value == "json" and text is not None else error
        place = f"offset {message.offset():,} in partition {message.partition()}"
        bad.report((text or b"").decode("utf-8", "replace"), why, lambda: place)

    yield from together(keep_good(convert, 0, len(messages), report))


def _columns(values: Sequence[bytes | None], value: str, payload: pa.Schema) -> list[pa.Array]:
    if value != "json":
        column = pa.array(values, pa.binary())
        return [column if value == "bytes" else column.cast(pa.string())]  # text must be UTF-8
    if None in values:
        raise pa.ArrowInvalid("the message has no value")
    # Line breaks between the parts of an object mean nothing, and there are none within a string.
    lines = [one.replace(b"\n", b" ") if b"\n" in one else one for one in values if one is not None]
    if not all(map(bytes.strip, lines)):
        raise pa.ArrowInvalid("the message is empty")
    return list(parse_lines(lines, payload).columns)


def _microseconds(timestamp: tuple[int, int]) -> int | None:
    kind, milliseconds = timestamp
    return milliseconds * 1000 if kind else None


def _headers(headers: Sequence[tuple[str, bytes | None]] | None) -> list[dict[str, Any]] | None:
    return None if headers is None else [{"name": name, "value": value} for name, value in headers]
