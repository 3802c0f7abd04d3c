"""`make bench-lab` without Spark: how its figures are made, which bars can fail, and what a part that fails leaves."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

import lab
import lab_measures
from lab_measures import Heard, Part, crossed, from_store, fullest_link, rate, uses
from results import Bar

from penstock import Settings
from penstock.cluster.lab.sizes import LabShape
from penstock.cluster.model import Cluster, Placement
from penstock.cluster.readings import MachineReading
from penstock.monitor.report import BatchReport, BundleReport

BUNDLE = BundleReport(
    slot="10.77.0.3/0",
    instances=1,
    partition=0,
    executor="0",
    host="10.77.0.3",
    pid=1,
    rows_in=250,
    bytes_in=1000,
    rows_out={},
    busy=1.0,
    busy_total=1.0,
    cpu=0.5,
    seconds=1.0,
    born_from=0.0,
    born_to=0.0,
    traffic={"10.77.0.2/0": 600, "10.77.0.3/0": 300, "local/0": 100},
    bytes_from={"store": 60, "link": 540, "own": 300},
)
READING = MachineReading(10.0, 1.0, 0.0, 0, 1000, 0, 0.25, 1 << 20, 12.5e6)


def batch(*bundles: BundleReport, operator: str = "work-0") -> BatchReport:
    return BatchReport(operator, 1, 0.0, 1.0, sum(one.rows_in for one in bundles), {}, bundles)


def worked(times: list[float], rows: int, slot: str = "a/0", operator: str = "work-0") -> list[Part]:
    return [Part(at, operator, slot, rows, 0, 0) for at in times]


# Figures


def test_bytes_that_another_machine_wrote_cross() -> None:
    heard = Heard(clock=lambda: 5.0)
    heard.add(batch(BUNDLE, replace(BUNDLE, slot="10.77.0.2/0")))
    parts = heard.between(4.0, 5.0)
    assert [(part.slot, part.crossed) for part in parts] == [("10.77.0.3/0", 600), ("10.77.0.2/0", 300)]
    assert crossed(parts) == 900
    assert from_store(parts) == pytest.approx(120 / 900)
    assert heard.between(5.0, 6.0) == []
    assert from_store([]) == 0


def test_a_rate_is_from_batch_to_batch_and_not_by_the_clock() -> None:
    # 250 rows every two seconds: in 20 s there may be nine batches or ten.
    assert rate(worked([1.9 + 2 * index for index in range(9)], 250), "work-0") == pytest.approx(125)
    assert rate(worked([0.1 + 2 * index for index in range(10)], 250), "work-0") == pytest.approx(125)


def test_the_rates_of_slots_are_added_and_those_of_others_are_not() -> None:
    parts = [
        *worked([0, 2, 4, 6], 250, "a/0"),
        *worked([1, 3, 5, 7], 500, "b/0"),
        *worked([1, 2, 3, 4], 9, operator="out-0"),
    ]
    assert rate(sorted(parts, key=lambda part: part.at), "work-0") == pytest.approx(125 + 250)


def test_too_few_batches_give_no_rate() -> None:
    with pytest.raises(RuntimeError, match="published 3 batches"):
        rate(worked([0, 2, 4], 250), "work-0")
    with pytest.raises(RuntimeError, match="published nothing"):
        rate([], "work-0")


def test_the_fullest_link_is_that_of_the_machine_that_used_most_of_its_own() -> None:
    later = replace(READING, at=20.0, received_bytes=1000 + 25_000_000, cpu_seconds=3.5)
    used = uses({"a": READING, "b": READING, "gone": READING}, {"a": replace(READING, at=20.0), "b": later})
    assert set(used) == {"a", "b"}
    assert fullest_link(used) == pytest.approx(0.2)
    assert used["b"].cpu_cores == pytest.approx(0.25)


# Bars


def missed(bars: list[Bar]) -> list[str]:
    return [bar.name for bar in bars if not bar.met]


def test_every_bar_of_the_cores_can_fail() -> None:
    assert missed(lab.cpu_bars(500, 125, [61, 62], 500)) == []
    assert missed(lab.cpu_bars(500, 118, [59, 59], 472)) == ["cpu: 0.25 cores to one core, below"]
    assert missed(lab.cpu_bars(500, 132, [66, 66], 528)) == ["cpu: 0.25 cores to one core, above"]
    assert missed(lab.cpu_bars(500, 125, [40, 85], 500)) == ["cpu: the smaller part of two that share"]
    assert missed(lab.cpu_bars(500, 125, [50, 50], 500)) == ["cpu: two that share to one alone, below"]
    assert missed(lab.cpu_bars(500, 125, [125, 125], 500)) == ["cpu: two that share to one alone, above"]
    assert missed(lab.cpu_bars(500, 125, [62, 62], 470)) == ["cpu: four machines to one, below"]
    assert missed(lab.cpu_bars(500, 125, [62, 62], 530)) == ["cpu: four machines to one, above"]


def test_every_bar_of_the_link_can_fail() -> None:
    assert missed(lab.link_bars(0.95, 0.98, 0.0)) == []
    assert missed(lab.link_bars(0.8, 0.98, 0.0)) == ["link: used, share of 100 Mbit/s"]
    assert missed(lab.link_bars(0.95, 0.9, 0.0)) == ["link: monitor to interface, below"]
    assert missed(lab.link_bars(0.95, 1.2, 0.2)) == [
        "link: monitor to interface, above",
        "link: share of the rows that did not cross it",
    ]


# A run


class Lab:
    """A double of a lab: instances on a machine do its cores' worth of rows, and what time it is moves on with every
    wait."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.cores: dict[str, float] = {}

    @contextmanager
    def opened(
        self, shape: LabShape, machines: int, settings: Settings, rounds: int, seconds: float, say: lab.Say
    ) -> Iterator[lab.Bench]:
        cluster = Cluster.of([f"10.77.0.{2 + index}" for index in range(machines)], 1)
        self.cores = {name: shape.of(index).cores for index, name in enumerate(cluster.names)}
        host = SimpleNamespace(cluster=cluster, provider=SimpleNamespace(readings=self.readings))
        yield lab.Bench(host, settings, rounds, seconds)  # type: ignore[arg-type]

    def readings(self) -> dict[str, MachineReading]:
        seconds = self.now - 1000.0
        carried = int(seconds * 11.5e6)
        return {
            name: replace(READING, at=self.now, cpu_seconds=seconds * cores, received_bytes=carried)
            for name, cores in self.cores.items()
        }

    def topology(self, definition: object, host: object, state: object, settings: object, placed: Placement) -> object:
        return Doubled(self, definition, placed)


