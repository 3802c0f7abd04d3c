"""Checkpoints and catalog that belong together are gone on with; all others are refused by name."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from penstock import PenstockError, Topology, sinks, sources
from penstock.channels.catalog import Catalog
from penstock.channels.log import Bound, Channels
from penstock.channels.records import NewSegment
from penstock.channels.segments import SegmentStore
from penstock.engine.run.rewriting import enter_rewriting
from penstock.engine.state import tasks as task_numbers
from penstock.engine.state.agreement import check_agreement, check_batch
from penstock.engine.state.checkpoint_log import CheckpointLog
from penstock.topology.definition import Operator, TopologyDefinition


def declared() -> TopologyDefinition:
    topology = Topology("true")
    rows = topology.source("rows", sources.rate(10))
    topology.sink("out", sinks.noop(), inputs=[rows])
    return topology.definition()


class State:
    """A catalog, and checkpoints as Spark writes them."""

    def __init__(self, folder: Path) -> None:
        self.catalog = Catalog.open(f"sqlite:///{folder}/catalog.sqlite", "true")
        self.checkpoints = folder / "checkpoints"
        self.definition = declared()

    def plan(self, operator: str, batch: int, *ends: Any) -> None:
        lines = ["v1", json.dumps({"batchWatermarkMs": 0}), *(one if one == "-" else json.dumps(one) for one in ends)]
        self._write(operator, "offsets", batch, "\n".join(lines))

    def finish(self, operator: str, batch: int) -> None:
        self._write(operator, "commits", batch, 'v1\n{"nextBatchWatermarkMs":0}')

    def _write(self, operator: str, log: str, batch: int, text: str) -> None:
        folder = self.checkpoints / operator / log
        folder.mkdir(parents=True, exist_ok=True)
        (folder / str(batch)).write_text(text)
        (folder / f".{batch}.crc").write_text("a check sum")
        (folder / f".{batch + 5}.0123.tmp").write_text("what was being written")

    def publish(self, batch: int, end: Any = None, operator: str = "rows") -> None:
        ends = {} if end is None else {"ends": {"0": end} if operator == "rows" else {"rows.rows": end}}
        segment = NewSegment("rows.rows", f"{batch}", 10, 100, "local/0", 0.0, 0.0)
        self.catalog.publish(operator, batch, [segment] if operator == "rows" else [], json.dumps(ends), {})

    def run(self, batches: int, first: int = 0) -> None:
        """As it is after a stop between two batches of ten rows each."""
        for batch in range(first, batches):
            self.plan("rows", batch, (batch + 1) * 10)
            self.publish(batch, (batch + 1) * 10)
            self.finish("rows", batch)

    def check(self, checkpoints: str | None = None) -> None:
        check_agreement(self.definition.operators, self.catalog, checkpoints or str(self.checkpoints), None)

    def refused(self) -> str:
        with pytest.raises(PenstockError) as caught:
            self.check()
        assert caught.value.where is not None
        return caught.value.name

    def source(self) -> Operator:
        return self.definition.operator("rows")

    def wants(self, batch: int) -> None:
        last = self.catalog.last_batch("rows")
        log = CheckpointLog.open(None, str(self.checkpoints / "rows"))
        check_batch(self.source(), log, self.catalog, batch, -1 if last is None else last)


@pytest.fixture
def state(tmp_path: Path) -> Iterator[State]:
    state = State(tmp_path)
    yield state
    state.catalog.close()


# What belongs together


def test_a_new_state(state: State) -> None:
    state.check()


def test_stopped_between_two_batches(state: State) -> None:
    state.run(3)
    state.check()
    state.check(f"file://{state.checkpoints}")
    state.check(f"file:{state.checkpoints}")


def test_killed_before_a_batch_was_published(state: State) -> None:
    state.plan("rows", 0, 10)
    state.check()
    state.run(3)
    state.plan("rows", 3, 40)
    state.check()


def test_killed_before_a_published_batch_was_finished(state: State) -> None:
    state.run(3)
    state.plan("rows", 3, 40)
    state.publish(3, 40)
    state.check()
    state.wants(3)


def test_offsets_of_feeds_that_are_not_placed(state: State) -> None:
    state.run(3)
    state.plan("rows", 2, {"at": "30"})
    state.check()


def test_offsets_that_are_no_json(state: State) -> None:
    """Of a source of Spark's own they are what that source likes."""
    state.plan("rows", 0)
    with (state.checkpoints / "rows" / "offsets" / "0").open("a") as file:
        file.write("\nat the third row")
    state.publish(0, "at the third row")
    state.check()
    state.publish(1, "at the fourth row")
    state.plan("rows", 1, "at the fifth row")
    assert state.refused() == "STATE_DOES_NOT_FIT"


def test_an_input_that_has_given_nothing_yet(state: State) -> None:
    state.run(3)
    state.plan("out", 0, "-", {"rows.rows": 30})
    state.publish(0, 30, "out")
    state.finish("out", 0)
    state.check()
    state.plan("out", 0, {"at": ""}, {"at": '{"rows.rows": 30}'})
    state.check()


def test_what_an_older_penstock_did_not_write_down_is_not_compared(state: State) -> None:
    state.plan("rows", 0, 10)
    state.publish(0)
    state.finish("rows", 0)
    state.check()


