"""Operators that work: a loop of so many rounds for every row, calibrated to a CPU time when a benchmark starts.

Unlike `penstock.workloads.work_time` the loop looks at no clock, so it is work like any other: it takes longer where
the processor is slower. How many rounds a second of a core does is measured once, by the CPU time of this process, so a
machine with a share of a core carries a known number of rows a second.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa

from penstock.workloads import ServiceTime

#: Additions in one round: some microseconds.
ADDITIONS = 200
#: Rounds of one measurement, and how many measurements there are.
ROUNDS, MEASUREMENTS = 20_000, 7


def work(rounds: int) -> None:
    for _ in range(rounds):
        sum(range(ADDITIONS))


@dataclass(frozen=True)
class CalibratedWork(ServiceTime):
    """`seconds_per_row` is what the rounds of a row take of a core, as it was calibrated."""

    rounds_per_row: float = 0.0

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        work(round(batch.num_rows * self.rounds_per_row))
        return self._select(batch)


@dataclass(frozen=True)
class Calibration:
    """How fast this computer's cores are."""

    rounds_per_cpu_second: float
    #: The slowest and the fastest measurement, over their median.
    spread: tuple[float, float] = (1.0, 1.0)

    def work_time(self, cpu_seconds_per_row: float, selectivity: float, seed: int) -> CalibratedWork:
        rounds = cpu_seconds_per_row * self.rounds_per_cpu_second
        return CalibratedWork(cpu_seconds_per_row, selectivity, seed, rounds)

    def __str__(self) -> str:
        low, high = self.spread
        return f"{self.rounds_per_cpu_second:,.0f} rounds a CPU second ({low:.2f} - {high:.2f} of that)"


def calibrate(
    rounds: int = ROUNDS,
    measurements: int = MEASUREMENTS,
    clock: Callable[[], float] = time.process_time,
    do: Callable[[int], None] = work,
) -> Calibration:
    """By the median: a measurement that was disturbed is slower. Nothing else may work in this process meanwhile."""
    speeds = []
    for _ in range(measurements):
        began = clock()
        do(rounds)
        speeds.append(rounds / (clock() - began))
    middle = statistics.median(speeds)
    return Calibration(middle, (min(speeds) / middle, max(speeds) / middle))


def carried(cores: float, cpu_seconds_per_row: float) -> float:
    """Rows a second that a machine with so many cores carries."""
    return cores / cpu_seconds_per_row
