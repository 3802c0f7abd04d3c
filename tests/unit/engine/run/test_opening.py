"""Whose a state is, and whether its catalog has all that was published, is settled before a start touches anything.
There is no Spark here (tests/helpers/opened_state.py)."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from opened_state import REPORT, OpenedState

from penstock import PenstockError, Settings
from penstock.channels.records import NewSegment
from penstock.engine.query.context import RunContext
from penstock.engine.run.opening import open_catalog
from penstock.engine.run.run import Run
from penstock.engine.state.published_record import PublishedRecord

OpenState = Callable[..., OpenedState]


@pytest.fixture
def opened() -> Iterator[OpenState]:
    states: list[OpenedState] = []

    def open_state(*arguments: Any, **options: Any) -> OpenedState:
        states.append(OpenedState(*arguments, **options))
        return states[-1]

    yield open_state
    for state in states:
        state.close()


def run_on(state: OpenedState, context: RunContext) -> Run:
    """A run as far as its catalog is concerned."""
    run: Any = object.__new__(Run)
    run._catalog, run._context, run._published_record = state.catalog, context, PublishedRecord(state.state.path)
    run._chores = run._kept_record = None
    run.host = SimpleNamespace(streams=SimpleNamespace(internals=None))
    return run


def publish(run: Run, batch: int, segments: Sequence[NewSegment] = ()) -> None:
    run.channels.publish("rows", batch, segments, json.dumps({**REPORT, "ends": {"0": 10 * batch + 10}}), {})


# Whose it is


def test_states_that_share_locations_keep_what_is_theirs(opened: OpenState, tmp_path: Path) -> None:
    """The same operators and channels: under another name, and under the same name on another state."""
    shared = replace(Settings(), segments=str(tmp_path / "seg"), checkpoints=str(tmp_path / "check"))
    first = opened(tmp_path / "a", "first", shared)
    first.start_without_room()
    first.ran_in_micro_batches(0, 1, 2)
    before = first.files()
    assert any(path.suffix == ".arrow" for path in before)
    for folder, name in (("b", "second"), ("c", "first")):
        other = opened(tmp_path / folder, name, shared)
        other.start_without_room()
        other.ran_in_micro_batches(0, 1)
        other.start_without_room()
        assert before <= first.files(), f'"{name}" in folder {folder} has deleted what is not its own'
    assert first.start_without_room().channels.last_batch("rows") == 2


def test_another_topology_is_refused_before_anything_is_touched(opened: OpenState, tmp_path: Path) -> None:
    first = opened(tmp_path, "first")
    first.start()
    first.stood(0, 1, 2)
    first.close()
    error = opened(tmp_path, "second").refused(room=True)
    assert error.name == "STATE_DOES_NOT_FIT"
    assert '"first"' in error.message


def test_a_declaration_that_does_not_fit_is_refused_before_anything_is_touched(
    opened: OpenState, tmp_path: Path
) -> None:
    state = opened(tmp_path)
    state.start()
    state.stood(0)
    run = run_on(state, state.start())
    publish(run, 1, [state.segment(1)])
    without = [one for one in state.definition.operators if one.name != "out"]
    state.definition = replace(state.definition, operators=tuple(without), streams=())
    error = state.refused(room=True)
    assert error.name == "STATE_DOES_NOT_FIT"
    assert "10 rows" in error.message
    assert "--forget out" in error.hint


# A catalog that went back, of operators that have no checkpoints


def check_went_back(state: OpenedState, batch: int) -> None:
    error = state.refused(room=True)
    assert error.name == "CATALOG_WENT_BACK"
    assert f"batch {batch} was published" in error.message


def test_a_catalog_that_lacks_what_a_start_has_found_is_refused(opened: OpenState, tmp_path: Path) -> None:
    state = opened(tmp_path)
    state.start()
    state.stood(0)
    copy = state.copy_of_catalog()
    state.stood(1, 2)
    state.start()
    state.put_back(copy)
    state.close()
    check_went_back(opened(tmp_path), 2)


def test_a_catalog_that_lacks_what_a_run_has_noted_is_refused(opened: OpenState, tmp_path: Path) -> None:
    """The run was killed."""
    state = opened(tmp_path)
    run = run_on(state, state.start())
    copy = state.copy_of_catalog()
    publish(run, 0)
    run._sweep()
    state.put_back(copy)
    state.close()
    check_went_back(opened(tmp_path), 0)


def test_what_a_run_misses_in_its_catalog_is_not_done_again_by_the_next_start(
    opened: OpenState, tmp_path: Path
) -> None:
    """A replica that lagged by less than the time between two notes takes over: the run ends, and whoever starts it
    again would have sinks write the rows once more."""
    state = opened(tmp_path)
    run = run_on(state, state.start())
    publish(run, 0)
    run._sweep()
    copy = state.copy_of_catalog()
    publish(run, 1)
    state.put_back(copy)
    run._end_catalog()
    state.close()
    check_went_back(opened(tmp_path), 1)


def test_a_driver_that_was_replaced_notes_nothing(opened: OpenState, tmp_path: Path) -> None:
    """The folder may be the other driver's by now, which may have begun anew."""
    state = opened(tmp_path)
    run = run_on(state, state.start())
    publish(run, 0)
    before = (state.state.path / "published.json").read_text()
    [lock] = state.state.path.glob("catalog*.lock")
    lock.unlink()
    other = open_catalog(state.definition, state.state, state.settings)
    run._end_catalog()
    other.close()
    assert (state.state.path / "published.json").read_text() == before


class GoesAway:
    """What is written of kept state: the database goes away between its last answer and that."""

    def write(self) -> None:
        raise PenstockError("CATALOG_UNREACHABLE", "The catalog cannot be reached.", "")


def test_a_run_whose_catalog_goes_away_while_it_ends_has_noted_what_it_had_published(
    opened: OpenState, tmp_path: Path
) -> None:
    state = opened(tmp_path)
    run: Any = run_on(state, state.start())
    publish(run, 0)
    run._kept_record = GoesAway()
    with pytest.raises(PenstockError):
        run._tidy_up(state.catalog)
    assert json.loads((state.state.path / "published.json").read_text()) == {"rows": 0}


def test_an_end_that_is_not_in_the_catalog_is_told_also_if_nothing_can_be_noted(
    opened: OpenState, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk of the state folder is full, say."""

    def full(*_: object) -> None:
        raise OSError("No space left on device")

    def away() -> None:
        raise PenstockError("CATALOG_UNREACHABLE", "The catalog cannot be reached.", "")

    state = opened(tmp_path)
    run: Any = run_on(state, state.start())
    run.unwritten_because = ""
    monkeypatch.setattr(PublishedRecord, "write", full)
    monkeypatch.setattr(state.catalog, "keep_hold", away)
    run._end_catalog()
    assert "CATALOG_UNREACHABLE" in run.unwritten_because
