"""Every kind of mistake through the real command line: exit code 2, a named error with file and line, no traceback."""

from __future__ import annotations

import itertools
import json
import tempfile
from pathlib import Path

import pytest
from full_disk import no_room

from penstock.cli import loader
from penstock.cli.main import main
from penstock.errors import ERRORS

START = """\
import pyarrow as pa
from penstock import Topology, aggregates, sinks, sources

def same(batch):
    return batch

def frame(rows):
    return rows

t = Topology("t")
"""
LINES = 's = t.source("s", sources.rate(1, sources.sentences()))\n'
OUT = 't.sink("out", sinks.noop(), inputs=["m"])\n'
SCHEMA = 'schema="sentence string"'

#: name -> a file with that mistake; the line that the error must point at ends with #!
MISTAKES = {
    "BAD_NAME": START + 's = t.source("a b", sources.rate(1)) #!\nt.sink("out", sinks.noop(), inputs=s)\n',
    "DUPLICATE_NAME": START + LINES + f't.map("s", same, inputs=s, {SCHEMA}) #!\nt.sink("o", sinks.noop(), inputs=s)\n',
    "UNKNOWN_OPERATOR": START + LINES + 't.sink("out", sinks.noop(), inputs=["nobody"]) #!\n',
    "UNKNOWN_OUTPUT": START + LINES + 't.sink("out", sinks.noop(), inputs=[s["late"]]) #!\n',
    "UNUSED_OPERATOR": START
    + LINES
    + f't.map("m", same, inputs=s, {SCHEMA}) #!\nt.sink("o", sinks.noop(), inputs=s)\n',
    "NO_SOURCE": START.replace('Topology("t")', 'Topology("t") #!'),
    "NO_SINK": (START + LINES).replace('Topology("t")', 'Topology("t") #!'),
    "NO_INPUT": START + LINES + 't.sink("o", sinks.noop(), inputs=s)\nt.sink("out", sinks.noop(), inputs=[]) #!\n',
    "CYCLE": START
    + LINES
    + f't.map("m", same, inputs=[s, "n"], {SCHEMA}) #!\nt.map("n", same, inputs=["m"], {SCHEMA})\n'
    + OUT,
    "DUPLICATE_STREAM": START + LINES + 't.sink("out", sinks.noop(), inputs=[s, s]) #!\n',
    "BAD_SCHEMA": START + LINES + 't.map("m", same, inputs=s, schema="word strin") #!\n' + OUT,
    "SCHEMA_MISMATCH": START
    + LINES
    + 'n = t.source("n", sources.rate(1))\n'
    + f't.map("m", same, inputs=[s, n], {SCHEMA}) #!\n'
    + OUT,
    "UNKNOWN_KEY": START + LINES + f't.keyed("m", frame, inputs=s, key="word", {SCHEMA}) #!\n' + OUT,
    "BAD_KEY": START
    + 's = t.source("s", sources.rate(1, sources.generated(lambda a, n: None, "x double")))\n'
    + 't.keyed("m", frame, inputs=s, key="x", schema="x double") #!\n'
    + OUT,
    "BAD_INSTANCES": START + LINES + f't.map("m", same, inputs=s, {SCHEMA}, instances=0) #!\n' + OUT,
    "MORE_INSTANCES_THAN_TASKS": START
    + LINES
    + f't.keyed("m", frame, inputs=s, key="sentence", {SCHEMA}, tasks=2, instances=3) #!\n'
    + OUT,
    "BAD_FUNCTION": START + LINES + f't.map("m", "same", inputs=s, {SCHEMA}) #!\n' + OUT,
    "FUNCTION_SCHEMA": START + LINES + 't.map("m", same, inputs=s, schema="word string") #!\n' + OUT,
    "BAD_GROUPING": START + LINES + f't.keyed("m", frame, inputs=s.broadcast(), key="sentence", {SCHEMA}) #!\n' + OUT,
    "BAD_CHAINING": START + LINES + f't.map("m", same, inputs=s, {SCHEMA}, chained="no") #!\n' + OUT,
    "BAD_ON_ERROR": START + LINES + f't.map("m", same, inputs=s, {SCHEMA}, on_error="shrug") #!\n' + OUT,
    "BAD_OUTPUT_MODE": START
    + LINES
    + f't.keyed("m", frame, inputs=s, key="sentence", {SCHEMA}, output_mode="all") #!\n'
    + OUT,
    "UPDATES_AS_ROWS": START
    + LINES
    + f't.keyed("k", frame, inputs=s, key="sentence", {SCHEMA})\n'
    + f't.keyed("m", frame, inputs="k", key="sentence", {SCHEMA}) #!\n'
    + OUT,
    "BAD_AGGREGATE": START
    + LINES
    + 't.sink("o", sinks.noop(), inputs=s)\n'
    + 't.aggregate("m", {"n": aggregates.sum("nothing")}, inputs=s, key="sentence") #!\n',
    "BAD_PROCESSOR": START + LINES + f't.stateful("m", int, inputs=s, key="sentence", {SCHEMA}) #!\n' + OUT,
    "BAD_STATE": START
    + LINES
    + "from penstock import state\n"
    + "class P(state.Processor):\n"
    + '    seen = state.value("n array<int>") #!\n'
    + "    def rows(self, key, rows):\n"
    + "        return ()\n"
    + f't.stateful("m", P, inputs=s, key="sentence", {SCHEMA})\n'
    + OUT,
    "BAD_SOURCE": START + 's = t.source("s", sources.rate(-1)) #!\n',
    "BAD_SINK": START + LINES + 't.sink("out", sinks.parquet(""), inputs=s) #!\n',
    "NO_TOPOLOGY": '"""Nothing here.""" #!\n',
    "SEVERAL_TOPOLOGIES": START + 'u = Topology("u") #!\n',
}
#: The same for files that Python itself cannot load.
NOT_PYTHON = {
    "syntax": "x = 1\nif x\n",
    "tab": "def f():\n    x = 1\n\ty = 2\n",
    "raises": "x = 1\nx / 0\n",
    "unknown module": "x = 1\nimport a_module_that_is_not_there\n",
    "ends": "import sys\nsys.exit(3)\n",
    "no text": "x = 1\ny = '\x00'\n",
}


