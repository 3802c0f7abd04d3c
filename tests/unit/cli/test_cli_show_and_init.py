"""What the commands print that need no Spark, and that they do without it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import penstock
from penstock import PenstockError, Topology
from penstock.cli.loader import load
from penstock.cli.main import main
from penstock.settings import reference

WORD_COUNT = str(Path(__file__).parents[3] / "examples" / "word_count.py")


def test_show_draws_a_table(capsys):
    assert main(["show", WORD_COUNT]) == 0
    out = capsys.readouterr().out
    assert out.startswith("word_count: 4 operators, 3 streams (")
    assert "keyed by word" in out


SOCKET = """
from penstock import Topology, sinks, sources
topology = Topology("heard")
lines = topology.source("lines", sources.socket("localhost", 9999))
ten = topology.source("ten", sources.rate(10, rows=10))
topology.sink("out", sinks.noop(), inputs=[lines])
topology.sink("all", sinks.noop(), inputs=[ten])
"""


def test_show_tells_which_sources_end_and_which_can_be_read_again(tmp_path, capsys):
    (tmp_path / "heard.py").write_text(SOCKET)
    assert main(["show", str(tmp_path / "heard.py")]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "lines   never      rows that were not published are lost" in lines
    assert "ten     by itself  its rows are read again" in lines
    assert main(["show", str(tmp_path / "heard.py"), "--json"]) == 0
    operators = {one["name"]: one for one in json.loads(capsys.readouterr().out)["operators"]}
    assert (operators["lines"]["ends"], operators["lines"]["replayable"]) == (False, False)
    assert (operators["ten"]["ends"], operators["ten"]["replayable"]) == (True, True)
    assert "ends" not in operators["out"]


def test_show_draws_mermaid(capsys):
    assert main(["show", WORD_COUNT, "--mermaid"]) == 0
    assert capsys.readouterr().out.startswith("flowchart LR\n")


def test_show_gives_json(capsys):
    assert main(["show", WORD_COUNT, "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert [operator["name"] for operator in answer["operators"]] == ["spout", "split", "count", "out"]


@pytest.mark.parametrize("words", [["show", WORD_COUNT], ["settings"], ["--version"], ["init", "started"]])
def test_spark_is_not_even_imported(words, tmp_path):
    code = f"""
import sys
from penstock.cli.main import main
assert main({words!r}) == 0
assert not [name for name in sys.modules if name.split(".")[0] in ("pyspark", "py4j")]
"""
    source = str(Path(penstock.__file__).parents[1])
    environment = os.environ | {"PYTHONPATH": source}
    subprocess.run([sys.executable, "-c", code], check=True, cwd=tmp_path, env=environment)


def test_init_writes_a_topology_that_is_valid(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["init", "orders"]) == 0
    assert "penstock run orders.py" in capsys.readouterr().out
    definition = load("orders.py").topology.definition()
    assert definition.name == "orders"
    assert [operator.kind for operator in definition.operators] == ["source", "map", "keyed", "sink"]


def test_the_rows_of_the_starter_are_what_it_declares(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    main(["init", "orders.py", "--json"])
    module = load("orders.py").module
    rows = module.made_up(100, 40)
    assert rows.schema == load("orders.py").topology.definition().sources[0].spec.schema
    assert rows.slice(10, 30).equals(module.made_up(110, 30))
    assert 0 < module.warm(rows).num_rows < 40


def test_init_takes_the_names_that_a_topology_can_have_and_its_hint_says_which(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["init", "2nd_flow"]) == 0
    assert load("2nd_flow.py").topology.definition().name == "2nd_flow"
    assert main(["init", "_flow"]) == 2
    of_init = capsys.readouterr().err
    with pytest.raises(PenstockError) as caught:
        Topology("_flow").definition()
    assert of_init.startswith("BAD_NAME: ")
    assert caught.value.hint in of_init


def test_init_overwrites_nothing(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("orders.py").write_text("mine")
    assert main(["init", "orders"]) == 2
    assert capsys.readouterr().err.startswith("FILE_EXISTS: ")
    assert Path("orders.py").read_text() == "mine"


def test_settings_lists_every_one(capsys):
    assert main(["settings", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == reference()
    assert main(["settings"]) == 0
    assert all(row["name"] in capsys.readouterr().out for row in reference()[:1])


def test_version_and_help(capsys):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"penstock {penstock.__version__}\n"
    assert main([]) == 0
    assert "Commands:" in capsys.readouterr().out
    assert main(["run", "--help"]) == 0
    assert "Ctrl-C" in capsys.readouterr().out