class Doubled:
    def __init__(self, around: Lab, definition: Any, placed: Placement) -> None:
        assert set(placed.instances) == {one.name for one in definition.operators}
        self.lab, self.definition, self.placed = around, definition, placed
        self.listeners: list[Callable[[BatchReport], None]] = []
        latency = SimpleNamespace(p50=0.1, p99=0.2)
        self.statistics = SimpleNamespace(totals=lambda name: (1, 1), recent_latency=lambda name: latency)

    def __enter__(self) -> Doubled:
        return self

    def __exit__(self, *_: object) -> None:
        self.listeners.clear()

    def check(self) -> None: ...
    def stop(self, drain: bool) -> None:
        assert not drain

    def listen(self, listener: Callable[[BatchReport], None]) -> None:
        self.listeners.append(listener)

    def wait(self, seconds: float) -> None:
        self.lab.now += seconds
        workers = [name for name in self.placed.instances if name.startswith("work")]
        for name, slots in self.placed.instances.items():
            for slot in slots:
                sharing = sum(slot in self.placed.of(one) for one in workers) or 1
                rows = round(10_000 * seconds * self.lab.cores[slot.machine] / sharing)
                bundle = replace(BUNDLE, slot=slot.name, rows_in=rows, traffic={"10.77.0.2/0": 600}, bytes_from={})
                for listener in self.listeners:
                    listener(batch(bundle, operator=name))


