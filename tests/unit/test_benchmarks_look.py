"""Every benchmark takes ROUNDS=1 for a look; a look does not overwrite results, and what fails ends with bars."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

import idle
import soak
from results import Bar, named

from penstock import PenstockError

ROOT = Path(__file__).parents[2]
MAKEFILE = (ROOT / "Makefile").read_text()
#: Target -> its recipe, of those that run a benchmark.
RECIPES = {
    target: recipe
    for target, recipe in re.findall(r"^([a-z-]+):[^\n]*\n((?:\t[^\n]*\n)+)", MAKEFILE, re.MULTILINE)
    if "benchmarks/" in recipe
}


def test_all_benchmarks_are_found() -> None:
    assert len(RECIPES) == 14


@pytest.mark.parametrize("target", RECIPES)
def test_every_benchmark_takes_rounds(target: str) -> None:
    recipe = RECIPES[target]
    assert "$${ROUNDS:+--rounds $$ROUNDS}" in recipe
    [script] = re.findall(r"benchmarks/\w+\.py", recipe)
    assert '"--rounds"' in (ROOT / script).read_text()


def test_a_look_has_a_name_of_its_own() -> None:
    assert named("idle", is_whole=True) == "idle"
    assert named("idle", is_whole=False) == "idle-look"


@pytest.mark.parametrize(
    ("arguments", "minutes"), [([], 60), (["--rounds", "1"], 12), (["--minutes", "3", "--rounds", "1"], 3)]
)
def test_a_round_of_the_soak_is_two_cycles(arguments: list[str], minutes: float) -> None:
    assert soak.minutes_of(arguments) == minutes


def idle_run(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> tuple[str, list[Bar]]:
    """The name and the bars of the results, of a topology that does not start."""
    written: list[tuple[str, list[Bar]]] = []

    def fails(*_: object, **__: object) -> None:
        raise PenstockError("CLUSTER_FAILED", "the master did not start.", "See its log.")

    monkeypatch.setattr(idle, "launch", fails)
    monkeypatch.setattr(idle, "write_results", lambda name, lines, bars, on: written.append((name, bars)))
    monkeypatch.setattr(sys, "argv", ["idle.py", *arguments])
    assert idle.main() == 1
    return written[0]


def test_an_idle_topology_that_fails_ends_with_bars(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    name, bars = idle_run(monkeypatch)
    assert name == "idle"
    assert [bar.met for bar in bars] == [False, False]
    said = capsys.readouterr().out
    assert "the master did not start" in said
    assert said.count("BAR idle: ") == 2


def test_a_minute_of_idling_is_a_look(monkeypatch: pytest.MonkeyPatch) -> None:
    assert idle_run(monkeypatch, "--minutes", "1")[0] == "idle-look"
    assert idle_run(monkeypatch, "--pipelines", "2")[0] == "idle-look"


def bars_of(seen: idle.Seen) -> list[Bar]:
    return idle.bars_of(seen, idle.Shape(10, 10, 300.0))


def test_operators_run_only_if_nothing_has_failed() -> None:
    steps = [[0.1, 0.2, 0.3], [0.1, 0.2, 0.3]]
    assert [bar.met for bar in bars_of(idle.Seen(steps, 900.0, ran_on=True))] == [True, True]
    assert [bar.met for bar in bars_of(idle.Seen(steps, 900.0))] == [False, True]
    assert [bar.met for bar in bars_of(idle.Seen(steps, 900.0, ran_on=True, problem="it ended"))] == [False, True]
