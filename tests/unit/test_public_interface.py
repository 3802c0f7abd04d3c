"""The public interface is one list, and nobody is told to use anything inside the engine."""

from __future__ import annotations

import importlib
import re
import tomllib
from pathlib import Path

import pytest

import penstock
from penstock.version import VERSION

REPOSITORY = Path(__file__).parents[2]


def test_the_list_is_complete_and_in_order() -> None:
    assert list(penstock.PUBLIC) == penstock.__all__ == sorted(penstock.__all__)


@pytest.mark.parametrize("name", penstock.__all__)
def test_every_name_is_there_and_says_what_it_is(name: str) -> None:
    assert getattr(penstock, name).__doc__
    home, meaning = penstock.PUBLIC[name]
    assert importlib.import_module(home)
    assert meaning.endswith(".")


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="engine_room"):
        penstock.engine_room  # noqa: B018


def test_the_version_is_written_down_once() -> None:
    assert penstock.__version__ == VERSION
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())
    assert project["project"]["dynamic"] == ["version"]
    assert project["tool"]["setuptools"]["dynamic"]["version"] == {"attr": "penstock.version.VERSION"}


def test_pages_and_examples_need_nothing_inside_the_engine() -> None:
    pages = [*(REPOSITORY / "docs").glob("*.md"), REPOSITORY / "README.md", *(REPOSITORY / "examples").rglob("*.py")]
    told = re.compile(r"(?:from|import) penstock\.engine")
    assert len(pages) > 5
    assert [page.name for page in pages if told.search(page.read_text())] == []