def lines_of(captured):
    assert captured.out == ""
    assert "Traceback" not in captured.err
    return captured.err.splitlines()


@pytest.mark.parametrize("command", ["run", "show"])
@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_in_the_file(command, name, write, capsys):
    path = write(MISTAKES[name])
    line = next(number for number, text in enumerate(path.read_text().splitlines(), 1) if "#!" in text)
    assert main([command, str(path)]) == 2
    [error] = lines_of(capsys.readouterr())
    assert error.startswith(f"{path}:{line}: {name}: ")


def test_there_is_a_file_for_everything_that_can_be_declared_wrong():
    declared = itertools.takewhile(lambda name: name != "BAD_COMMAND", ERRORS)
    assert set(declared) <= set(MISTAKES)


@pytest.mark.parametrize("kind", NOT_PYTHON)
def test_a_file_that_python_cannot_load(kind, write, capsys):
    path = write(NOT_PYTHON[kind])
    assert main(["run", str(path)]) == 2
    [error] = lines_of(capsys.readouterr())
    assert error.startswith(f"{path}:")
    assert ": FILE_NOT_PYTHON: " in error
    if kind not in ("tab", "no text"):
        assert error.startswith(f"{path}:2: ")


FILE = object()


@pytest.mark.parametrize(
    ("words", "name"),
    [
        (["run"], "BAD_COMMAND"),
        (["fly"], "BAD_COMMAND"),
        (["run", FILE, "--nonsense"], "BAD_COMMAND"),
        (["run", FILE, "--cluster", "moon"], "BAD_COMMAND"),
        (["run", FILE, "--seconds", "soon"], "BAD_COMMAND"),
        (["run", FILE, "--seconds", "0"], "BAD_COMMAND"),
        (["run", FILE, "--seconds", "nan"], "BAD_COMMAND"),
        (["run", FILE, "--set", "rows_at_once"], "BAD_COMMAND"),
        (["run", FILE, "--forget", "s"], "BAD_COMMAND"),
        (["run", FILE, "--forget-decisions", "--throughput", "100"], "BAD_COMMAND"),
        (["run", FILE, "--forget-decisions", "--state", "s"], "BAD_GOAL"),
        (["run", FILE, "--set", "colour=red"], "UNKNOWN_SETTING"),
        (["run", FILE, "--set", "batch_linger=0.02"], "UNKNOWN_SETTING"),
        (["run", FILE, "--set", "rows_at_once=many"], "BAD_SETTING"),
        (["run", FILE, "--cores", "0"], "BAD_SETTING"),
        (["run", FILE, "--machines", "2"], "BAD_CLUSTER"),
        (["run", FILE, "--slots", "0"], "BAD_CLUSTER"),
        (["run", FILE, "--cluster", "standalone", "--machines", "0"], "BAD_CLUSTER"),
        (["run", FILE, "--throughput", "-1"], "BAD_GOAL"),
        (["run", FILE, "--throughput", "100", "--set", "monitoring=off"], "BAD_GOAL"),
        (["run", FILE, "--policy", "threshold", "--set", "monitoring=off"], "BAD_GOAL"),
        (["run", FILE, "--throughput", "100", "--set", "freeze=always"], "BAD_SETTING"),
        (["run", FILE, "--cluster", "standalone", "--throughput", "0"], "BAD_GOAL"),
        (["run", FILE, "--cluster", "standalone", "--machines-max", "0"], "BAD_GOAL"),
        (["run", FILE, "--strategy", "magic"], "UNKNOWN_STRATEGY"),
        (["run", FILE, "--policy", "magic"], "UNKNOWN_STRATEGY"),
        (["run", FILE, "--policy", "threshold", "--throughput", "100"], "BAD_GOAL"),
        (["run", FILE, "--policy", "threshold", "--set", "threshold_in=0.35"], "BAD_THRESHOLDS"),
        (["run", FILE, "--cluster", "attached"], "BAD_CLUSTER"),
        (["run", FILE, "--cluster", "standalone", "--master", "spark://a:1"], "BAD_CLUSTER"),
        (["run", FILE, "--master", "spark://a:1", "--slots", "2"], "BAD_CLUSTER"),
        (["run", "nowhere.py"], "FILE_NOT_FOUND"),
        (["show", "."], "FILE_NOT_FOUND"),
        (["init", "no/such/folder/flow"], "FILE_NOT_FOUND"),
        (["init", "two words"], "BAD_NAME"),
    ],
)
@pytest.mark.parametrize("as_json", [False, True])
def test_a_mistake_in_the_command(words, name, as_json, write, capsys):
    path = write(START + LINES + 't.sink("out", sinks.noop(), inputs=s)\n')
    given = [str(path) if word is FILE else word for word in words] + ["--json"] * as_json
    assert main(given) == 2
    captured = capsys.readouterr()
    if as_json:
        assert json.loads(captured.out)["error"] == name
        assert captured.err == ""
    else:
        assert "\n".join(lines_of(captured)).startswith(f"{name}: ")


