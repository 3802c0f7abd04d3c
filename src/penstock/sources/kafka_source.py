"""Messages of Kafka topics. The driver asks for the partitions' ends and hands out ranges of offsets. Bundles read
them.

The catalog says how far each partition was read, so the messages of a batch that was not published are read again. The
offsets from which partitions are read at first are written to the catalog, before the first batch. A
partition's range is read by one instance, so the order of its messages is kept. Consumer groups are not used.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import pyarrow as pa

from penstock.errors import Location, PenstockError
from penstock.kafka_client import Brokers, Partition, check_servers, library
from penstock.kinds import BadRow, Notes, Offset, Offsets, Range, SourceKind, SourcePlace
from penstock.schema import Schema, parse_schema
from penstock.sources.kafka_messages import METADATA, PAYLOADS, MessageReader, data_lost, row_schema, rows_of
from penstock.sources.looks import Looks, thinned
from penstock.sources.mistakes import bad_source

#: How often the driver asks which partitions there are, and where they begin.
REFRESH_SECONDS = 5.0
#: For so long all questions in a row may fail before the source does.
PATIENCE_SECONDS = 60.0
#: Answers that are kept at most, to know when a message was first seen.
ANSWERS = 256

#: A topic's partitions and their offsets.
Given = Mapping[str, Mapping[int, int]]
#: "earliest", "latest", a time, or offsets.
Start = str | datetime | Given


def kafka(
    servers: str | Sequence[str],
    topics: str | Sequence[str],
    *,
    value: str = "bytes",
    schema: Schema | None = None,
    metadata: Sequence[str] = (),
    start: str | datetime | Given | Mapping[int, int] = "earliest",
    follow: bool = True,
    config: Mapping[str, Any] | None = None,
) -> KafkaSource:
    """A source that reads the messages of one or several Kafka topics.

    `value` says what a message holds: "bytes" or "text", in the column `value`, or "json", an object with the columns
    of `schema`. `metadata` adds columns: any of key, topic, partition, offset, timestamp, headers.
    `start` is where a run on a new state begins: "earliest", "latest", a datetime (the first message that is not
    older), or offsets by partition ({0: 17}, or {"topic": {0: 17}} for several topics; other partitions begin at their
    earliest message). Partitions that are added later are read from their beginning. A run that goes on from its state
    goes on where it was.
    With `follow`, messages that come later are read too; without, the source ends with those that are there when the
    run begins, and the next run on the same state reads what came since. `config` is handed to librdkafka: security,
    timeouts, isolation.level (read_committed, unless given), group.id (penstock, unless given)."""
    config = dict(config or {})
    names = (topics,) if isinstance(topics, str) else tuple(topics)
    if not names or not all(isinstance(name, str) and name for name in names) or len(set(names)) < len(names):
        raise bad_source(
            f"the topics are {topics!r}.", "Give the name of a topic, or a list of names in which each topic is once."
        )
    if value not in PAYLOADS:
        raise bad_source(f"the value is {value!r}.", f"Use one of: {', '.join(PAYLOADS)}.")
    if (schema is None) == (value == "json"):
        raise bad_source(
            f"the value is {value!r}, and {'no' if schema is None else 'a'} schema is given.",
            'Give a schema if the value is "json", and no schema otherwise.',
        )
    if unknown := [name for name in metadata if name not in METADATA]:
        raise bad_source(f'there is no metadata "{unknown[0]}".', f"Use any of: {', '.join(METADATA)}.")
    payload = parse_schema(schema, Location.of_caller()) if schema is not None else PAYLOADS[value]
    if doubled := sorted(set(payload.names) & set(metadata)):
        raise bad_source(f'the schema and the metadata both have a column "{doubled[0]}".', "Rename one of the two.")
    return KafkaSource(
        check_servers(servers, config, bad_source),
        names,
        value,
        payload,
        tuple(metadata),
        _start(start, names),
        follow,
        config,
    )


def _start(start: Any, topics: tuple[str, ...]) -> Start:
    if isinstance(start, datetime):
        if start.tzinfo is None:
            raise bad_source("the start is a time without a zone.", "Give a datetime with a tzinfo, such as UTC.")
        return start
    if start in ("earliest", "latest"):
        return str(start)
    if isinstance(start, Mapping):
        by_topic = start if start and all(isinstance(one, Mapping) for one in start.values()) else {topics[0]: start}
        numbers = [number for some in by_topic.values() for pair in some.items() for number in pair]
        whole = all(isinstance(number, int) and not isinstance(number, bool) and number >= 0 for number in numbers)
        if numbers and whole and set(by_topic) <= set(topics) and (by_topic is start or len(topics) == 1):
            return {topic: dict(some) for topic, some in by_topic.items()}
    raise bad_source(
        f"the start is {start!r}.", 'Give "earliest", "latest", a datetime, or offsets by partition, such as {0: 17}.'
    )


@dataclass(frozen=True)
class KafkaSource(SourceKind):
    """Its config may hold a password, so it does not appear where the source is printed."""

    servers: str
    topics: tuple[str, ...]
    value: str
    payload: pa.Schema
    metadata: tuple[str, ...]
    start: Start
    follow: bool
    config: Mapping[str, Any] = field(repr=False)
    schema: pa.Schema = field(init=False, repr=False, compare=False)

    kind = "kafka"
    #: Messages cost little: a first batch of few would only cost time.
    first_batch = 20_000
    reading_is_work = True
    fetches_ahead = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "schema", row_schema(self.payload, self.metadata))

    @property
    def ends(self) -> bool:
        return not self.follow

    def describe(self) -> Mapping[str, Any]:
        start = self.start.isoformat() if isinstance(self.start, datetime) else self.start
        return {
            "kind": self.kind,
            "servers": self.servers,
            "topics": list(self.topics),
            "value": self.value,
            "start": start if isinstance(start, str) else "given offsets",
            "follow": self.follow,
            "config": sorted(self.config),
        }

    def check(self, where: Location | None) -> None:
        try:
            Brokers(self.servers, self.config).partitions(self.topics)
        except PenstockError as error:
            raise PenstockError(error.name, error.message, error.hint, where) from None

    def offsets(self, place: SourcePlace) -> KafkaOffsets:
        return KafkaOffsets(self, place, Brokers(self.servers, self.config))

    def read(self, load: Any, bad_row: BadRow | None) -> Iterator[pa.RecordBatch]:
        library()
        reader = MessageReader(self.servers, self.config, load[0], load[1])
        for messages in reader.messages(load[2], load[3]):
            yield from rows_of(messages, self.value, self.payload, self.metadata, bad_row)


class KafkaOffsets(Offsets):
    """The offset is, by topic and partition, the number of the first message that is not read."""

    def __init__(self, spec: KafkaSource, place: SourcePlace, brokers: Brokers) -> None:
        self._spec = spec
        self._place = place
        self._brokers = brokers
        self._clock = place.clock
        self._notes = _OffsetNotes(place.notes, place.prefix)
        self._partitions = self._told(lambda: brokers.partitions(spec.topics))
        #: Where each partition was read at first.
        self._first = self._notes.read("start")
        if not self._first:
            self._first = self._told(self._beginning)
            self._notes.write("start", self._first)
        #: Where each partition ends for this run; only of a source that does not follow.
        self._stop: dict[Partition, int] = {}
        if not spec.follow:
            if "stop" not in place.memory:
                place.memory["stop"] = self._told(lambda: brokers.latest(self._partitions))
            self._stop = place.memory["stop"]
            self._partitions = self._of_this_run(self._partitions)
        #: Where the newest batch ends; what Spark has not told of begins at its first offset.
        self._read: dict[Partition, int] = {}
        self.position: Offset = None
        self._latest: dict[Partition, int] = {}
        #: When the driver saw which ends, the newest at the end.
        self._answers: list[tuple[float, dict[Partition, int]]] = []
        self._looks = Looks(place)
        self._next_refresh = 0.0
        #: Since when the brokers do not answer.
        self._silent_since: float | None = None

    # What there is

    def look(self) -> None:
        now = self._clock()
        if self._looks.due_in() > 0:
            return
        try:
            if now >= self._next_refresh:
                self._refresh()
            ends = self._brokers.latest(self._partitions)
        except PenstockError as error:
            since = self._silent_since = now if self._silent_since is None else self._silent_since
            # A broker that starts again may list no topics for a moment.
            may_pass = error.name == "KAFKA_UNREACHABLE" or (error.name == "KAFKA_UNKNOWN_TOPIC" and self._latest)
            if not may_pass or now - since > PATIENCE_SECONDS:
                raise self._named(error) from None
            self._looks.failed()
            return
        self._silent_since = None
        self._check_ends(ends)
        self._latest = {one: min(end, self._stop.get(one, end)) for one, end in ends.items()}
        news = not self._answers or self._answers[-1][1] != self._latest
        if news:
            self._answers = [*thinned(self._answers, ANSWERS), (self._clock(), self._latest)]
        self._looks.looked(news)

    def available(self) -> int:
        return sum(self._waiting().values())

    def due_in(self) -> float | None:
        return None if self.ended else self._looks.due_in()

    @property
    def unmet(self) -> int:
        """The lag."""
        return self.available()

    @property
    def ended(self) -> bool:
        return bool(self._stop) and all(self._at(one) >= stop for one, stop in self._stop.items())

    # What a batch reads

    def go_to(self, offset: Offset) -> None:
        self.position, self._read = offset, _flat(offset)

    def end(self, most: int, instances: int) -> Offset | None:
        """Of all partitions something, in proportion to what waits there."""
        if not most:
            return self.position
        waiting = self._waiting()
        total = max(sum(waiting.values()), 1)
        ends = {one: self._at(one) + min(rows, -(-most * rows // total)) for one, rows in waiting.items()}
        return _nested({**self._read, **ends})  # also of topics that are not declared now: they may come back

    def ranges(self, start: Offset | None, end: Offset, instances: int) -> Sequence[Range]:
        begin, found = _flat(start), []
        for one, stop in sorted(_flat(end).items()):
            if stop > 0 and one not in begin and one not in self._first:
                raise self._named(
                    PenstockError(
                        "STATE_DOES_NOT_FIT",
                        f'a batch ends at an offset of partition {one[1]} of "{one[0]}", and the catalog does not say '
                        "where this partition was read from at first.",
                        "Restore checkpoints and catalog of the same moment, or start with a new state folder.",
                    )
                )
            first = begin.get(one, self._first.get(one, 0))
            if first < stop:
                load = [*one, first, stop]
                found.append(Range(load, stop - first, self._seen(one, first), self._seen(one, stop - 1)))
        return found

    # Inside

    def _at(self, partition: Partition) -> int:
        return self._read.get(partition, self._first.get(partition, 0))

    def _waiting(self) -> dict[Partition, int]:
        return {one: max(end - self._at(one), 0) for one, end in self._latest.items()}

    def _seen(self, partition: Partition, offset: int) -> float:
        """When the driver first saw that a message was there."""
        times = (at for at, ends in self._answers if ends.get(partition, 0) > offset)
        return next(times, self._clock())

    def _refresh(self) -> None:
        """Which partitions there are, and whether what is to be read next is still there."""
        self._partitions = self._of_this_run(self._brokers.partitions(self._spec.topics))
        earliest = self._brokers.earliest(self._partitions)
        fresh = {one: earliest[one] for one in self._partitions if one not in self._first}
        if fresh:
            self._notes.write("start", self._first | fresh)
            self._first |= fresh
        for one in self._partitions:
            done = one in self._stop and self._at(one) >= self._stop[one]
            if earliest[one] > self._at(one) and one not in fresh and not done:
                what = f"it begins at offset {earliest[one]:,}, and {self._at(one):,} is next"
                raise data_lost(one[0], one[1], what)
        self._next_refresh = self._clock() + REFRESH_SECONDS

    def _of_this_run(self, partitions: list[Partition]) -> list[Partition]:
        """Without those that were added since the run began, unless the source follows."""
        return [one for one in partitions if self._spec.follow or one in self._stop]

    def _check_ends(self, ends: Mapping[Partition, int]) -> None:
        for one, end in ends.items():
            if end < self._at(one):
                raise self._named(
                    data_lost(one[0], one[1], f"it ends at offset {end:,}, and was read up to {self._at(one):,}")
                )

    def _beginning(self) -> dict[Partition, int]:
        """Where a new state begins to read."""
        start, partitions, brokers = self._spec.start, self._partitions, self._brokers
        if start == "latest":
            return brokers.latest(partitions)
        if isinstance(start, datetime):
            found, ends = brokers.at(partitions, int(start.timestamp() * 1000)), brokers.latest(partitions)
            return {one: ends[one] if offset < 0 else offset for one, offset in found.items()}
        earliest = brokers.earliest(partitions)
        if isinstance(start, str):
            return earliest
        ends = brokers.latest(partitions)
        given = {(topic, number): offset for topic, some in start.items() for number, offset in some.items()}
        for (topic, number), offset in given.items():
            low, high = earliest.get((topic, number)), ends.get((topic, number))
            if low is None or high is None or not low <= offset <= high:
                there = "there is no such partition" if low is None else f"it has offsets {low:,} to {high:,}"
                raise PenstockError(
                    "KAFKA_BAD_START",
                    f'the start names offset {offset:,} of partition {number} of "{topic}", but {there}.',
                    "Correct the start of the source, or leave it out.",
                )
        return earliest | given

    def _told(self, ask: Any) -> Any:
        try:
            return ask()
        except PenstockError as error:
            raise self._named(error) from None

    def _named(self, error: PenstockError) -> PenstockError:
        message = f'the source "{self._place.operator}": {error.message}'
        return PenstockError(error.name, message, error.hint, self._place.where)


@dataclass(frozen=True)
class _OffsetNotes:
    """Offsets of partitions that are written down for good."""

    notes: Notes
    prefix: str

    def read(self, name: str) -> dict[Partition, int]:
        text = self.notes.get_meta(self.prefix + name)
        return _flat(json.loads(text)) if text else {}

    def write(self, name: str, offsets: Mapping[Partition, int]) -> None:
        self.notes.change_metas({self.prefix + name: json.dumps(_nested(offsets), sort_keys=True)})


def _nested(offsets: Mapping[Partition, int]) -> Offset:
    """As Spark and the catalog keep it, in JSON."""
    topics: dict[str, dict[str, int]] = {}
    for (topic, partition), offset in offsets.items():
        topics.setdefault(topic, {})[str(partition)] = offset
    return {"topics": topics}


def _flat(offset: Offset | None) -> dict[Partition, int]:
    topics = offset["topics"] if offset else {}
    return {(topic, int(number)): at for topic, some in topics.items() for number, at in some.items()}
