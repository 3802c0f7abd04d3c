"""What operators keep is known to the next run, or known not to be known, however the run before has ended."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.channels.catalog import Catalog
from penstock.engine.state.kept_record import Kept, KeptRecord, forgotten
from penstock.monitor.kept_state import KeptState, Kind

OPEN = (KeptState(Kind.AGGREGATE, 3, open=True),)
JOIN = (KeptState(Kind.JOIN, 2),)
SEEN = (KeptState(Kind.DISTINCT, 2),)


class CountedCatalog(Catalog):
    writes = 0

    def set_meta(self, key: str, value: str) -> None:
        self.writes += 1
        super().set_meta(key, value)


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[CountedCatalog]:
    made = Catalog.open(f"sqlite:///{tmp_path}/catalog.db", "words")
    made.__class__ = CountedCatalog
    assert isinstance(made, CountedCatalog)
    yield made
    made.close()


def record(catalog: Catalog, **last_batches: int) -> KeptRecord:
    """Of a run that finds these batches published."""
    return KeptRecord(catalog, last_batches.get)


def test_what_is_kept_is_remembered_from_run_to_run(catalog: CountedCatalog) -> None:
    one = record(catalog)
    assert one.known == {}
    one.note("windows", 4, OPEN)
    one.note("join", 6, JOIN)
    one.write()
    for _ in range(2):  # a run without a batch leaves it as it is
        again = record(catalog, windows=4, join=6)
        assert again.known == {"windows": Kept(4, OPEN), "join": Kept(6, JOIN)}
        assert again.unknown(["windows", "join"]) == []
        again.write()


def test_an_operator_that_has_nothing_to_do_is_written_down_before_the_end(catalog: CountedCatalog) -> None:
    one = record(catalog)
    one.note("windows", 4, OPEN)
    one.settle()
    assert catalog.writes == 0, "it may be about to change"
    one.settle()
    assert catalog.writes == 1
    one.settle()
    assert catalog.writes == 1, "once is enough"
    assert record(catalog, windows=4).known == {"windows": Kept(4, OPEN)}, "although the driver was killed"


def test_under_load_nothing_is_written(catalog: CountedCatalog) -> None:
    one = record(catalog)
    for batch in range(50):
        one.note("windows", batch, OPEN)
        one.settle()
    assert catalog.writes == 0


def test_what_was_written_before_the_last_batch_is_not_believed(catalog: CountedCatalog) -> None:
    one = record(catalog)
    one.note("windows", 4, OPEN)
    one.write()
    killed = record(catalog, windows=5)
    assert killed.known == {}
    assert killed.unknown(["windows"]) == ["windows"]
    killed.note("windows", 6, OPEN)
    assert killed.unknown(["windows"]) == [], "its first batch tells"


def test_nothing_is_missed_of_an_operator_that_never_ran(catalog: CountedCatalog) -> None:
    assert record(catalog).unknown(["windows"]) == []
    assert record(catalog, windows=0).unknown(["windows"]) == ["windows"]


@pytest.mark.parametrize("kind", [Kind.JOIN, Kind.OWN])
def test_what_a_join_or_a_timer_may_hold_back_is_missed_too(catalog: CountedCatalog, kind: Kind) -> None:
    one = record(catalog)
    one.note("sessions", 4, (KeptState(kind, 2),))
    one.write()
    assert record(catalog, sessions=4).unknown(["sessions"]) == []
    assert record(catalog, sessions=5).unknown(["sessions"]) == ["sessions"]


def test_an_operator_that_holds_no_results_back_never_does(catalog: CountedCatalog) -> None:
    one = record(catalog)
    one.note("seen", 4, SEEN)
    one.write()
    killed = record(catalog, seen=9)
    assert killed.known == {}, "how much it keeps is not known"
    assert killed.unknown(["seen"]) == []


def test_what_was_written_without_a_batch_is_not_believed(catalog: CountedCatalog) -> None:
    catalog.set_meta("kept", '{"windows": [{"kind": "aggregate", "rows": 3, "open": true}]}')
    assert record(catalog, windows=4).unknown(["windows"]) == ["windows"]


def test_what_is_forgotten_is_gone(catalog: CountedCatalog) -> None:
    one = record(catalog)
    one.note("windows", 4, OPEN)
    one.note("seen", 6, SEEN)
    one.write()
    for key, value in forgotten(catalog, ["windows"]).items():
        catalog.set_meta(key, value)
    assert set(record(catalog, windows=4, seen=6).known) == {"seen"}
