"""JSON and Mermaid of three topologies, compared with the files in golden/.

After a change that is meant, refresh the files and read the difference:

    PENSTOCK_REFRESH_GOLDEN=1 python -m pytest tests/unit/topology/test_drawing_golden.py && git diff tests/unit

Without that variable a golden file that differs or is missing fails the test.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import golden_topologies
import pytest

from penstock.topology import as_json, as_mermaid, as_text

FOLDER = Path(__file__).parent
REFRESH = os.environ.get("PENSTOCK_REFRESH_GOLDEN") == "1"
TOPOLOGIES = ("word_count", "orders", "awkward")


def compare(name: str, drawn: str) -> None:
    golden = FOLDER / "golden" / name
    drawn = drawn.replace(f"{FOLDER}{os.sep}", "")  # golden files know no machine
    if REFRESH:
        golden.write_text(drawn, encoding="utf-8")
    assert golden.exists(), f"{golden} is missing: see the top of this file"
    assert drawn == golden.read_text(encoding="utf-8")


def definition(name):
    return getattr(golden_topologies, name)().definition()


@pytest.mark.parametrize("name", TOPOLOGIES)
def test_json(name):
    compare(f"{name}.json", json.dumps(as_json(definition(name)), indent=2, ensure_ascii=False) + "\n")


@pytest.mark.parametrize("name", TOPOLOGIES)
def test_mermaid(name):
    compare(f"{name}.mmd", as_mermaid(definition(name)))


@pytest.mark.parametrize("name", TOPOLOGIES)
def test_text(name):
    compare(f"{name}.txt", as_text(definition(name)))


def test_drawing_twice_draws_the_same():
    assert as_json(definition("orders")) == as_json(definition("orders"))


def test_json_of_a_builtin_function_has_no_place():
    topology = golden_topologies.Topology("t")
    lines = topology.source("lines", golden_topologies.rows("n long"))
    topology.sink("out", golden_topologies.FakeSink(), inputs=[topology.map("m", next, inputs=lines, schema="n long")])
    drawn = next(operator for operator in as_json(topology.definition())["operators"] if operator["name"] == "m")
    assert drawn["function"] == {"name": "builtins.next", "where": None}
