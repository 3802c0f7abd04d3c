"""The phases of bench-stateful in virtual time: the same tweets, tasks, seats and rule, and a cost of each micro-batch.

Every `linger` seconds the detector has a micro-batch, and another one without rows after it. All 20 tasks take some
time for each of the two, whatever their rows, and that time counts as busy.
"""

from __future__ import annotations

import heapq
import sys
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

from stateful_instances import dealt_seats, free_after
from stateful_made_up import given
from stateful_schedule import COOLDOWN, INSTANCES, MACHINES, PERIOD, TASKS, WINDOW, Phases
from stateful_seen import Seen

from penstock import Settings
from penstock.channels.spark_hash import hash_of_rows, task_of_hashes
from penstock.strategies.thresholds import InstanceUse, Thresholds, wanted_instances

SLOTS = [f"machine{task % MACHINES}/0" for task in range(TASKS)]
#: When the first tweet is due: a seat that nobody has sat on was free since 0.
BEGIN = 10_000.0


@dataclass
class Simulated:
    """One run through phases. `cost` is what micro-batches cost of each of five instances."""

    phases: Phases
    cost: float
    elastic: bool
    samples: list[Seen] = field(default_factory=list)

    def run(self) -> list[Seen]:
        times, work = self._tweets()
        linger, seconds = self.phases.linger, given(Path("/nowhere"), self.phases).work.seconds
        overhead = self.cost * INSTANCES * linger / TASKS / 2
        self._place(INSTANCES)
        free: dict[str, float] = defaultdict(float)
        now, first, batches = BEGIN, 0, list[tuple[float, Counter[str]]]()
        # What the first micro-batches do, while JVMs compile, is not simulated.
        since = ended = BEGIN + self.phases.lead / 3
        while first < len(times):
            cooled = now >= ended + COOLDOWN * PERIOD / self.phases.factor
            if self.elastic and cooled and now >= since + WINDOW * linger and self._decided(batches, now):
                # A change takes a micro-batch or two; the window begins anew.
                since, ended, batches = now + linger, now + 1.5 * linger, []
            stop = first
            while stop < len(times) and times[stop] + BEGIN <= now:
                stop += 1
            if stop == first:
                now = times[first] + BEGIN
                continue
            rows = sum(work[first:stop], Counter[int]())
            ends = dict.fromkeys(range(TASKS), now + overhead)
            waiting = [(now + overhead, task, patterns) for task, patterns in rows.items()]
            heapq.heapify(waiting)
            while waiting:
                at, task, patterns = heapq.heappop(waiting)
                seat = self._seats[task]
                free[seat] = free_after(free[seat], at, seconds, self.phases.burst)
                ends[task] = at + max(seconds, free[seat] - at)
                if patterns > 1:
                    heapq.heappush(waiting, (ends[task], task, patterns - 1))
            busy: Counter[str] = Counter()
            for task, end in ends.items():
                busy[SLOTS[task]] += end - now + overhead  # type: ignore[assignment]  # seconds
            batches.append((now, busy))
            done = max(ends.values()) + overhead
            self._see(done, done - times[(first + stop) // 2] - BEGIN)
            first, now = stop, max(done, now + linger)
        return self.samples

    def _tweets(self) -> tuple[list[float], list[Counter[int]]]:
        """When each is due, and how many of its patterns each task gets."""
        from frequent_patterns import patterns_of

        told = given(Path("/nowhere"), self.phases)
        texts = told.tweets(0, told.rows).column("text").to_pylist()
        found = sorted({pattern for text in texts for pattern in patterns_of(text)})
        hashes = hash_of_rows(pa.RecordBatch.from_pydict({"pattern": found}), ["pattern"])
        task_of = dict(zip(found, map(int, task_of_hashes(hashes, TASKS)), strict=True))
        work = [Counter(task_of[pattern] for pattern in patterns_of(text)) for text in texts]
        return [told.schedule.when(row + 1) for row in range(told.rows)], work

    def _place(self, instances: int) -> None:
        """Evenly on all machines: no task moves."""
        least, more = divmod(instances, MACHINES)
        self._instances = {f"machine{index}/0": least + (index < more) for index in range(MACHINES)}
        self._seats = dealt_seats(SLOTS, self._instances)

    def _decided(self, batches: list[tuple[float, Counter[str]]], now: float) -> bool:
        """Whether the rule changes something."""
        seen = [one for one in batches if one[0] >= now - WINDOW * self.phases.linger - 1e-6]
        seconds = now - seen[0][0]
        uses = [
            InstanceUse(count, min(sum(busy[slot] for _, busy in seen) / seconds / count, 1.0))
            for slot, count in self._instances.items()
        ]
        thresholds = Thresholds.of(Settings(**self.phases.settings(True, "fewest_moves")))
        before, wanted = sum(self._instances.values()), wanted_instances(uses, thresholds, 1, TASKS)
        if wanted != before:
            self._place(wanted)
        return wanted != before

    def _see(self, at: float, latency: float) -> None:
        detectors = sum(self._instances.values())
        self.samples.append(Seen(at - BEGIN, 0, 0, detectors, detectors + 4, latency, {}))
