"""The public interface is one list, with a second one for extensions, and nobody is told to use anything else."""

from __future__ import annotations

import importlib
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import penstock
from penstock import extending
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


def test_what_is_declared_with_is_found_where_it_always_was() -> None:
    for home in (
        penstock,
        importlib.import_module("penstock.topology.declaration"),
        importlib.import_module("penstock.topology"),
    ):
        assert (home.Output, home.Topology) == (penstock.Output, penstock.Topology)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="engine_room"):
        penstock.engine_room  # noqa: B018


def test_the_version_is_written_down_once() -> None:
    assert penstock.__version__ == VERSION
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())
    assert project["project"]["dynamic"] == ["version"]
    assert project["tool"]["setuptools"]["dynamic"]["version"] == {"attr": "penstock.version.VERSION"}


@pytest.mark.parametrize("name", extending.__all__)
def test_every_name_for_extensions_is_there(name: str) -> None:
    [(home, meaning)] = [names[name] for names in extending.EXTENDING.values() if name in names]
    assert getattr(extending, name) is getattr(importlib.import_module(home), name)
    assert meaning.endswith(".")


def test_the_list_for_extensions_is_complete_and_in_order() -> None:
    names = [name for names in extending.EXTENDING.values() for name in names]
    assert sorted(names) == extending.__all__ == sorted(set(extending.__all__))
    with pytest.raises(AttributeError, match="engine_room"):
        extending.engine_room  # noqa: B018


def test_a_source_or_sink_loads_nothing_that_only_a_driver_has() -> None:
    code = "import sys; from penstock.extending import SinkKind, SourceKind; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert "penstock.kinds" in loaded
    assert [name for name in loaded if name.startswith(("penstock.autoscaler", "penstock.api", "penstock.plans"))] == []


def strangers_code() -> dict[str, str]:
    """Everything that shows or tells a user what to import: pages, examples, recipes, the package of strangers."""
    recipes = (REPOSITORY / "CONTRIBUTING.md").read_text().partition("## Recipes for packages of your own")[2]
    files = [
        *(REPOSITORY / "docs").glob("*.md"),
        REPOSITORY / "README.md",
        *(REPOSITORY / "examples").rglob("*.py"),
        *(REPOSITORY / "tests" / "strangers").rglob("*.py"),
    ]
    return {file.name: file.read_text() for file in files} | {"CONTRIBUTING.md": recipes}


def test_users_and_authors_of_extensions_need_only_public_names() -> None:
    code = strangers_code()
    assert len(code) > 10
    assert "from penstock.extending import" in code["CONTRIBUTING.md"]
    imported = {
        (file, module)
        for file, text in code.items()
        for module in re.findall(r"(?:from|import) penstock\.([a-z_]+)", text)
    }
    assert [(file, module) for file, module in imported if module not in penstock.PUBLIC] == []
    inner = {file: re.findall(r"(?:from|import) penstock\.\w+\.\w+.*", text) for file, text in code.items()}
    assert {file: found for file, found in inner.items() if found} == {}
