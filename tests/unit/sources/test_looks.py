"""When the driver asks again what there is to read."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from penstock.kinds import SourcePlace
from penstock.sources.looks import MOST_SECONDS, TOLD_SECONDS, Looks, thinned


class Asked:
    def __init__(self, lingers: float | None = 0.015) -> None:
        self.now, self.lingers = 100.0, lingers
        notes: Any = SimpleNamespace()
        asked = None if lingers is None else lambda: self.lingers or 0.0
        self.looks = Looks(SourcePlace("in", notes, lambda: self.now, lingers=asked))


def test_the_first_look_is_due_and_the_next_one_when_rows_have_lingered() -> None:
    asked = Asked()
    assert asked.looks.due_in() == 0
    asked.looks.looked(news=True)
    assert asked.looks.due_in() == pytest.approx(0.015)
    asked.lingers = 0.03  # the driver is busy
    asked.looks.looked(news=True)
    assert asked.looks.due_in() == pytest.approx(0.03)


def test_the_time_between_two_looks_grows_with_the_silence_up_to_a_bound() -> None:
    asked = Asked()
    asked.looks.looked(news=True)
    found = []
    for _ in range(100):
        asked.now += asked.looks.due_in()
        asked.looks.looked(news=False)
        found.append(asked.looks.due_in())
    assert found == sorted(found)
    assert found[0] == pytest.approx(0.015)
    assert found[-1] == pytest.approx(MOST_SECONDS)
    asked.looks.looked(news=True)
    assert asked.looks.due_in() == pytest.approx(0.015)


@pytest.mark.parametrize("lingers", [None, 2.0])
def test_it_never_grows_beyond_that(lingers: float | None) -> None:
    asked = Asked(lingers)
    asked.looks.looked(news=True)
    assert asked.looks.due_in() == pytest.approx(MOST_SECONDS)


def test_whoever_is_told_does_not_ask_and_looks_as_soon_as_rows_may_come() -> None:
    asked = Asked()
    asked.looks.looked(news=False, is_told=True)
    assert asked.looks.due_in() == pytest.approx(TOLD_SECONDS)
    asked.looks.hurry()
    assert asked.looks.due_in() == pytest.approx(0.015), "not sooner than where rows come all the time"
    asked.looks.looked(news=False, is_told=True)
    asked.now += 0.5
    asked.looks.hurry()
    assert asked.looks.due_in() == 0
    asked.looks.looked(news=False, is_told=True)
    asked.looks.untold()
    assert asked.looks.due_in() == pytest.approx(MOST_SECONDS)


def test_without_an_answer_nobody_is_in_a_hurry_and_where_more_is_there_somebody_is() -> None:
    asked = Asked()
    asked.looks.failed()
    assert asked.looks.due_in() == pytest.approx(MOST_SECONDS)
    asked.looks.at_once()
    assert asked.looks.due_in() == 0


def test_of_many_answers_the_oldest_stays() -> None:
    answers: list[int] = []
    for number in range(10_000):
        answers = [*thinned(answers, 16), number]
    assert len(answers) <= 16
    assert answers[0] == 0
    assert answers[-1] == 9_999
