"""`penstock stop`, `ps` and `status` beside a process that is starting, runs or ends: with doubles for Spark."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from control_fixtures import registry
from fake_steering import FakeSteering

from penstock.api.client import Client
from penstock.api.discovery import Phase, all_running, starting
from penstock.api.server import served
from penstock.cli.main import main
from penstock.errors import PenstockError
from penstock.settings import Settings

__all__ = ["registry"]
Command = Callable[..., tuple[int, str]]

#: A process that is starting a topology, and takes its time to end after it has let go of everything.
STARTING = """
    import signal, sys, time
    from penstock.api.discovery import starting
    from pathlib import Path

    class Stopped(BaseException):
        pass

    def stopped(number, frame):
        raise Stopped

    signal.signal(signal.SIGTERM, stopped)
    try:
        with starting("word_count", own_process=True) as entry:
            try:
                print("there", flush=True)
                signal.pause()
            except Stopped:
                entry.ending("It was stopped before any row was read.")
                sys.stdin.readline()  # Spark is being stopped
    except Stopped:
        pass
    time.sleep(0.5)  # Python itself ends: nobody can be told of that
    Path(sys.argv[1]).touch()
"""


@pytest.fixture(autouse=True)
def _own_registry(registry: Path) -> None:
    """No test may find or disturb what the user runs."""


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str]) -> Command:
    def run(*words: str) -> tuple[int, str]:
        code = main(words)
        printed = capsys.readouterr()
        assert "Traceback" not in printed.err
        return code, printed.out + ("" if "--json" in words else printed.err)

    return run


@pytest.fixture
def process(registry: Path, tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    words = [sys.executable, "-c", textwrap.dedent(STARTING), str(tmp_path / "over")]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as started:
        assert started.stdout is not None
        assert started.stdout.readline() == "there\n"
        yield started
        started.kill()


def let_it_end(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()


def test_one_that_is_starting_is_seen(command: Command, process: subprocess.Popen[str]) -> None:
    assert "starting" in command("ps")[1]
    [one] = json.loads(command("ps", "--json")[1])["running"]
    assert (one["phase"], one["pid"]) == ("starting", process.pid)
    code, text = command("status")
    assert (code, text.partition(",")[0]) == (0, f"word_count:{process.pid} is starting")
    answer = json.loads(command("status", "--json")[1])
    assert (answer["state"], answer["topology"]) == ("starting", "word_count")
    for words in (["scale-out"], ["events"], ["top"], ["pause"]):
        code, text = command(*words)
        assert (code, text.partition(":")[0]) == (2, "STARTING"), words


def test_one_that_is_starting_is_stopped_and_its_process_has_ended_then(
    command: Command, process: subprocess.Popen[str], tmp_path: Path
) -> None:
    code, text = command("stop", "--dry-run")
    assert (code, text) == (0, "the topology is being started, and stops before it reads any row\n")
    assert process.poll() is None
    threading.Timer(0.5, let_it_end, (process,)).start()
    code, text = command("stop")
    # Its entry was gone half a second before: until then its Python ran, and held whatever it held.
    assert (tmp_path / "over").exists()
    label = f"word_count:{process.pid}"
    assert (code, text) == (0, f"{label} has ended. It was stopped before any row was read.\n")


def test_the_wait_has_an_end_if_that_is_asked_for(command: Command, process: subprocess.Popen[str]) -> None:
    code, text = command("stop", "--timeout", "0.3s", "--json")
    assert (code, json.loads(text)["ended"]) == (3, False)
    deadline = time.monotonic() + 30
    while all_running()[0].phase is not Phase.ENDING:  # it has yet to hear of it
        assert time.monotonic() < deadline
        time.sleep(0.01)
    code, text = command("stop", "--timeout", "0.3s")
    assert (code, text) == (3, f"word_count:{process.pid} has not ended yet; it is still stopping.\n")
    assert command("status")[1] == f"word_count:{process.pid} is ending. It was stopped before any row was read.\n"
    let_it_end(process)
    assert process.wait(30) == 0
    assert all_running() == []


def test_no_wait_and_a_time_exclude_each_other(command: Command, process: subprocess.Popen[str]) -> None:
    code, text = command("stop", "--no-wait", "--timeout", "3s")
    assert (code, text.partition(":")[0]) == (2, "BAD_COMMAND")
    assert process.poll() is None


def test_one_that_ends_at_this_very_moment_is_waited_for(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    with starting("word_count") as entry:
        entry.opened("http://127.0.0.1:9", "secret", "/state")

        def post(client: Client, path: str, body: object = None) -> dict[str, Any]:
            entry.ending("Drained.")
            threading.Timer(0.3, entry.path.unlink).start()
            raise PenstockError("UNREACHABLE", "it does not answer.", "It may be about to end.")

        monkeypatch.setattr(Client, "post", post)
        assert command("stop") == (0, f"word_count:{os.getpid()} has ended. Drained.\n")


class Stoppable(FakeSteering):
    def __init__(self) -> None:
        super().__init__()
        self.asked = threading.Event()

    def stop(self, drain: bool = True, dry_run: bool = False) -> dict[str, Any]:
        self.asked.set()
        return super().stop(drain, dry_run)


def test_one_that_a_program_starts_is_asked_when_it_runs(command: Command) -> None:
    """A signal would end the program."""
    steering, begin = Stoppable(), threading.Event()

    def program() -> None:
        with starting("word_count") as entry:
            begin.set()
            waited.wait(30)
            with served(steering, "word_count", "/state", Settings(), entry):
                steering.asked.wait(30)

    waited = threading.Event()
    thread = threading.Thread(target=program)
    thread.start()
    assert begin.wait(30)
    code, text = command("stop", "--no-wait")
    assert (code, text.partition(":")[0]) == (2, "STARTING")
    threading.Timer(0.3, waited.set).start()
    code, text = command("stop")
    assert (code, text.startswith(f"word_count:{os.getpid()} has ended.")) == (0, True)
    assert steering.stopped is True
    thread.join()
    steering.close()
