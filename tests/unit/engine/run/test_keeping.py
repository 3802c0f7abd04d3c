"""Sweeping that fails again and again ends the topology, once in a while does not."""

from __future__ import annotations

import itertools
import threading

import pytest

from penstock import PenstockError
from penstock.engine.run import keeping
from penstock.engine.run.keeping import PATIENT_ROUNDS, Keeper


class Failing:
    """Fails so many times, then works."""

    def __init__(self, times: int) -> None:
        self.left = times
        self.enough = threading.Event()

    def sweep(self) -> None:
        self.left -= 1
        if self.left < 0:
            self.enough.set()
        if self.left == -1:
            return
        raise OSError("no space left")


def kept(failures: int, monkeypatch: pytest.MonkeyPatch, rounds: int = 0) -> Keeper:
    monkeypatch.setattr(keeping, "KEEP_SECONDS", 0.01)
    sweeping, mended = Failing(failures), threading.Event()
    keeper = Keeper(sweeping.sweep, 0.01, mended.set)
    keeper.start()
    assert sweeping.enough.wait(10)
    assert mended.is_set()
    keeper.stop()
    return keeper


def test_a_sweep_that_fails_is_tried_again_and_logged(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    kept(2, monkeypatch).check()
    assert any("could not be deleted" in record.message and record.exc_info for record in caplog.records)


def test_a_problem_with_mending_is_logged_once_and_stops_nothing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(keeping, "KEEP_SECONDS", 0.01)
    rounds, many = itertools.count(), threading.Event()

    def mend() -> None:
        if next(rounds) > 5:
            many.set()
        raise ConnectionError("the JVM is about to end")

    keeper = Keeper(lambda: None, 3600, mend)
    keeper.start()
    assert many.wait(10)
    keeper.stop()
    keeper.check()
    [record] = caplog.records
    assert "looked after" in record.message
    assert record.exc_info


@pytest.mark.parametrize("name", keeping.FINAL)
def test_a_catalog_that_is_lost_for_good_is_told_at_once(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keeping, "KEEP_SECONDS", 0.01)
    swept = threading.Event()

    def sweep() -> None:
        if not swept.is_set():
            swept.set()
            raise PenstockError(name, "it is gone.", "Stop.")

    keeper = Keeper(sweep, 0.01, lambda: None)
    keeper.start()
    assert swept.wait(10)
    keeper.stop()
    with pytest.raises(PenstockError) as caught:
        keeper.check()
    assert caught.value.name == name


@pytest.mark.parametrize("patience", [0.0, 3600.0])
def test_sweeping_that_never_works_is_a_named_error_after_a_while(
    patience: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keeping, "KEEP_SECONDS", 0.01)
    monkeypatch.setattr(keeping, "PATIENT_SECONDS", patience)
    calls, many = [], threading.Event()

    def sweep() -> None:
        calls.append(1)
        if len(calls) > PATIENT_ROUNDS:
            many.set()
        raise OSError("no space left")

    keeper = Keeper(sweep, 0.01, lambda: None)
    keeper.start()
    assert many.wait(10)
    keeper.stop()
    if patience:
        keeper.check()  # rounds may be short: a disk that is full for ten seconds is no reason to end
        return
    with pytest.raises(PenstockError) as caught:
        keeper.check()
    assert caught.value.name == "HOUSEKEEPING_FAILED"
    assert "no space left" in caught.value.message


def test_a_keeper_that_never_started_can_be_stopped() -> None:
    Keeper(lambda: None, 1.0, lambda: None).stop()