def test_with_json_an_error_is_one_object(write, capsys):
    path = write("print('a file may print')\n" + MISTAKES["NO_SINK"])
    assert main(["run", str(path), "--json"]) == 2
    captured = capsys.readouterr()
    answer = json.loads(captured.out)
    assert answer["error"] == "NO_SINK"
    assert answer["where"] == {"file": str(path), "line": 11}
    assert captured.err == "a file may print\n"


def test_two_kinds_of_drawing_at_once(write, capsys):
    assert main(["show", str(write(START)), "--mermaid", "--json"]) == 2
    assert json.loads(capsys.readouterr().out)["error"] == "BAD_COMMAND"


def test_no_java_is_a_named_error(write, capsys, monkeypatch):
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    assert main(["run", str(write(START + LINES + 't.sink("out", sinks.noop(), inputs=s)\n'))]) == 2
    assert capsys.readouterr().err.startswith("JAVA_MISSING: ")


def test_a_bug_of_ours_is_one_line_and_the_traceback_is_in_a_file(capsys, monkeypatch):
    def broken(target):
        raise RuntimeError("never thought\nof this")

    monkeypatch.setattr(loader, "load", broken)
    assert main(["show", "flow.py"]) == 1
    [error] = lines_of(capsys.readouterr())
    assert error.startswith("INTERNAL: RuntimeError: never thought of this.")
    log = Path(error.split()[-1].rstrip("."))
    assert "Traceback" in log.read_text()
    log.unlink()


def test_a_bug_on_a_full_disk_is_one_line_too(capsys, monkeypatch, tmp_path):
    def broken(target):
        raise RuntimeError("never thought of this")

    monkeypatch.setattr(loader, "load", broken)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with no_room():
        assert main(["show", "flow.py"]) == 1
    [error] = lines_of(capsys.readouterr())
    assert error.startswith(
        "INTERNAL: RuntimeError: never thought of this. This is a bug in Penstock; please report it"
    )
    assert "penstock-internal-" not in error, "what is there of the file tells nothing"
