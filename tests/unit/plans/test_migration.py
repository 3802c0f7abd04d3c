"""What a migration cost, computed by hand from the times of batches."""

from __future__ import annotations

import pytest

from penstock import Topology, sinks, sources
from penstock.monitor.publications import BatchTimes
from penstock.plans.migration import Barrier, Barriers, Flow, Migration, barriers_of, flow_of, longest, operators_behind
from penstock.plans.migration_log import MigrationLog

ASKED = 100.0
PLACED = 100.5


def batches(*times: tuple[float, float], rows: int = 10) -> list[BatchTimes]:
    """Batches 0, 1, ... by when they asked for their placement and when they were published."""
    return [BatchTimes(number, asked, published, rows) for number, (asked, published) in enumerate(times)]


def migration(**changed: object) -> Migration:
    known: dict[str, object] = {"tasks": (0, 2), "tasks_of_operator": 4, "moved_bytes": 300, "state_bytes": 1200}
    return Migration("count", asked_at=ASKED, **(known | changed))  # type: ignore[arg-type]


# The barriers


def test_the_last_batch_on_the_old_placement_and_the_first_on_the_new_one_are_the_barriers() -> None:
    ran = batches((98, 99), (99.5, 101), (101.2, 103), (103.1, 104))
    assert barriers_of(ran, PLACED, PLACED) == Barriers(Barrier(1, 101), Barrier(2, 103))


def test_a_batch_that_asked_at_the_moment_of_the_change_ran_on_the_old_placement() -> None:
    assert barriers_of(batches((PLACED, 101)), PLACED, PLACED) == Barriers(Barrier(0, 101), None)


def test_a_batch_that_asked_for_no_placement_ran_where_the_one_before_it_ran() -> None:
    ran = batches((99, 99.5), (0, 101), (101.2, 103), (0, 104))
    assert barriers_of(ran, PLACED, PLACED) == Barriers(Barrier(1, 101), Barrier(2, 103))


def test_batches_on_what_was_left_of_the_slots_are_on_neither_placement() -> None:
    ran = batches((99, 99.5), (101, 102), (103, 104), (106, 107))
    assert barriers_of(ran, PLACED, since=105.0) == Barriers(Barrier(0, 99.5), Barrier(3, 107))
    assert barriers_of(ran, PLACED, since=106.0).second == Barrier(3, 107), "it asked at the moment it was whole again"


def test_what_never_ran_has_crossed_nothing() -> None:
    assert barriers_of([], PLACED, PLACED) == Barriers()
    assert barriers_of(batches((101, 102)), PLACED, PLACED) == Barriers(None, Barrier(0, 102))


# The phases


def test_pause_and_resume_add_up_to_the_time_from_the_request_to_the_second_barrier() -> None:
    moved = migration(barriers=Barriers(Barrier(7, 100.8), Barrier(8, 102.3)))
    assert moved.pause_seconds == pytest.approx(0.8)
    assert moved.resume_seconds == pytest.approx(1.5)
    assert moved.share == 0.25


def test_a_batch_that_was_published_before_the_request_pauses_nobody() -> None:
    moved = migration(barriers=Barriers(Barrier(7, 91.0), Barrier(8, 102.3)))
    assert moved.pause_seconds == 0
    assert moved.resume_seconds == pytest.approx(2.3)


def test_what_was_not_measured_is_not_invented() -> None:
    moved = migration(state_bytes=0, moved_bytes=0)
    assert (moved.share, moved.pause_seconds, moved.resume_seconds) == (None, None, None)
    assert (moved.save_seconds, moved.load_seconds) == (None, None)
    assert migration(barriers=Barriers(None, Barrier(0, 102.0))).resume_seconds == 2.0
    assert migration(barriers=Barriers(Barrier(3, 101.0), None)).resume_seconds is None


def test_the_longest_of_the_known_times() -> None:
    assert longest([0.2, None, 0.7]) == 0.7
    assert longest([None]) is None


# How operators flowed


def test_an_operator_that_flows_on_has_its_usual_gaps_and_rates() -> None:
    ran = batches(*((at - 0.4, at) for at in (95, 96, 97, 98, 99, 100, 101, 102, 103)))
    assert flow_of("tag", ran, ASKED, 102.5) == Flow("tag", 1.0, 1.0, 10.0, 10.0)


def test_an_operator_that_waits_has_a_longer_gap_and_a_lower_rate() -> None:
    ran = batches(*((at - 0.4, at) for at in (97, 98, 99, 100, 104)))
    assert flow_of("count", ran, ASKED, 104) == Flow("count", 4.0, 1.0, 10.0, 2.5)


def test_the_gap_that_is_open_at_the_end_counts_as_far_as_it_goes() -> None:
    ran = batches((97, 98), (98, 99))
    assert flow_of("out", ran, ASKED, 103, behind=True) == Flow("out", 4.0, 1.0, 10.0, 0.0, True)


def test_a_gap_that_ends_after_the_move_counts_as_a_whole() -> None:
    ran = batches((98, 99), (99, 100), (100, 106))
    assert flow_of("tag", ran, ASKED, 103).gap_seconds == 6.0
    assert flow_of("tag", ran, 106.5, 107).gap_seconds == 1.0, "a gap before the move is none of its own"


def test_only_the_last_seconds_are_the_rate_before() -> None:
    old = [BatchTimes(0, 10.0, 11.0, 900), BatchTimes(1, 11.0, 12.0, 900)]
    assert flow_of("tag", [*old, *batches((97, 98), (98, 99))], ASKED, 101).rows_per_second_before == 10.0


def test_an_operator_of_which_little_is_known_has_no_rates() -> None:
    assert flow_of("tag", [], ASKED, 103) == Flow("tag")
    first = flow_of("tag", batches((101, 102)), ASKED, 103)
    assert (first.usual_gap_seconds, first.rows_per_second_before, first.rows_per_second_during) == (None, None, None)
    assert first.gap_seconds == 1.0
    only_later = flow_of("tag", batches((101, 101.5), (101.5, 102)), ASKED, 103)
    assert (only_later.rows_per_second_before, only_later.rows_per_second_during) == (None, 20.0)


def test_who_gets_rows_from_an_operator_that_moves_is_behind_it() -> None:
    topology, schema = Topology("t"), "id long, value double"
    rows = topology.source("rows", sources.rate(1, sources.numbers()))
    counted = topology.keyed("count", lambda frame: frame, inputs=rows, key="id", schema=schema, tasks=2)
    shown = topology.map("show", lambda batch: batch, inputs=counted, schema=schema)
    topology.sink("shown", sinks.noop(), inputs=shown)
    topology.sink("raw", sinks.noop(), inputs=rows)
    assert operators_behind(topology.definition(), ["count"]) == {"show", "shown"}
    assert operators_behind(topology.definition(), []) == set()


# The log


def test_the_log_keeps_the_newest_changes_that_moved_state() -> None:
    log = MigrationLog(kept=2)
    log.enter("place instances of 1 operator", "", ())
    for number in range(3):
        log.enter(f"change {number}", "why not", [migration()])
    assert [(one.id, one.change) for one in log.since()] == [(2, "change 1"), (3, "change 2")]
    assert [one.id for one in log.since(after=2)] == [3]
    assert [one.id for one in log.since(limit=1)] == [2]
    assert log.since(3) == []
