"""Where the rows of standing bundles come from: how far a source is, and what is cut again."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from penstock import PenstockError, sources
from penstock.cluster.model import Slot
from penstock.engine.message.shares import Bundle
from penstock.engine.query.batch_reports import FinishedBatch
from penstock.engine.query.feeds import Batch
from penstock.engine.query.publisher import PublishedBatch
from penstock.engine.standing import query as module
from penstock.engine.standing.batches import CutBatch, OpenBatch
from penstock.engine.standing.query import StandingQuery
from penstock.engine.standing.supplies import SourceSupply
from penstock.kinds import SourcePlace

BUNDLE = Bundle(Slot("a", 0), 1)


def supply(now: list[float], published: Any = None) -> SourceSupply:
    kind, notes, dealer = sources.rate(10), SimpleNamespace(), SimpleNamespace(closed=False, lingers=False)
    offsets = kind.offsets(SourcePlace("rows", notes, lambda: now[0]))  # type: ignore[arg-type]
    return SourceSupply(offsets, kind, published, dealer)  # type: ignore[arg-type]


def test_what_was_cut_before_anything_was_published_is_cut_again_from_the_beginning() -> None:
    now = [100.0]
    made = supply(now)
    made.available()
    now[0] += 2
    first = made.cut(20, [BUNDLE])
    assert first is not None
    assert first.ends == {"0": 20}
    assert made.available() == 0
    made.go_back(None)
    assert made.available() == 20
    again = made.cut(20, [BUNDLE])
    assert again is not None
    assert again.shares == first.shares


def test_it_goes_back_to_what_is_published_or_to_a_batch_that_is_open() -> None:
    now = [100.0]
    made = supply(now, published=50)
    made.available()
    now[0] += 4
    assert made.cut(10, [BUNDLE]) is not None
    second = made.cut(10, [BUNDLE])
    assert second is not None
    made.go_back({"0": 60})
    again = made.cut(10, [BUNDLE])
    assert again is not None
    assert again.ends == second.ends == {"0": 70}
    made.go_back(None)
    assert made.position == 50


def test_no_more_is_cut_than_is_due() -> None:
    now = [100.0]
    made = supply(now)
    made.available()
    now[0] += 1
    cut = made.cut(1_000, [BUNDLE])
    assert cut is not None
    assert cut.read.rows == 10
    assert made.cut(1_000, [BUNDLE]) is None


@pytest.mark.parametrize(("ends", "refused"), [({"0": 20}, False), ({"0": 30}, True)])
def test_batches_that_are_in_the_catalog_already_must_be_these(
    ends: dict[str, int], refused: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows of another would be taken for published, and lost."""
    monkeypatch.setattr(module, "ends_from", lambda catalog, operator, batch: {2: {"0": 10}, 3: ends})
    query: Any = object.__new__(StandingQuery)
    query.context = SimpleNamespace(channels=SimpleNamespace(catalog=None))
    query.operator = SimpleNamespace(name="rows", where=None)
    batches = [OpenBatch(2 + n, CutBatch(Batch({}, 10), (), {"0": 10 + 10 * n}), 1, 0.0) for n in range(2)]
    if not refused:
        query._check_own(batches)
        return
    with pytest.raises(PenstockError) as caught:
        query._check_own(batches)
    assert caught.value.name == "STATE_IN_USE"


def test_batches_whose_commit_nobody_heard_of_are_reported_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """One of them wrote nothing by which the catalog could know it."""
    monkeypatch.setattr(module, "ends_from", lambda catalog, operator, batch: {2: {"0": 10}, 3: {"0": 20}})
    told: list[Any] = []

    def publish_all(finished: list[FinishedBatch]) -> list[PublishedBatch]:
        return [PublishedBatch(one, (), is_new=one.number == 3) for one in finished]

    query: Any = object.__new__(StandingQuery)
    query.context = SimpleNamespace(channels=SimpleNamespace(catalog=None))
    query.operator = SimpleNamespace(name="rows", where=None)
    query.supply = SimpleNamespace(published=told.append)
    query._publisher = SimpleNamespace(
        publish_all=publish_all, report=lambda one: told.append((one.batch.number, one.is_new))
    )
    query._publish([OpenBatch(2 + n, CutBatch(Batch({}, 10), (), {"0": 10 + 10 * n}), 1, 0.0) for n in range(2)])
    assert told == [{"0": 10}, (2, True), {"0": 20}, (3, True)]
