"""How a run ended, in words: nothing is called delivered that may still be inside."""

from __future__ import annotations

import pytest

from penstock.engine.run.ending import ended_in_words

EVERYTHING = "everything had reached the sinks"


def test_all_is_there() -> None:
    assert ended_in_words(True, {}, []) == EVERYTHING
    assert ended_in_words(False, {}, []).startswith("rows were still on their way")


@pytest.mark.parametrize(
    ("inside", "says"),
    [
        (({"windows": 3}, [], []), '3 results in "windows"'),
        (({}, ["windows"], []), 'not known whether results are left inside "windows"'),
        (({}, [], ["join"]), 'rows that are kept in "join" may not have given all of their results'),
    ],
)
def test_what_is_inside_has_not_reached_the_sinks(
    inside: tuple[dict[str, int], list[str], list[str]], says: str
) -> None:
    how = ended_in_words(True, *inside)
    assert EVERYTHING not in how
    assert how.startswith("no row was on its way any more; ")
    assert says in how
