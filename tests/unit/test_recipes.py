"""Every recipe of CONTRIBUTING.md is followed, in a copy of the package, and the test that it ends with passes."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

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


def test_every_block_of_a_recipe_is_a_step():
    for recipe in RECIPES:
        assert len(STEP.findall(recipe)) == recipe.count("```") / 2, recipe.splitlines()[0]


@pytest.mark.parametrize("recipe", RECIPES, ids=[recipe.splitlines()[0] for recipe in RECIPES])
def test_the_recipe_works(recipe, tmp_path):
    shutil.copytree(ROOT / "src", tmp_path / "src", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    tests = follow(recipe, tmp_path)
    assert tests, "a recipe ends with a test"
    path = os.pathsep.join([str(tmp_path / "src"), str(tmp_path)])
    answer = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(tmp_path), *map(str, tests)],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert answer.returncode == 0, answer.stdout + answer.stderr