def test_the_rewriting_of_state_is_a_batch_that_may_be_missing(state: State) -> None:
    state.run(3)
    state.plan("rows", 3, 30)
    state.finish("rows", 3)
    task_numbers.begin(state.catalog, "rows", 8)
    state.check()
    task_numbers.give_up(state.catalog)
    assert state.refused() == "CATALOG_WENT_BACK"


def test_the_rewriting_of_state_is_entered_once(state: State, tmp_path: Path) -> None:
    state.run(3)
    state.plan("out", 0, {"rows.rows": 30})
    state.publish(0, 30, "out")
    state.plan("out", 1, {"rows.rows": 30})
    state.finish("out", 1)
    assert state.refused() == "CATALOG_WENT_BACK"
    readers, writers = {"rows.rows": ["out"]}, {"rows.rows": "rows"}
    channels = Channels(state.catalog, SegmentStore(str(tmp_path)), readers, writers, Bound(100, 100))
    log = CheckpointLog.open(None, str(state.checkpoints / "out"))
    context: Any = SimpleNamespace(channels=channels, checkpoint_log=lambda operator: log)
    for _ in range(2):
        enter_rewriting(context, "out")
        assert channels.last_batch("out") == 1
        state.check()


# A checkpoint behind the catalog


def test_no_checkpoint(state: State) -> None:
    state.publish(0, 10)
    assert state.refused() == "STATE_DOES_NOT_FIT"


def test_a_checkpoint_of_earlier_batches(state: State) -> None:
    state.run(3)
    state.publish(3, 40)
    assert state.refused() == "STATE_DOES_NOT_FIT"


def test_a_checkpoint_of_earlier_batches_that_an_older_penstock_published(state: State) -> None:
    """It did not write down where a batch ended, so only the numbers of the batches say it."""
    state.plan("rows", 0, 10)
    state.finish("rows", 0)
    for batch in range(2):
        state.publish(batch)
    assert state.refused() == "STATE_DOES_NOT_FIT"


def test_a_checkpoint_of_as_many_batches_with_other_rows(state: State) -> None:
    state.run(3)
    state.plan("rows", 2, 29)
    assert state.refused() == "STATE_DOES_NOT_FIT"


def test_a_record_that_was_cut_off(state: State) -> None:
    state.run(3)
    (state.checkpoints / "rows" / "offsets" / "2").write_text("v1\n{")
    assert state.refused() == "STATE_DOES_NOT_FIT"
    (state.checkpoints / "rows" / "offsets" / "2").write_text('v1\n{}\n{"at":')
    assert state.refused() == "STATE_DOES_NOT_FIT"


# A catalog behind the checkpoints


def test_a_catalog_of_earlier_batches(state: State) -> None:
    state.run(3)
    for batch in (3, 4):
        state.plan("rows", batch, batch * 10 + 10)
        state.finish("rows", batch)
    assert state.refused() == "CATALOG_WENT_BACK"


def test_a_new_catalog_for_old_checkpoints(state: State) -> None:
    state.plan("rows", 0, 10)
    state.finish("rows", 0)
    assert state.refused() == "CATALOG_WENT_BACK"


def test_a_batch_that_reads_what_the_catalog_does_not_have(state: State) -> None:
    """Its reader had begun a batch of rows whose publication the catalog has lost."""
    state.run(3)
    state.plan("out", 0, {"rows.rows": 30})
    state.check()
    state.plan("out", 0, {"rows.rows": 31})
    assert state.refused() == "CATALOG_WENT_BACK"


# While it runs


def test_a_batch_that_cannot_follow_is_refused(state: State) -> None:
    state.run(3)
    state.wants(2)
    for batch, name in ((1, "STATE_DOES_NOT_FIT"), (4, "CATALOG_WENT_BACK")):
        with pytest.raises(PenstockError) as caught:
            state.wants(batch)
        assert caught.value.name == name


def test_a_replay_with_another_end_is_refused(state: State) -> None:
    state.run(3)
    state.plan("rows", 2, 35)
    with pytest.raises(PenstockError) as caught:
        state.wants(2)
    assert caught.value.name == "STATE_DOES_NOT_FIT"


def test_the_offset_of_a_source_may_look_like_what_a_feed_is_wrapped_in(state: State) -> None:
    log = CheckpointLog.open(None, str(state.checkpoints / "rows"))
    for index, (written, found) in enumerate([({"at": 5}, {"at": 5}), ({"at": "5"}, 5), ({"at": ""}, None)]):
        state.plan("rows", index, written)
        assert log.ends(index, of_source=True) == {"0": found}
    state.plan("rows", 9, "not JSON")
    (state.checkpoints / "rows" / "offsets" / "9").write_text("v1\n{}\nnot JSON")
    assert log.ends(9, of_source=True) == {"0": "not JSON"}


def test_offsets_that_cannot_be_read_leave_a_trace(state: State, caplog: pytest.LogCaptureFixture) -> None:
    state.plan("work", 4, 1)
    file = state.checkpoints / "work" / "offsets" / "4"
    file.write_text('v1\n{}\n{"cut o')
    assert CheckpointLog.open(None, str(state.checkpoints / "work")).ends(4, of_source=False) is None
    assert [record.getMessage() for record in caplog.records] == [f"{file} cannot be read"]
