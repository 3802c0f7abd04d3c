"""What docs/lab.md tells a researcher to type is what Penstock understands."""

from __future__ import annotations

import re
import shlex
import textwrap
from pathlib import Path

import click
import pytest

from penstock import Topology
from penstock.cli.main import penstock

PAGE = (Path(__file__).parents[2] / "docs" / "lab.md").read_text()
#: Runs of lines that are indented: what is to be typed or written into a file.
BLOCKS = [
    textwrap.dedent(found).strip() for found in re.findall(r"(?:^(?: {4,}.*|)\n)+", PAGE, re.MULTILINE) if found.strip()
]
COMMANDS = sorted(
    {
        found.partition(">")[0].strip(" ;")
        for block in BLOCKS
        for found in re.findall(r"\bpenstock (?!import)[a-z-]+[^\n;&']*", block)
    }
)
POLICIES = ("stela", "storm")


def test_the_page_has_commands() -> None:
    assert {command.split()[1] for command in COMMANDS} >= {"run", "scale-out", "history", "status", "stop", "explain"}


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_is_understood(command: str, policy: str) -> None:
    _, name, *arguments = shlex.split(command.replace("$policy", policy))
    with click.Context(penstock) as context:
        found = penstock.get_command(context, name)
        assert found is not None, name
        found.make_context(name, arguments, parent=context)


def test_the_topology_can_be_declared() -> None:
    [code] = [block for block in BLOCKS if "import Topology" in block]
    names: dict[str, object] = {}
    exec(code, names)
    assert isinstance(names["topology"], Topology)
    definition = names["topology"].definition()
    assert [operator.name for operator in definition.operators] == ["rows", "first", "second", "out"]


def test_the_policies_exist_and_the_script_is_a_shells() -> None:
    import subprocess

    from penstock.plugins import POLICIES as KIND
    from penstock.plugins import names

    [script] = [block for block in BLOCKS if block.startswith("for policy in")]
    assert re.search(r"for policy in (.*); do", script)[1].split() == list(POLICIES)  # type: ignore[index]
    assert set(POLICIES) <= set(names(KIND))
    subprocess.run(["sh", "-n"], input=script, text=True, check=True)