def test_every_part_can_be_walked_through(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    around = Lab()
    monkeypatch.setattr(lab, "lab", around.opened)
    monkeypatch.setattr(lab, "SparkTopology", around.topology)
    monkeypatch.setattr(lab, "run_time", lambda: around.now)
    monkeypatch.setattr(lab, "Heard", lambda: Heard(clock=lambda: around.now))
    monkeypatch.setattr(lab, "write_results", lambda *_: None)
    monkeypatch.setattr(lab.signal, "signal", lambda *_: None)
    assert lab.main(["--rounds", "2"]) == 1
    said = capsys.readouterr()
    assert "0.25 cores to one: 0.2500. Four machines to one: 4.000." in said.out
    bars = [line for line in said.out.splitlines() if line.startswith("BAR")]
    assert len(bars) == 13
    assert [line for line in bars if "missed" in line and "cpu" in line] == []
    assert "BAR link: used, share of 100 Mbit/s: 0.92, bar at least 0.85: met" in bars
    assert "Traceback" not in said.err


def test_a_part_that_fails_is_a_bar_that_is_missed_and_the_others_are_kept(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    written: list[tuple[str, list[str], list[Bar]]] = []
    monkeypatch.setattr(
        lab, "write_results", lambda name, lines, bars, on: written.append((name, list(lines), list(bars)))
    )
    monkeypatch.setattr(lab.signal, "signal", lambda *_: None)

    def breaks(*_: object) -> tuple[list[str], list[Bar]]:
        raise RuntimeError("no row reached out-0 within 240 s")

    def works(*_: object) -> tuple[list[str], list[Bar]]:
        return ["a table"], [Bar("link: used", 0.9, 0.85, at_most=False)]

    measures = {"cpu": breaks, "link": works, "placement": works}
    assert lab.main(["--rounds", "1", "--only", "cpu,link"], measures) == 1
    assert [name for name, _, _ in written] == ["lab_cpu_link-look"] * 2, "once after each part"
    _, lines, bars = written[-1]
    assert "a table" in lines
    assert "cpu failed: no row reached out-0 within 240 s" in lines
    assert [(bar.name, bar.met) for bar in bars] == [("cpu: was measured", False), ("link: used", True)]
    assert "RuntimeError" in capsys.readouterr().err
    assert lab.main(["--only", "link"], measures) == 0
    assert written[-1][0] == "lab_link", "it does not take the place of the other parts"
    assert lab.main(["--rounds", "1"], measures) == 1
    assert written[-1][0] == "lab-look"
    with pytest.raises(SystemExit):
        lab.main(["--only", "cpu,lnk"], measures)
    assert "takes cpu, link, placement, and not 'cpu,lnk'" in capsys.readouterr().err


def test_nobody_waits_for_ever_for_the_first_rows() -> None:
    run = SimpleNamespace(
        definition=SimpleNamespace(sinks=[SimpleNamespace(name="out-0")]),
        statistics=SimpleNamespace(totals=lambda name: (0, 0)),
        check=lambda: None,
        wait=lambda seconds: None,
    )
    with pytest.raises(RuntimeError, match="no row reached out-0"):
        lab.await_rows(run, seconds=0.01)  # type: ignore[arg-type]
    run.statistics = SimpleNamespace(totals=lambda name: (1, 0))
    lab.await_rows(run, seconds=0.01)  # type: ignore[arg-type]


def test_a_rate_needs_fewer_batches_than_the_slowest_machine_has_in_a_round() -> None:
    batches = lab.SECONDS / lab.CPU_SETTINGS.latency_under_load
    assert batches >= 2 * lab_measures.LEAST_BATCHES
