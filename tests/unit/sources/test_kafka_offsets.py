"""Where a Kafka source is: starting positions, lag, ranges, partitions that come, data that is gone."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

import pytest

from penstock import sources
from penstock.errors import PenstockError
from penstock.kafka_client import Partition, unreachable
from penstock.kinds import SourcePlace
from penstock.sources import kafka_source
from penstock.sources.kafka_source import KafkaOffsets


@dataclass
class FakeBrokers:
    """Partitions of a topic, each with its first offset and the one behind its last."""

    held: dict[Partition, tuple[int, int]]
    by_time: dict[Partition, int] = field(default_factory=dict)
    silent: bool = False
    unlisted: bool = False

    def partitions(self, topics: Iterable[str]) -> list[Partition]:
        self._answer()
        if self.unlisted:
            raise PenstockError("KAFKA_UNKNOWN_TOPIC", "no topic", "")
        return sorted(one for one in self.held if one[0] in topics)

    def earliest(self, partitions: Iterable[Partition]) -> dict[Partition, int]:
        self._answer()
        return {one: self.held[one][0] for one in partitions}

    def latest(self, partitions: Iterable[Partition]) -> dict[Partition, int]:
        self._answer()
        return {one: self.held[one][1] for one in partitions}

    def at(self, partitions: Iterable[Partition], milliseconds: int) -> dict[Partition, int]:
        self._answer()
        assert milliseconds == 1_767_225_600_000
        return {one: self.by_time.get(one, -1) for one in partitions}

    def _answer(self) -> None:
        if self.silent:
            raise unreachable("nowhere", "no answer")


class FakeNotes:
    def __init__(self) -> None:
        self.values: dict[str, str] = {}

    def get_meta(self, key: str) -> str | None:
        return self.values.get(key)

    def metas(self, prefix: str) -> dict[str, str]:
        raise NotImplementedError

    def change_metas(self, values: Mapping[str, str], gone: Sequence[str] = ()) -> None:
        self.values.update(values)


class World:
    """One source, its brokers, its notes and its clock."""

    def __init__(self, held: Mapping[int, tuple[int, int]], **declared: Any) -> None:
        self.brokers = FakeBrokers({("t", number): one for number, one in held.items()})
        self.notes = FakeNotes()
        self.now = 100.0
        #: How long rows may linger; None: nobody says.
        self.lingers: Callable[[], float] | None = None
        #: What lasts as long as the run.
        self.memory: dict[str, Any] = {}
        self.spec = sources.kafka("nowhere:9092", **({"topics": "t"} | declared))

    def begin(self) -> KafkaOffsets:
        """A query begins, of a new run or of one that goes on."""
        place = SourcePlace(
            "in", self.notes, lambda: self.now, prefix="source/in/", memory=self.memory, lingers=self.lingers
        )
        brokers: Any = self.brokers
        return KafkaOffsets(self.spec, place, brokers)

    def look(self, offsets: KafkaOffsets, seconds: float = 1.0) -> None:
        self.now += seconds
        offsets.look()


def ranges(offsets: KafkaOffsets, start: Any, end: Any) -> list[list[Any]]:
    return [one.load for one in offsets.ranges(start, end, 2)]


HELD = {0: (10, 100), 1: (0, 40)}


@pytest.mark.parametrize(
    ("start", "wanted"),
    [
        ("earliest", [["t", 0, 10, 100], ["t", 1, 0, 40]]),
        ("latest", []),
        ({0: 90}, [["t", 0, 90, 100], ["t", 1, 0, 40]]),
        ({"t": {0: 100, 1: 39}}, [["t", 1, 39, 40]]),
        (datetime(2026, 1, 1, tzinfo=UTC), [["t", 0, 70, 100]]),
    ],
)
def test_a_new_state_begins_where_it_is_told_to(start: Any, wanted: list[list[Any]]) -> None:
    world = World(HELD, start=start)
    world.brokers.by_time = {("t", 0): 70}
    offsets = world.begin()
    world.look(offsets)
    assert offsets.available() == offsets.unmet == sum(stop - first for _, _, first, stop in wanted)
    end = offsets.end(1_000, 1)
    assert ranges(offsets, None, end) == wanted


def test_the_beginning_is_the_same_after_a_crash_before_the_first_batch_was_finished() -> None:
    world = World(HELD, start="latest")
    world.begin()
    world.brokers.held["t", 0] = (10, 120)
    again = world.begin()
    world.look(again)
    assert ranges(again, None, again.end(1_000, 1)) == [["t", 0, 100, 120]]


def test_a_batch_takes_of_all_partitions_in_proportion() -> None:
    world = World({0: (0, 300), 1: (0, 100), 2: (0, 0)})
    offsets = world.begin()
    world.look(offsets)
    end = offsets.end(40, 1)
    assert ranges(offsets, None, end) == [["t", 0, 0, 30], ["t", 1, 0, 10]]
    offsets.go_to(json.loads(json.dumps(end)))
    assert offsets.available() == 360
    assert offsets.end(0, 1) == end, "without anything to read, the offset stays the same text"


def test_before_the_first_message_there_is_no_offset() -> None:
    world = World({0: (0, 0)})
    offsets = world.begin()
    world.look(offsets)
    assert (offsets.available(), offsets.end(0, 1)) == (0, None)


def test_partitions_that_are_added_are_read_from_their_beginning() -> None:
    world = World({0: (0, 5)}, start="latest")
    offsets = world.begin()
    world.look(offsets)
    world.brokers.held = {("t", 0): (0, 6), ("t", 1): (0, 3)}
    world.look(offsets, kafka_source.REFRESH_SECONDS)
    end = offsets.end(10, 1)
    assert ranges(offsets, None, end) == [["t", 0, 5, 6], ["t", 1, 0, 3]]
    # Killed in that batch: Spark asks for it again, and the catalog knows where the new partition begins.
    again = world.begin()
    assert ranges(again, None, end) == [["t", 0, 5, 6], ["t", 1, 0, 3]]


def test_messages_are_as_old_as_the_first_look_that_saw_them() -> None:
    world = World({0: (0, 10)})
    offsets = world.begin()
    world.look(offsets)
    world.brokers.held["t", 0] = (0, 20)
    world.look(offsets)
    [one] = offsets.ranges(None, offsets.end(100, 1), 1)
    assert (one.born_from, one.born_to) == (101.0, 102.0)


def waits(world: World, offsets: KafkaOffsets, comes: Sequence[float]) -> tuple[list[float], int]:
    """How long each message of partition 0 waits until the driver knows of it, where messages come at these moments,
    and how often the brokers were asked. The driver looks whenever the source says that there may be more."""
    found, asked, known = list[float](), 0, offsets.available()
    while len(found) < len(comes):
        due = offsets.due_in()
        assert due is not None
        world.now += max(due, 0.001)
        world.brokers.held["t", 0] = (0, sum(at <= world.now for at in comes))
        offsets.look()
        asked += 1
        found += [world.now - at for at in comes[known : offsets.available()]]
        known = offsets.available()
    return found, asked


@pytest.mark.parametrize("lingers", [0.005, 0.015, 0.05])
def test_messages_that_keep_coming_wait_no_longer_than_rows_may_linger(lingers: float) -> None:
    world = World({0: (0, 0)})
    world.lingers = lambda: lingers
    offsets = world.begin()
    found, asked = waits(world, offsets, [world.now + n * 0.004 for n in range(1_000)])
    assert max(found) <= lingers + 0.001
    assert asked <= 4 / lingers + 10, "nor are the brokers asked more often than that"


def test_the_longer_nothing_comes_the_less_the_brokers_are_asked() -> None:
    world = World({0: (0, 0)})
    world.lingers = lambda: 0.015
    offsets = world.begin()
    gaps = [0.5, 0.25, 2.0, 60.0, 0.03]
    comes = [world.now + sum(gaps[: n + 1]) for n in range(len(gaps))]
    found, asked = waits(world, offsets, comes)
    for gap, waited in zip(gaps, found, strict=True):
        assert waited <= max(0.015, min(0.11 * gap, 0.1)) + 0.001
    assert asked < 62 / 0.1 + 150


def test_rows_that_may_linger_for_long_or_nobody_knows_how_long_are_seen_within_a_tenth_of_a_second() -> None:
    for lingers in (None, lambda: 5.0):
        world = World({0: (0, 0)})
        world.lingers = lingers
        offsets = world.begin()
        found, asked = waits(world, offsets, [world.now + n * 0.01 for n in range(300)])
        assert 0.09 < max(found) <= 0.101
        assert asked < 40


def test_how_old_messages_are_stays_known_through_many_looks() -> None:
    world = World({0: (0, 0)})
    world.lingers = lambda: 0.015
    offsets = world.begin()
    began = world.now
    for count in range(1, 2_001):
        world.brokers.held["t", 0] = (0, count)
        world.look(offsets, 0.02)
    [oldest] = offsets.ranges(None, {"topics": {"t": {"0": 1}}}, 1)
    [newest] = offsets.ranges({"topics": {"t": {"0": 1_999}}}, {"topics": {"t": {"0": 2_000}}}, 1)
    assert oldest.born_from == pytest.approx(began + 0.02)
    assert newest.born_from == pytest.approx(world.now)


@pytest.mark.parametrize("held", [(50, 100), (0, 15)])
def test_messages_that_are_gone_are_an_error_that_says_what_to_do(held: tuple[int, int]) -> None:
    world = World({0: (0, 100)})
    offsets = world.begin()
    world.look(offsets)
    offsets.go_to({"topics": {"t": {"0": 20}}})
    world.brokers.held["t", 0] = held
    with pytest.raises(PenstockError) as caught:
        world.look(offsets, kafka_source.REFRESH_SECONDS)
    assert caught.value.name == "KAFKA_DATA_LOST"
    assert "--forget" in caught.value.hint


@pytest.mark.parametrize("start", [{0: 5}, {0: 101}, {7: 0}])
def test_offsets_to_start_at_must_be_there(start: dict[int, int]) -> None:
    with pytest.raises(PenstockError) as caught:
        World(HELD, start=start).begin()
    assert caught.value.name == "KAFKA_BAD_START"


def test_brokers_that_are_silent_for_a_while_are_waited_for() -> None:
    world = World({0: (0, 10)})
    offsets = world.begin()
    world.look(offsets)
    world.brokers.silent = True
    world.look(offsets)
    world.look(offsets, kafka_source.PATIENCE_SECONDS)
    world.brokers.silent = False
    world.look(offsets)
    assert offsets.available() == 10
    world.brokers.silent = True
    world.look(offsets)
    with pytest.raises(PenstockError) as caught:
        world.look(offsets, kafka_source.PATIENCE_SECONDS + 1)
    assert caught.value.name == "KAFKA_UNREACHABLE"


def test_a_topic_that_is_not_listed_for_a_moment_is_waited_for() -> None:
    """As by a broker that starts again."""
    world = World({0: (0, 10)})
    offsets = world.begin()
    world.look(offsets)
    world.brokers.unlisted = True
    world.look(offsets, kafka_source.REFRESH_SECONDS)
    world.brokers.unlisted = False
    world.look(offsets)
    assert offsets.available() == 10
    world.brokers.unlisted = True
    world.look(offsets, kafka_source.REFRESH_SECONDS)
    with pytest.raises(PenstockError) as caught:
        world.look(offsets, kafka_source.PATIENCE_SECONDS + 1)
    assert caught.value.name == "KAFKA_UNKNOWN_TOPIC"


def test_without_following_it_ends_where_the_topic_ended_when_the_run_began() -> None:
    world = World({0: (0, 10), 1: (0, 0)}, follow=False)
    offsets = world.begin()
    world.brokers.held["t", 0] = (0, 30)
    again = world.begin()
    world.look(again)
    assert (again.available(), again.ended, again.due_in() is None) == (10, False, False)
    end = again.end(10, 1)
    again.go_to(end)
    assert (again.available(), again.ended, again.due_in()) == (0, True, None)
    assert offsets.ended is False
    # The next run on the same state reads what came since, also of a partition that was added.
    world.memory = {}
    world.brokers.held["t", 2] = (4, 7)
    later = world.begin()
    later.go_to(end)
    world.look(later)
    assert ranges(later, end, later.end(100, 1)) == [["t", 0, 10, 30], ["t", 2, 4, 7]]


def test_without_following_a_partition_that_is_added_is_left_to_the_next_run() -> None:
    world = World({0: (0, 10)}, follow=False)
    offsets = world.begin()
    world.look(offsets)
    world.brokers.held["t", 2] = (0, 3)
    world.look(offsets, kafka_source.REFRESH_SECONDS)
    assert ranges(offsets, None, offsets.end(100, 1)) == [["t", 0, 0, 10]]
    # A query that takes the place of this one does not read it either.
    again = world.begin()
    world.look(again)
    assert again.end(100, 1) == {"topics": {"t": {"0": 10}}}
    # A state of an earlier version may name it, with nothing read.
    assert ranges(again, None, {"topics": {"t": {"0": 10, "2": 0}}}) == [["t", 0, 0, 10]]
    with pytest.raises(PenstockError) as caught:
        ranges(again, None, {"topics": {"t": {"0": 10, "2": 1}}})
    assert caught.value.name == "STATE_DOES_NOT_FIT"


def test_without_following_retention_may_delete_what_lies_behind_the_end() -> None:
    world = World({0: (0, 10), 1: (0, 5)}, follow=False)
    offsets = world.begin()
    world.look(offsets)
    offsets.go_to({"topics": {"t": {"0": 10, "1": 2}}})
    world.brokers.held["t", 0] = (20, 30)
    world.look(offsets, kafka_source.REFRESH_SECONDS)
    assert offsets.available() == 3
    world.brokers.held["t", 1] = (4, 9)
    with pytest.raises(PenstockError) as caught:
        world.look(offsets, kafka_source.REFRESH_SECONDS)
    assert caught.value.name == "KAFKA_DATA_LOST"


def test_a_topic_that_is_left_out_for_a_while_goes_on_where_it_was() -> None:
    world = World({}, topics=["a", "b"])
    world.brokers.held = {("a", 0): (0, 10), ("b", 0): (0, 10)}
    both, position = world.spec, None
    for spec, wanted in (
        (both, [["a", 0, 0, 10], ["b", 0, 0, 10]]),
        (replace(both, topics=("a",)), [["a", 0, 10, 20]]),
        (both, [["a", 0, 20, 30], ["b", 0, 10, 30]]),
    ):
        world.spec = spec
        offsets = world.begin()
        if position is not None:
            offsets.go_to(position)
        world.look(offsets)
        end = offsets.end(1_000, 1)
        assert ranges(offsets, position, end) == wanted
        position = end
        world.brokers.held = {one: (0, stop + 10) for one, (_, stop) in world.brokers.held.items()}


@pytest.mark.parametrize(
    "wrong",
    [
        {"topics": []},
        {"topics": ["t", "t"]},
        {"servers": ""},
        {"value": "xml"},
        {"value": "json"},
        {"schema": "id long"},
        {"metadata": ["colour"]},
        {"value": "json", "schema": "key long", "metadata": ["key"]},
        {"start": "yesterday"},
        {"start": datetime(2026, 1, 1)},
        {"start": {}},
        {"start": {0: -1}},
        {"start": {"other": {0: 1}}},
        {"topics": ["t", "u"], "start": {0: 1}},
        {"config": {"enable.auto.commit": True}},
        {"config": {"group.id": ""}},
        {"config": {"isolation.level": "some"}},
    ],
)
def test_what_makes_no_sense_is_refused_where_it_is_declared(wrong: dict[str, Any]) -> None:
    arguments: dict[str, Any] = {"servers": "nowhere:9092", "topics": "t"} | wrong
    with pytest.raises(PenstockError) as caught:
        sources.kafka(**arguments)
    assert caught.value.name == "BAD_SOURCE"
    assert caught.value.where is not None and caught.value.where.file == __file__


def test_a_password_is_shown_nowhere() -> None:
    spec = sources.kafka("nowhere:9092", "t", config={"sasl.password": "secret"})
    assert "secret" not in repr(spec) + repr(spec.describe())
    assert replace(spec, follow=False).ends
