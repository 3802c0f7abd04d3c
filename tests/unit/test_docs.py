"""The documentation names files that exist, figures that were measured, and nothing outside the repository."""

from __future__ import annotations

import importlib.util
import itertools
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "penstock"
DOCS = ROOT / "docs"
PAGES = sorted(
    page
    for page in ROOT.rglob("*.md")
    if not any(part.startswith(".") or part == "results" for part in page.relative_to(ROOT).parts)
)
#: A path with a folder, or a file by its ending.
_FILE = re.compile(r"`((?:[\w.-]+/)+[\w.-]*|[\w-]+\.(?:py|md|toml))`")
_LINK = re.compile(r"\]\(([^)#\s]+)(?:#[^)]*)?\)")
#: A link to a heading, of the same page if the path is empty.
_ANCHOR = re.compile(r"\]\(([^)#\s]*)#([^)\s]+)\)")
_HEADING = re.compile(r" {0,3}#{1,6}\s+(.+?)(?:\s+#+)?\s*")
_NUMBER = re.compile(r"(?<![\w.])\d[\d,]*(?:\.\d+)?")


def drawn(script: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(script, ROOT / "scripts" / f"{script}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[script] = module
    spec.loader.exec_module(module)
    return module


def test_every_file_that_the_architecture_names_exists():
    named = _FILE.findall((DOCS / "architecture.md").read_text())
    assert len(named) > 40
    missing = [name for name in named if not any((root / name).exists() for root in (ROOT, PACKAGE))]
    assert not missing


def test_every_room_is_in_the_architecture():
    page = (DOCS / "architecture.md").read_text()
    rooms = [folder.relative_to(PACKAGE) for folder in PACKAGE.rglob("*") if (folder / "__init__.py").exists()]
    # A room of a room is named where it matters where its code runs: those of the engine.
    expected = [room for room in rooms if str(room) != "engine" and (len(room.parts) == 1 or room.parts[0] == "engine")]
    assert [str(room) for room in expected if f"`{room}/`" not in page] == []


def test_the_drawings_are_not_stale():
    architecture = drawn("draw_architecture")
    page = (DOCS / "architecture.md").read_text()
    assert all(len(architecture.hops(page, way)) >= 8 for way in architecture.WAYS)
    assert (DOCS / "architecture.svg").read_text() == architecture.drawing(page), "run: make docs"
    assert (DOCS / "penstock.svg").read_text() == drawn("draw_front_page").drawing(), "run: make docs"


@pytest.mark.parametrize("page", PAGES, ids=[str(page.relative_to(ROOT)) for page in PAGES])
def test_links_lead_to_files_of_the_repository(page):
    for link in _LINK.findall(page.read_text()):
        if not link.startswith(("http://", "https://")):
            target = (page.parent / link).resolve()
            assert target.is_relative_to(ROOT), f"{link} is outside the repository"
            assert target.exists(), f"{link} does not exist"


@pytest.mark.parametrize("page", PAGES, ids=[str(page.relative_to(ROOT)) for page in PAGES])
def test_links_lead_to_headings_that_exist(page):
    for path, anchor in _ANCHOR.findall(page.read_text()):
        if not path.startswith(("http://", "https://")):
            target = page.parent / path if path else page
            assert target.suffix == ".md", f"{path}#{anchor} leads to no page"
            assert anchor in anchors(target.read_text()), f"{path or page.name} has no heading #{anchor}"


def test_the_anchors_are_those_that_github_makes():
    assert anchors("# What's `map_x`, *really*?\n\n## A - B ##\n") == ["whats-map_x-really", "a---b"]
    assert anchors("# One\n```\n# fenced\n```\n    # indented\n### One\n## [One](x.md#y)\n") == [
        "one",
        "one-1",
        "one-2",
    ]
    assert anchors("# One\n# One-1\n# One\n") == ["one", "one-1", "one-2"]
    assert _ANCHOR.findall("[a](#b) [c](d/e.md#f) [g](h.md)") == [("", "b"), ("d/e.md", "f")]


def anchors(text: str) -> list[str]:
    """The anchors of a page's headings, by GitHub's rule: small letters, hyphens for blanks, no other punctuation."""
    made: list[str] = []
    for heading in _headings(text):
        shown = re.sub(r"!?\[([^]]*)\]\([^)]*\)", r"\1", heading)
        slug = re.sub(r"[^\w\- ]", "", shown.lower()).replace(" ", "-")
        made.append(next(one for one in _numbered(slug) if one not in made))
    return made


def _headings(text: str) -> Iterator[str]:
    fenced = False
    for line in text.splitlines():
        if line.lstrip().startswith("```"):
            fenced = not fenced
        elif not fenced and (heading := _HEADING.fullmatch(line)):
            yield heading[1]


def _numbered(slug: str) -> Iterator[str]:
    """A heading that was there before gets a number behind it."""
    yield slug
    yield from (f"{slug}-{number}" for number in itertools.count(1))


def test_every_page_is_in_the_index():
    index = (DOCS / "index.md").read_text()
    missing = [page.name for page in DOCS.glob("*.md") if page.name != "index.md" and f"({page.name})" not in index]
    assert not missing


def test_every_example_is_in_the_list_of_examples():
    listed = (ROOT / "examples" / "README.md").read_text()
    assert [file.name for file in (ROOT / "examples").glob("*.py") if f"]({file.name})" not in listed] == []


def test_every_figure_of_the_benchmarks_was_measured():
    """Every number of a table stands in a results page that its section links to, rounded at most."""
    chapters = (DOCS / "benchmarks.md").read_text().split("\n## ")[1:-1]
    for section in (section for chapter in chapters for section in chapter.split("\n### ")):
        pages = set(re.findall(r"benchmarks/results/(\w+\.md)", section))
        measured = [
            _value(number)
            for page in pages
            for number in _NUMBER.findall((ROOT / "benchmarks" / "results" / page).read_text())
        ]
        for line in section.splitlines():
            if line.startswith("| ") and not line.startswith("| ---"):
                for number in _NUMBER.findall(re.sub(r"`[^`]*`|p\d\d", "", line)):
                    decimals = len(number.partition(".")[2])
                    assert any(round(one, decimals) == _value(number) for one in measured), f"{number} in {line}"


def _value(number: str) -> float:
    return float(number.replace(",", ""))
