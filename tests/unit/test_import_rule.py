"""The rule of docs/architecture.md: what is declared, decided and modelled never imports Spark, not even indirectly."""

from __future__ import annotations

import importlib.util
import os
import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest

import penstock

#: Those that do not exist yet are held to the rule from their first day.
WITHOUT_SPARK = (
    "aggregates",
    "topology",
    "cluster.model",
    "monitor.snapshot",
    "monitor.sampling",
    "monitor.monitor",
    "models",
    "strategies",
    "simulator",
    "settings",
    "errors",
    "sources",
    "sinks",
)
IMPORT_ALL = """
import importlib, sys
for name in {names!r}:
    importlib.import_module(name)
    spark = sorted(module for module in sys.modules if module.split(".")[0] in ("pyspark", "py4j"))
    assert not spark, f"{{name}} imports {{spark[0]}}"
"""


def modules_of(name: str) -> list[str]:
    """A module or package and everything below it; nothing if it is not there."""
    try:
        spec = importlib.util.find_spec(f"penstock.{name}")
    except ModuleNotFoundError:
        return []
    if spec is None:
        return []
    below = pkgutil.walk_packages(spec.submodule_search_locations or [], f"penstock.{name}.")
    return [f"penstock.{name}", *(module.name for module in below)]


@pytest.mark.parametrize("name", [name for name in WITHOUT_SPARK if modules_of(name)])
def test_it_never_imports_spark(name):
    source = str(Path(penstock.__file__).parents[1])
    code = IMPORT_ALL.format(names=modules_of(name))
    answer = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": source},
        check=False,
    )
    assert answer.returncode == 0, answer.stderr.splitlines()[-1]
