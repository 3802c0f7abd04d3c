"""Housekeeping that fails again and again ends the topology; once in a while does not."""

from __future__ import annotations

import threading

import pytest

from penstock import PenstockError, Settings
from penstock.engine.runtime import PATIENT_ROUNDS, Run


class Failing:
    def __init__(self, times: int, done: threading.Event) -> None:
        self.left, self.done = times, done

    def sweep(self) -> None:
        self.left -= 1
        if self.left < 0:
            self.done.set()
            return
        raise OSError("no space left")


class Host:
    def refresh(self) -> None:
        pass


def keep_house(failures: int) -> Run:
    run = Run.__new__(Run)
    done = threading.Event()
    run._ending, run._queries, run._catalog = done, {}, None
    run._failed_rounds, run._housekeeping_problem = 0, ""
    run.settings, run.host, run._channels = Settings(retention_seconds=0.1), Host(), Failing(failures, done)
    rounds = threading.Thread(target=run._keep_house)
    rounds.start()
    rounds.join(failures * 0.1 + 10)
    return run


def test_a_round_that_fails_is_tried_again() -> None:
    keep_house(2).check()


def test_housekeeping_that_never_works_is_a_named_error() -> None:
    run = keep_house(0)
    run._failed_rounds, run._housekeeping_problem = PATIENT_ROUNDS, "OSError: no space left"
    with pytest.raises(PenstockError) as caught:
        run.check()
    assert caught.value.name == "HOUSEKEEPING_FAILED"
    assert "no space left" in caught.value.message
