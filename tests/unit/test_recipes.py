"""Every recipe of CONTRIBUTING.md is followed, in a copy of the package, and the test that it ends with passes."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

#: One process follows all recipes.
pytestmark = pytest.mark.xdist_group("recipes")

ROOT = Path(__file__).parents[2]
RECIPES = re.findall(r"^### (.*?)(?=^##|\Z)", (ROOT / "CONTRIBUTING.md").read_text(), re.MULTILINE | re.DOTALL)
#: What a recipe says to do: change a file, or write a new one; the block says how.
STEP = re.compile(r"^(In|Write) `([^`]+)`:\n\n```\w+\n(.*?)^```", re.MULTILINE | re.DOTALL)


def follow(recipe: str, folder: Path) -> list[Path]:
    """Do what the recipe says; returns the files of tests that it wrote."""
    tests = []
    for verb, name, block in STEP.findall(recipe):
        file = folder / name
        if verb == "In":
            file.write_text(changed(file.read_text(), block, name))
            continue
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(block)
        if file.name.startswith("test_"):
            tests.append(file)
    return tests


def changed(text: str, diff: str, name: str) -> str:
    """The text with a diff applied: its lines begin with + or - where something changes."""
    lines = [(line[:1], line[1:]) for line in diff.splitlines(keepends=True)]
    lines = [(mark, line) if mark != "\n" else (" ", "\n") for mark, line in lines]
    before = "".join(line for mark, line in lines if mark != "+")
    assert text.count(before) == 1, f"{name} does not have these lines once:\n{before}"
    return text.replace(before, "".join(line for mark, line in lines if mark != "-"))


def bring_bytecode(folder: Path) -> None:
    """The copied package need not be compiled again: its files are as old as those that were compiled."""
    for file in (folder / "src").rglob("*.py"):
        compiled = Path(importlib.util.cache_from_source(str(ROOT / file.relative_to(folder))))
        if compiled.exists():
            copy = Path(importlib.util.cache_from_source(str(file)))
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(compiled, copy)


def test_every_block_of_a_recipe_is_a_step():
    for recipe in RECIPES:
        assert len(STEP.findall(recipe)) == recipe.count("```") / 2, recipe.splitlines()[0]


@pytest.fixture(scope="module")
def passed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[int, str]]:
    """All recipes followed one after the other, as a developer would: by recipe, how many of its tests ran, and what
    went wrong in them. One process runs them all, because to start one costs more than the tests."""
    folder = tmp_path_factory.mktemp("recipes")
    shutil.copytree(ROOT / "src", folder / "src", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    bring_bytecode(folder)
    tests = {recipe: follow(recipe, folder) for recipe in RECIPES}
    report = folder / "report.xml"
    files = [str(test) for own in tests.values() for test in own]
    options = ["-q", "-p", "no:cacheprovider", f"--rootdir={folder}", f"--junitxml={report}", "-ojunit_family=xunit1"]
    answer = subprocess.run(
        [sys.executable, "-m", "pytest", *options, *files],
        cwd=folder,
        env=os.environ
        | {
            "PYTHONPATH": os.pathsep.join([str(folder / "src"), str(folder)]),
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",  # to import plugins that no recipe needs takes seconds
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert report.exists(), answer.stdout + answer.stderr
    cases = list(ElementTree.parse(report).iter("testcase"))
    found = {}
    for recipe, own in tests.items():
        names = {test.relative_to(folder).as_posix() for test in own}
        mine = [case for case in cases if case.get("file") in names]
        wrong = "".join(str(part.text) for case in mine for part in case if part.tag in ("failure", "error", "skipped"))
        found[recipe] = (len(mine), wrong or ("" if mine else answer.stdout + answer.stderr))
    return found


@pytest.mark.parametrize("recipe", RECIPES, ids=[recipe.splitlines()[0] for recipe in RECIPES])
def test_the_recipe_works(recipe: str, passed: dict[str, tuple[int, str]]) -> None:
    ran, wrong = passed[recipe]
    assert ran, f"a recipe ends with a test\n{wrong}"
    assert not wrong, wrong
