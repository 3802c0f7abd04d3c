"""The commands for what runs, through the real main, against a control interface on a real socket."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace

import pytest
from control_fixtures import registry, running, steering
from fake_steering import MIGRATIONS, STATUS, FakeSteering

from penstock.api.discovery import Running
from penstock.api.server import served
from penstock.autoscaler.operations import Operation
from penstock.cli import reads
from penstock.cli.durations import DURATION
from penstock.cli.main import main
from penstock.cli.running_pages import plot, print_history, print_operation
from penstock.plans.enacting import Outcome, Status
from penstock.settings import Settings

__all__ = ["registry", "running", "steering"]
Command = Callable[..., tuple[int, str]]


@pytest.fixture(autouse=True)
def _own_registry(registry: Path) -> None:
    """No test may find or disturb what the user runs."""


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str]) -> Command:
    def run(*words: str) -> tuple[int, str]:
        code = main(words)
        printed = capsys.readouterr()
        assert "Traceback" not in printed.err
        return code, printed.out if not code or "--json" in words else printed.err

    return run


def test_ps(command: Command, running: Running) -> None:
    assert "word_count" in command("ps")[1]
    code, text = command("ps", "--json")
    [one] = json.loads(text)["running"]
    assert (code, one["topology"], one["url"]) == (0, "word_count", running.url)
    assert running.token not in text


def test_decisions(command: Command, running: Running) -> None:
    code, text = command("decisions")
    assert code == 0
    assert all(part in text for part in ("1 machine more", "900", "480", "none", "pending"))
    found = json.loads(command("decisions", "--after", "1", "--json")[1])
    assert [one["id"] for one in found["decisions"]] == [2]
    assert command("decisions", "--after", "2") == (0, "Nothing was decided yet.\n")


def test_migrations(command: Command, running: Running) -> None:
    code, text = command("migrations")
    assert code == 0
    first, second, own, flowed_on, behind, unheard_of = (
        " ".join(line.split()) for line in text.splitlines() if line[:2].strip().isdigit()
    )
    assert first.endswith("count 2/8 2.5 25% 350 ms - 800 ms 1.2 s 1.4 s 200 ms 17 | 18")
    assert second.endswith("count 2/8 2.5 - - - - - - - 17 | -")
    assert own == "1 count count moved 1.4 s 200 ms 500 410"
    assert flowed_on == "1 count split 210 ms 200 ms 500 499"
    assert behind == "1 count out behind it 1.5 s 200 ms 500 0"
    assert unheard_of == "1 count lines - 200 ms 500 -"
    found = json.loads(command("migrations", "--after", "1", "--json")[1])
    assert [one["id"] for one in found["migrations"]] == [2]
    assert command("migrations", "--after", "2") == (0, "No state was moved yet.\n")


def test_an_operation_that_moved_state_says_how_long_each_phase_took(capsys: pytest.CaptureFixture[str]) -> None:
    moved = [change["operators"][0] for change in MIGRATIONS]
    outcome = {"seconds": 0.0, "moves": [], "migrations": moved}
    operation = {"id": 4, "action": "move", "state": "rolled back", "step": "", "reason": "", "outcome": outcome}
    print_operation(operation)
    [_, first, second] = capsys.readouterr().out.splitlines()
    assert first == "  count moved 2 of 8 tasks, 25% of its state: pause 350 ms, save -, load 800 ms, resume 1.2 s"
    assert second == "  count moved 2 of 8 tasks: pause -, save -, load -, resume -"


def test_nothing_runs(command: Command) -> None:
    assert command("ps") == (0, "No topology of yours runs. Start one with: penstock run FILE\n")
    assert command("ps", "--json")[1] == '{\n  "running": []\n}\n'
    for words in (
        ["status"],
        ["top"],
        ["events"],
        ["history"],
        ["scale-out"],
        ["pause"],
        ["stop"],
        ["explain"],
        ["decisions"],
        ["migrations"],
    ):
        code, text = command(*words)
        assert (code, text.partition(":")[0]) == (2, "NOTHING_RUNS"), words


def test_status(command: Command, running: Running) -> None:
    assert json.loads(command("status", "--json")[1]) == STATUS | {"operation": None}
    text = command("status")[1]
    for word in ("word_count", "split", "127.0.0.2/0", "500", "300 ms", "50%"):
        assert word in text


def test_top_shows_it_once_a_second_until_the_time_is_over(
    command: Command, running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 100.0

    def sleep(seconds: float) -> None:
        nonlocal now
        now += seconds

    monkeypatch.setattr(reads, "time", SimpleNamespace(monotonic=lambda: now, sleep=sleep))
    code, text = command("top", "--json", "--seconds", "2.5")
    assert code == 0
    # At 0, 1, 2 and 2.5 seconds.
    assert [json.loads(line)["topology"] for line in text.splitlines()] == ["word_count"] * 4
    assert now == 102.5


def test_top_shows_it_once_if_the_time_is_over_at_once(command: Command, running: Running) -> None:
    code, text = command("top", "--json", "--seconds", "0.000001")
    assert code == 0
    assert json.loads(text.splitlines()[0])["topology"] == "word_count"


def test_top_ends_with_the_topology(command: Command, steering: FakeSteering) -> None:
    with ExitStack() as running:
        running.enter_context(served(steering, "word_count", "/state", Settings()))
        ending = threading.Timer(1.5, running.pop_all().close)
        ending.start()
        code, text = command("top")
        ending.join()
    assert (code, text.splitlines()[-1]) == (0, "word_count:" + str(os.getpid()) + " is over")


def test_events(command: Command, running: Running) -> None:
    lines = command("events", "--after", "1")[1].splitlines()
    assert len(lines) == 2
    assert lines[0].split()[0] == "2"
    assert lines[0].endswith("started  word_count: 3 operators run")
    assert [one["id"] for one in json.loads(command("events", "--json")[1])["events"]] == [1, 2, 3]


def test_history_is_plotted(command: Command, running: Running) -> None:
    text = command("history", "rate", "--since", "5m")[1]
    assert "▃ █" in text
    assert "the last 30 s" in text
    assert json.loads(command("history", "rate", "--json")[1])["series"][0]["values"]["rate"] == [1.0, None, 4.0]
    assert command("history", "nonsense")[1].startswith("UNKNOWN_METRIC")
    assert command("history", "--since", "yesterday")[1].startswith("BAD_COMMAND")


def test_explain(command: Command, running: Running) -> None:
    text = command("explain")[1]
    assert "congested" in text
    assert "ETPSum" in text
    assert "as one" in text
    assert "apart: count is keyed" in text
    assert "why Spark shuffles its rows" in text
    assert "Spark needs its rows by" in text
    assert json.loads(command("explain", "--json", "--alpha", "1.5")[1])["alpha"] == 1.5


def test_a_dry_run_prints_the_plan(command: Command, running: Running, steering: FakeSteering) -> None:
    code, text = command("scale-out", "--machines", "1", "--dry-run", "--json")
    answer = json.loads(text)
    assert (code, answer["dry_run"]) == (0, True)
    assert [one["action"] for one in answer["plan"]["actions"]] == ["add machine", "set instances"]
    text = command("scale-out", "--dry-run")[1]
    assert "machine 127.0.0.4 is there" in text
    assert "1. split on 127.0.0.4/0: congested" in text
    assert all(call[1] for call in steering.called)


def test_actions_are_followed_to_their_end(command: Command, running: Running, steering: FakeSteering) -> None:
    code, text = command("scale-out", "--machines", "2", "--strategy", "stela", "--json")
    assert (code, json.loads(text)["state"]) == (0, "done")
    assert "done after 1.5 s: as planned" in command("scale-in", "127.0.0.2")[1]
    assert command("scale-in", "--machines", "1")[0] == 0
    assert command("set-instances", "split", "3")[0] == 0
    assert command("set-instances", "split", "127.0.0.2/0=1", "127.0.0.3/0=2")[0] == 0
    assert command("move", "count", "3", "127.0.0.2/0")[0] == 0
    assert command("repartition", "count", "8")[0] == 0
    assert command("pause") == (0, "pause, as asked\n")
    assert command("resume") == (0, "resume, as asked\n")
    assert [call[0:1] + call[2:] for call in steering.called] == [
        ("scale-out", 2, "stela"),
        ("scale-in", None, ("127.0.0.2",), None),
        ("scale-in", 1, (), None),
        ("set-instances", "split", 3, None),
        ("set-instances", "split", None, {"127.0.0.2/0": 1, "127.0.0.3/0": 2}),
        ("move", "count", 3, "127.0.0.2/0"),
        ("repartition", "count", 8),
        ("pause",),
        ("resume",),
    ]


def test_what_is_rolled_back_is_not_done(command: Command, running: Running, steering: FakeSteering) -> None:
    def carry_out(operation: Operation) -> Outcome:
        assert operation.proposal is not None
        return Outcome(operation.proposal.plan, Status.ROLLED_BACK, "CLUSTER_FAILED: it died")

    steering.operations._carry_out = carry_out
    code, text = command("scale-out", "--json")
    assert (code, json.loads(text)["state"]) == (3, "rolled back")


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["scale-out", "--machines", "0"], "BAD_COMMAND"),
        (["scale-out", "--strategy", "magic"], "UNKNOWN_STRATEGY"),
        (["scale-in", "--policy", "magic"], "UNKNOWN_STRATEGY"),
        (["scale-in", "nobody"], "NO_SUCH_MACHINE"),
        (["scale-in", "127.0.0.2", "--machines", "1"], "BAD_COMMAND"),
        (["set-instances", "split"], "BAD_COMMAND"),
        (["set-instances", "split", "many"], "BAD_COMMAND"),
        (["set-instances", "split", "2", "3"], "BAD_COMMAND"),
        (["set-instances", "split", "127.0.0.2/0=0"], "BAD_COMMAND"),
        (["set-instances", "nobody", "2"], "UNKNOWN_OPERATOR"),
        (["move", "count", "-1", "x"], "BAD_COMMAND"),
        (["repartition", "count"], "BAD_COMMAND"),
        (["repartition", "count", "0"], "BAD_COMMAND"),
        (["repartition", "count", "many"], "BAD_COMMAND"),
        (["repartition", "count", "1000000"], "BAD_REQUEST"),
        (["repartition", "nobody", "4"], "UNKNOWN_OPERATOR"),
        (["cancel"], "NO_SUCH_OPERATION"),
        (["cancel", "9"], "NO_SUCH_OPERATION"),
        (["status", "-t", "other"], "NOTHING_RUNS"),
        (["status", "-t", ""], "NOTHING_RUNS"),
        (["top", "--seconds", "nan"], "BAD_COMMAND"),
        (["history", "nonsense"], "UNKNOWN_METRIC"),
        (["history", "--operator", "nobody"], "UNKNOWN_OPERATOR"),
        (["history", "--by", "moon"], "BAD_COMMAND"),
        (["history", "--by", "machine", "--operator", "split"], "BAD_COMMAND"),
        (["explain", "--alpha", "nan"], "BAD_COMMAND"),
        (["explain", "--alpha", "1e7"], "BAD_COMMAND"),
        (["explain", "split"], "BAD_COMMAND"),
        (["events", "--after", "9" * 30], "BAD_COMMAND"),
        (["events", "-f", "--after", "-1"], "BAD_COMMAND"),
        (["decisions", "--after", "9" * 30], "BAD_COMMAND"),
        (["decisions", "--operator", "split"], "BAD_COMMAND"),
        (["migrations", "--after", "9" * 30], "BAD_COMMAND"),
        (["migrations", "--limit", "0"], "BAD_COMMAND"),
    ],
)
def test_mistakes(command: Command, running: Running, words: list[str], error: str) -> None:
    code, text = command(*words)
    assert (code, text.partition(":")[0]) == (2, error), text
    code, text = command(*words, "--json")
    assert (code, json.loads(text)["error"]) == (2, error)


def test_a_topology_without_a_name_is_not_the_one_that_runs(command: Command, running: Running) -> None:
    assert command("events", "-t", "")[1].startswith(
        'NOTHING_RUNS: no topology "" of yours runs. These run: word_count:'
    )


def test_a_history_may_begin_before_all_times(command: Command, running: Running) -> None:
    assert json.loads(command("history", "rate", "--since", "999999d", "--json")[1])["since"] == 0


def test_a_history_without_figures_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    series = {"operator": "split", "slot": None, "stream": None, "machine": None, "values": {"machine_cpu": [None]}}
    print_history({"since": 0.0, "until": 30.0, "series": [series]}, ["machine_cpu"])
    assert capsys.readouterr().out == "Nothing was measured in this time.\n"


@pytest.mark.parametrize("option", [("--machines", "1"), ("--strategy", "storm")])
def test_the_option_that_was_given_is_the_one_that_is_named(
    command: Command, running: Running, option: tuple[str, str]
) -> None:
    code, text = command("scale-in", "127.0.0.2", *option)
    assert code == 2
    assert f"names of machines and {option[0]} exclude each other" in text


def test_stop_without_waiting(command: Command, running: Running, steering: FakeSteering) -> None:
    assert command("stop", "--dry-run") == (0, "stop, as asked\n")
    assert steering.stopped is None
    assert command("stop", "--no-wait")[0] == 0
    assert steering.stopped is True
    assert command("stop", "--no-wait", "--at-once")[0] == 0
    assert steering.stopped is False


def test_lengths_of_time() -> None:
    lengths = [DURATION.convert(text, None, None) for text in ("90", "90s", "1.5m", "2h", "1d")]
    assert lengths == [90, 90, 90, 7200, 86400]


def test_a_plot_fits_its_width_and_shows_gaps() -> None:
    assert plot([0.0, 1.0, None, 2.0]) == "▁▅ █"
    assert plot([0.0, 0.0]) == "▁▁"
    long = plot([float(index) for index in range(1000)], width=10)
    assert len(long) == 10
    assert list(long) == sorted(long)
