"""The rules on who may import whom. An import counts wherever it is written, also for type checkers."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import penstock

ROOT = Path(penstock.__file__).parent
#: The only package that may load Spark when it is imported.
WITH_SPARK = "engine"
#: The one place outside the engine that imports it, when something is started.
STARTING_PLACE = "penstock.api.starting"
#: They run a topology's functions on given rows with the engine's own code, and are loaded only when asked for.
TRYING_OUT = {"penstock.testing.trial", "penstock.testing.local_spark"}
#: What the Python of an executor loads must not reach what only a driver has.
ONLY_ON_THE_DRIVER = ("penstock.api", "penstock.cli", "penstock.autoscaler", "penstock.strategies", "penstock.cluster")
#: Modules that import a room inside of their own folder, which imports the folder. The kinds of clusters are put
#: together in one place, beside what they share. A lab is a standalone cluster on another ground, and that ground is a
#: room of its own because it is large and for experiments only. With the choice elsewhere, nobody would find the kinds.
PUT_TOGETHER = {("penstock.cluster.choice", "penstock.cluster.lab")}
IMPORT_ALL = """
import importlib, sys
for name in {names!r}:
    importlib.import_module(name)
    spark = sorted(module for module in sys.modules if module.split(".")[0] in ("pyspark", "py4j"))
    assert not spark, f"{{name}} imports {{spark[0]}}"
"""


@cache
def modules() -> dict[str, Path]:
    """Every module of Penstock with its file."""
    found = {}
    for file in sorted(ROOT.rglob("*.py")):
        parts = file.relative_to(ROOT.parent).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = file
    return found


@cache
def imports() -> tuple[tuple[str, str], ...]:
    """(module, module of Penstock that it imports), wherever the import is written."""
    known = modules()
    return tuple(
        (name, imported)
        for name, file in known.items()
        for imported in _imported(ast.parse(file.read_text()), known)
        if imported != name
    )


def _imported(tree: ast.AST, known: dict[str, Path]) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, "imports are absolute"
            inside = [f"{node.module}.{alias.name}" for alias in node.names]
            names = [one if one in known else str(node.module) for one in inside]
        else:
            continue
        yield from (name for name in names if name in known)


def package_of(module: str) -> str:
    """The innermost folder of a module; a module beside the packages is by itself."""
    folder = modules()[module].parent
    return module if folder == ROOT else ".".join(folder.relative_to(ROOT.parent).parts)


def cycle(edges: dict[str, set[str]]) -> list[str]:
    """Some cycle, from a node back to itself; none if there is none."""
    done: set[str] = set()

    def search(node: str, path: list[str]) -> list[str]:
        if node in path:
            return [*path[path.index(node) :], node]
        if node in done:
            return []
        for other in sorted(edges.get(node, ())):
            if found := search(other, [*path, node]):
                return found
        done.add(node)
        return []

    return next((found for node in sorted(edges) if (found := search(node, []))), [])


def test_nothing_but_the_engine_loads_spark_not_even_through_something_else() -> None:
    loading = {"penstock.__main__", *TRYING_OUT}
    names = [name for name in modules() if name.split(".")[1:2] != [WITH_SPARK] and name not in loading]
    assert {"penstock.running", "penstock.api", "penstock.testing", "penstock.sources", "penstock.simulator"} <= set(
        names
    )
    answer = subprocess.run(
        [sys.executable, "-c", IMPORT_ALL.format(names=names)],
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": str(ROOT.parent)},
        check=False,
    )
    assert answer.returncode == 0, answer.stderr.splitlines()[-1]


def test_nobody_outside_the_engine_imports_it_but_the_place_that_starts_it() -> None:
    inside = ("penstock.engine.", "penstock.engine")
    found = {module for module, imported in imports() if imported.startswith(inside) and not module.startswith(inside)}
    assert found == {STARTING_PLACE, *TRYING_OUT}


def test_only_the_room_of_sparks_private_knowledge_knows_py4j() -> None:
    room = ROOT / "engine" / "spark"
    found = [name for name, file in modules().items() if "py4j" in file.read_text() and file.parent != room]
    assert found == []


def test_no_package_imports_one_that_imports_it() -> None:
    edges: dict[str, set[str]] = {}
    for module, imported in imports():
        if package_of(module) != package_of(imported) and (module, package_of(imported)) not in PUT_TOGETHER:
            edges.setdefault(package_of(module), set()).add(package_of(imported))
    assert cycle(edges) == []


def test_what_puts_a_room_together_is_needed_as_an_exception() -> None:
    assert {(module, package_of(imported)) for module, imported in imports()} >= PUT_TOGETHER


def test_no_module_imports_one_that_imports_it() -> None:
    edges: dict[str, set[str]] = {}
    for module, imported in imports():
        edges.setdefault(module, set()).add(imported)
    assert cycle(edges) == []


@pytest.mark.parametrize("room", ["message", "executor"])
def test_what_an_executor_loads_is_nothing_of_the_driver(room: str) -> None:
    inside = f"penstock.engine.{room}."
    allowed = ("penstock.cluster.model",)
    found = {
        f"{module} imports {imported}"
        for module, imported in imports()
        if module.startswith(inside) and imported.startswith(ONLY_ON_THE_DRIVER) and not imported.startswith(allowed)
    }
    assert not found


def test_a_cycle_is_found() -> None:
    assert cycle({"a": {"b", "c"}, "b": {"c"}, "c": {"d"}}) == []
    assert cycle({"a": {"b"}, "b": {"c"}, "c": {"b"}}) == ["b", "c", "b"]


def test_every_import_counts() -> None:
    known = {"penstock.a": Path(), "penstock.b": Path(), "penstock.c": Path()}
    text = """
if TYPE_CHECKING:
    from penstock import a
def later():
    from penstock.b import something
import penstock.c
import os
"""
    assert sorted(_imported(ast.parse(text), known)) == ["penstock.a", "penstock.b", "penstock.c"]
