"""The counted way of a decision (docs/design/0031-hops.md) is the way that the code goes, as far as a test can see."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import penstock

ROOT = Path(penstock.__file__).parent
PAGE = Path(__file__).parents[2] / "docs" / "design" / "0031-hops.md"
_HOP = re.compile(r"^\| \d+ \| `([^`]+)` \| `([^`]+)` \| `([^`]+)` \| (yes)? *\|$", re.MULTILINE)
_COUNT = re.compile(r"^\| after \| (\d+) \| (\d+) \| (\d+) \|$", re.MULTILINE)
#: Half of what was counted before the house was rebuilt.
MOST_FOLDER_CHANGES = 11
HOPS = [(one, other, call, bool(said)) for one, other, call, said in _HOP.findall(PAGE.read_text())]


def changes_folder(one: str, other: str) -> bool:
    return one.split("/", maxsplit=1)[0] != other.split("/", maxsplit=1)[0]


@pytest.mark.parametrize(("one", "other", "call", "said"), HOPS, ids=str)
def test_a_hop_is_a_call_that_is_there(one: str, other: str, call: str, said: bool) -> None:
    assert re.search(rf"\b_?{call}\b", (ROOT / one).read_text()), f"{one} does not call {call}"
    assert re.search(rf"\b(def|class) _?{call}\b", (ROOT / other).read_text()), f"{other} does not define {call}"
    assert said == changes_folder(one, other)


def test_the_counts_are_those_of_the_table() -> None:
    [(hops, files, folder_changes)] = _COUNT.findall(PAGE.read_text())
    assert int(hops) == len(HOPS) > 40
    assert int(files) == len({file for one, other, *_ in HOPS for file in (one, other)})
    assert int(folder_changes) == sum(said for *_, said in HOPS) <= MOST_FOLDER_CHANGES
