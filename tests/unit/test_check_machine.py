"""scripts/check-machine: the Python to use, or one sentence that says what to install."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts" / "check-machine"
#: What the script itself calls, beside the shell.
TOOLS = ("sh", "sed", "head")


@pytest.fixture
def machine(tmp_path):
    """A PATH with nothing but what is put there; `check` runs the script on it."""
    programs = tmp_path / "bin"
    programs.mkdir()
    for tool in TOOLS:
        found = next(Path(folder, tool) for folder in os.defpath.split(":") if folder and Path(folder, tool).exists())
        (programs / tool).symlink_to(found)

    class Machine:
        def has(self, name: str, script: str) -> None:
            program = programs / name
            program.write_text(f"#!/bin/sh\n{script}\n")
            program.chmod(0o755)

        def check(self, **variables: str) -> subprocess.CompletedProcess[str]:
            environment = {"PATH": str(programs), **variables}
            return subprocess.run([SCRIPT], capture_output=True, text=True, env=environment, check=False)

    return Machine()


def java(version: str) -> str:
    return f"echo 'openjdk version \"{version}\" 2024-01-01' >&2"


def test_the_newest_python_and_a_java_that_is_new_enough(machine):
    for name in ("python3.12", "python3.11", "python3"):
        machine.has(name, "exit 0")
    machine.has("java", java("17.0.15"))
    answer = machine.check()
    assert (answer.returncode, answer.stdout, answer.stderr) == (0, "python3.12\n", "")


def test_an_old_python_is_passed_over(machine):
    machine.has("python3.12", "exit 1")
    machine.has("python3", "exit 0")
    machine.has("java", java("21"))
    assert machine.check().stdout == "python3\n"


@pytest.mark.parametrize(
    ("programs", "wanted"),
    [
        ({"java": java("17.0.1")}, "Python 3.11"),
        ({"python3": "exit 1", "java": java("17.0.1")}, "Python 3.11"),
        ({"python3": "exit 0"}, "there is no java"),
        ({"python3": "exit 0", "java": "echo 'no Java runtime present' >&2; exit 1"}, "does not run"),
        ({"python3": "exit 0", "java": java("1.8.0_402")}, "is Java 8"),
        ({"python3": "exit 0", "java": java("11.0.2")}, "is Java 11"),
    ],
)
def test_what_is_missing_is_one_sentence(machine, programs, wanted):
    for name, script in programs.items():
        machine.has(name, script)
    answer = machine.check()
    assert (answer.returncode, answer.stdout) == (1, "")
    [sentence] = answer.stderr.splitlines()
    assert wanted in sentence
    assert "install" in sentence


def test_java_home_comes_first(machine):
    machine.has("python3", "exit 0")
    machine.has("java", java("17.0.15"))
    assert "/nowhere/bin/java" in machine.check(JAVA_HOME="/nowhere").stderr
