"""What the fault campaign says of a seed, whatever went wrong with it. Without Spark."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from types import SimpleNamespace

import fault_campaign
import fault_kinds
import faulty_driver
import psutil
import pyarrow as pa
import pytest
from fault_campaign import Campaign
from fault_driver_process import DriverProcess

from penstock import PenstockError

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

import faults

#: No process has such a number: nobody would be hurt.
NO_PROCESS = 1 << 30
TORN = pa.ArrowInvalid("Parquet magic bytes not found in footer")


@pytest.fixture(autouse=True)
def own_temporary_folder(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))


def of_a_campaign(monkeypatch, work) -> faults.Result:
    """The result of a seed whose campaign does this."""
    monkeypatch.setattr(Campaign, "run", work)
    result = faults.run(6, 2, [])
    assert result.seed == 6
    return result


def fails(wrong: Exception):
    def work(campaign):
        raise wrong

    return work


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        (TORN, "ArrowInvalid: Parquet magic bytes"),
        (subprocess.TimeoutExpired(["driver"], 60), "TimeoutExpired"),
        (ProcessLookupError(3, "No such process"), "ProcessLookupError"),
        (AssertionError("row 7 is lost\nand row 8"), "row 7 is lost"),
        (AssertionError(), "AssertionError"),
    ],
)
def test_a_seed_that_fails_in_whatever_way_is_wrong_and_says_why(monkeypatch, wrong, reason) -> None:
    result = of_a_campaign(monkeypatch, fails(wrong))
    assert reason in result.problem
    line = faults.line_of(result)
    assert f"WRONG: {reason}" in line
    assert "\n" not in line
    assert "0 files left" not in line, "nobody has looked"
    missed = {bar.name for bar in faults.bars_of([result], [], least=2) if not bar.met}
    assert {name.partition(":")[2].split(",")[0].strip() for name in missed} >= {
        "seeds with rows lost",
        "seeds of which files left were not looked for",
    }


def test_files_left_are_counted_where_they_were_looked_for(monkeypatch) -> None:
    def leaves_two(campaign):
        campaign.left = ["one", "two"]

    def is_right(campaign):
        campaign.left = []

    seeds = [of_a_campaign(monkeypatch, work) for work in (leaves_two, is_right, fails(TORN))]
    bars = {bar.name: bar for bar in faults.bars_of(seeds, [], least=0)}
    assert bars["faults: files left"].figure == 2
    assert bars["faults: seeds of which files left were not looked for"].figure == 1
    nobody = faults.bars_of(seeds[2:], [], least=0)
    assert "faults: files left" not in {bar.name for bar in nobody}


@pytest.mark.parametrize(("faults_run", "name"), [(20, "faults_lab"), (3, "faults_lab-look")])
def test_a_campaign_on_a_lab_is_one_seed_of_twenty_faults_with_a_page_of_its_own(
    monkeypatch, capsys, faults_run, name
) -> None:
    written: list[str] = []
    clusters: list[str] = []

    def is_right(campaign):
        clusters.append(campaign.scenario.cluster)
        campaign.faults += [fault_kinds.Fault(kind, 1.0, "", 2.0) for kind in campaign.scenario.kinds]
        campaign.left = []

    arguments = ["faults.py", "--cluster", "lab", "--seed", "5"] + (["--faults", "3"] if faults_run == 3 else [])
    monkeypatch.setattr(Campaign, "run", is_right)
    monkeypatch.setattr(sys, "argv", arguments)
    monkeypatch.setattr(faults, "skipped", lambda cluster: {})
    monkeypatch.setattr(faults.OwnLab, "lacking", lambda: "")
    monkeypatch.setattr(faults, "write_results", lambda page, *_: written.append(page))
    monkeypatch.setattr(faults.signal, "signal", lambda *_: None)
    assert faults.main() == 0
    assert (written, clusters) == ([name], ["lab"])
    said = capsys.readouterr().out
    assert f"kills and other faults: {faults_run:.2f}" in said
    assert "network namespaces" in said


def test_without_a_lab_there_is_no_campaign_on_one(monkeypatch, capsys) -> None:
    monkeypatch.setattr(sys, "argv", ["faults.py", "--cluster", "lab"])
    monkeypatch.setattr(faults.OwnLab, "lacking", lambda: "no lab can be had here: the program tc is missing.")
    with pytest.raises(SystemExit):
        faults.main()
    assert "the program tc is missing" in capsys.readouterr().err


def test_the_seeds_after_one_that_fails_are_run_and_all_bars_are_printed(monkeypatch, tmp_path, capsys) -> None:
    monkeypatch.setattr(Campaign, "run", fails(TORN))
    monkeypatch.setattr(sys, "argv", ["faults.py", "--seeds", "4,5", "--faults", "2"])
    monkeypatch.setattr(faults, "skipped", lambda cluster: {})
    monkeypatch.setattr(faults, "write_results", lambda *_: None)
    monkeypatch.setattr(faults.signal, "signal", lambda *_: None)
    assert faults.main() == 1
    said = capsys.readouterr().out
    assert said.count("WRONG: ArrowInvalid") == 2
    assert "BAR faults: seeds with rows lost" in said


def test_what_a_seed_has_left_running_is_ended_before_the_next(monkeypatch) -> None:
    left = []

    def leaves_a_process(campaign):
        environment = os.environ | {fault_campaign.MARK: campaign.mark}
        left.append(subprocess.Popen(["sleep", "60"], env=environment))
        raise TORN

    of_a_campaign(monkeypatch, leaves_a_process)
    try:
        assert left[0].wait(10) != 0
    finally:
        left[0].kill()
        left[0].wait()


class Chosen:
    """Stands in for a campaign: processes by kind, of which the first is gone before it is struck."""

    def __init__(self, processes) -> None:
        self.processes = processes
        self.random = SimpleNamespace(choice=lambda found: found[0])
        self.paused = 0.0

    def mine(self):
        return [process for process in self.processes if not process.was_struck]

    def pause(self, seconds: float) -> None:
        self.paused += seconds


class FakeProcess:
    def __init__(self, pid: int, is_gone: bool) -> None:
        self.pid = pid
        self.is_gone = is_gone
        self.was_struck = False
        self.did: list[str] = []

    def cmdline(self):
        return ["java", fault_kinds.PROCESSES["executor"]]

    def children(self, recursive: bool):
        return []

    def do(self, what: str) -> None:
        self.was_struck = True
        if self.is_gone:
            raise psutil.NoSuchProcess(self.pid)
        self.did.append(what)

    def kill(self) -> None:
        self.do("kill")

    def suspend(self) -> None:
        self.do("suspend")

    def resume(self) -> None:
        self.do("resume")


@pytest.mark.parametrize(
    ("kind", "did"), [("executor killed", ["kill"]), ("executor stopped for 20 s", ["suspend", "resume"])]
)
def test_another_process_is_struck_if_the_chosen_one_is_gone(kind, did) -> None:
    gone, there = FakeProcess(NO_PROCESS, is_gone=True), FakeProcess(NO_PROCESS + 1, is_gone=False)
    fault_kinds.KINDS[kind].strike(Chosen([gone, there]))
    assert there.did == did


def test_a_driver_that_says_finished_and_does_not_exit_is_told_of(tmp_path) -> None:
    driver = DriverProcess.__new__(DriverProcess)
    driver.config = {"stop": str(tmp_path / "stop"), "name": "faulty"}
    driver.words, driver.lines = {"finished": {"drained": True, "emitted": {}}}, ["the last line"]
    driver.log = tmp_path / "log"
    driver.log.touch()

    def wait(seconds):
        raise subprocess.TimeoutExpired("driver", seconds)

    driver.process = SimpleNamespace(wait=wait, poll=lambda: None)
    with pytest.raises(AssertionError, match="did not exit") as caught:
        driver.end(1.0)
    assert "the last line" in str(caught.value)


class FailingChance:
    """Its plans cannot be made."""

    def __init__(self) -> None:
        self.random = SimpleNamespace(uniform=lambda *_: 0.0)

    def plan(self):
        raise IndexError("no slot to choose from")


def test_a_mistake_in_a_change_is_said_and_fails_the_driver(capsys) -> None:
    changing = faulty_driver.Changing(FailingChance(), SimpleNamespace())
    changing.start()
    changing.join(10)
    assert not changing.is_alive()
    said = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert said["what"] == "broken"
    assert "IndexError: no slot to choose from" in said["message"]
    with pytest.raises(IndexError):
        changing.check()


def test_what_is_refused_does_not_end_the_changing(capsys) -> None:
    seen = threading.Event()

    class Refusing(FailingChance):
        def plan(self):
            changing.ending.set()
            seen.set()
            raise PenstockError("BAD_CLUSTER", "it cannot be.", "Try another one.")

    changing = faulty_driver.Changing(Refusing(), SimpleNamespace())
    changing.start()
    changing.end()
    assert seen.is_set()
    changing.check()
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["error"] == "BAD_CLUSTER"
