"""The counted ways of a decision and of a row (docs/design/0031-hops.md) are the ways that the code goes, as far as a
test can see."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import penstock

ROOT = Path(penstock.__file__).parent
TEXT = (Path(__file__).parents[2] / "docs" / "design" / "0031-hops.md").read_text()
_HOP = re.compile(r"^\| \d+ \| `([^`]+)` \| `([^`]+)` \| `([^`]+)` \| (yes)? *\|$", re.MULTILINE)
Hop = tuple[str, str, str, bool]


def hops_of(way: str) -> list[Hop]:
    """The hops of the table below this heading."""
    table = TEXT.partition(f"### {way}\n")[2].partition("\n#")[0]
    return [(one, other, call, bool(said)) for one, other, call, said in _HOP.findall(table)]


DECISION, ROW = hops_of("The way of a decision"), hops_of("The way of a row")


def changes_folder(one: str, other: str) -> bool:
    return one.split("/", maxsplit=1)[0] != other.split("/", maxsplit=1)[0]


@pytest.mark.parametrize(("one", "other", "call", "said"), [*DECISION, *ROW], ids=str)
def test_a_hop_is_a_call_that_is_there(one: str, other: str, call: str, said: bool) -> None:
    assert re.search(rf"\b_?{call}\b", (ROOT / one).read_text()), f"{one} does not call {call}"
    assert re.search(rf"\b(def|class) _?{call}\b", (ROOT / other).read_text()), f"{other} does not define {call}"
    assert said == changes_folder(one, other)


@pytest.mark.parametrize(
    ("line", "hops", "least", "most_folder_changes"),
    [("after", DECISION, 40, 9), ("the way of a row", ROW, 20, 6)],
)
def test_the_counts_are_those_of_the_tables(line: str, hops: list[Hop], least: int, most_folder_changes: int) -> None:
    [(found, files, folder_changes)] = re.findall(rf"^\| {line} \| (\d+) \| (\d+) \| (\d+) \|", TEXT, re.MULTILINE)
    assert int(found) == len(hops) > least
    assert int(files) == len({file for one, other, *_ in hops for file in (one, other)})
    assert int(folder_changes) == sum(said for *_, said in hops) <= most_folder_changes
