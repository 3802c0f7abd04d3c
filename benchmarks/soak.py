"""The soak: `make soak MINUTES=60`. A topology at a steady load, with a change every minute, as its users would run and
steer it; every ten seconds what it holds is written down. Nothing may grow.

    python benchmarks/soak.py [--rounds 5] [--minutes 60]

After the first ten minutes no memory may grow by more than 2% an hour, logs and scratch files by no more than that or
0.5 MB, and nothing that is counted may surely grow.
Less than 40 measured minutes are a look, also of a run that was cut off: they show that everything is measured, and say
nothing of growth.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from results import RESULTS, finish, machine, named, write_results
from soak_probe import SEGMENTS, Probe
from soak_report import (
    CHANGE_SECONDS,
    CHANGES,
    CYCLE,
    DONE,
    HEAP_SECONDS,
    LEAST_DONE_PERCENT,
    LEAST_MINUTES,
    MOST_MB,
    MOST_PERCENT,
    SAMPLE_SECONDS,
    SEGMENT_SECONDS,
    Measured,
    bars_of,
    plot,
    table_of,
)
from soak_topology import KEYS, RATE

PENSTOCK = str(Path(sys.executable).parent / "penstock")
METHOD = """\
`penstock run` on a standalone cluster of two machines: {rate} rows/s of {keys} keys through a map with dead letters,
a map by key and a keyed operator, and every minute one of: {changes}. Every ten seconds what is in the table was
measured from outside. Files of segments come and go by the hundred: they were counted every second, and a figure is the
mean of about ten counts. What lives in the heap was measured once in {cycle:.0f} minutes, with a collector that leaves
nothing dead in its place (`MarkSweepAlwaysCompactCount=1`; otherwise some MB of that count). Memory of the JVMs
is what they have resident; of Python processes their share of memory without a file (Pss_Anon, Pss_Shmem). A file that
has several names counts once. The first {warm:.0f} minutes do not count.

Growth is the slope of Theil and Sen (the median over all pairs) through the medians of each cycle of {cycle:.0f}
minutes in which the changes come back. "Surely" is the lower end of its 95% interval or, if that is more, by how much
all of the last third of the cycles are above all of the first third. Memory and sizes may grow by {most:g}% an hour,
logs and scratch files by {most:g}% or by {most_mb:g} MB, whichever is more: there is about a MB of them, and one change
writes more than {most:g}% of that into a log. What is counted may not grow surely. A series with less than half of its
samples is not measured. Of the changes {done:g}% must be done.

{lasted:.0f} s of the {seconds:.0f} s that were asked for were measured, in {samples} samples. Changes: {outcomes}.
"""
A_LOOK = """\
This is a look: below {least:.0f} measured minutes growth cannot be told from what comes and goes with the changes. It
has no bar for growth, and the figures of the table are no verdict.
"""


class Soak:
    """One run of the topology; `measured` has what was seen, also of a run that did not get to its end."""

    def __init__(self, folder: Path, seconds: float) -> None:
        self.folder = folder
        self.measured = Measured(seconds)
        self.temporary = folder / "tmp"
        self.temporary.mkdir()
        self._environment = os.environ | {"TMPDIR": str(self.temporary), "PENSTOCK_RUNNING": str(folder / "running")}

    def run(self) -> str:
        """The topology's own summary at the end, a JSON object; empty if it did not get to its end."""
        try:
            summary = self._run()
        except Exception as wrong:  # whatever it is, what was measured until then is reported
            self.measured.problem = str(wrong).strip() or type(wrong).__name__
            summary = ""
            self._keep_logs()
        self.measured.left = sorted(path.name for path in self.temporary.iterdir())
        return summary

    def _run(self) -> str:
        state = self.folder / "state"
        topology = Path(__file__).parent / "soak_topology.py"
        command = [PENSTOCK, "run", str(topology), "--cluster", "standalone", "--machines", "2", "--state", str(state)]
        with (self.folder / "run.log").open("wb") as log, (self.folder / "run.json").open("wb") as out:
            driver = subprocess.Popen([*command, "--json"], env=self._environment, stdout=out, stderr=log)
        try:
            probe = Probe(driver.pid, state, self.temporary)
            self._await_start(driver, probe)
            self._soak(driver, probe)
            self.measured.faults = self._faults()
            driver.terminate()
            code = driver.wait(180)
        finally:
            driver.kill()
            driver.wait()
        assert code == 0, f"it ended with {code}\n{self._log()}"
        return " ".join((self.folder / "run.json").read_text().split())

    def _await_start(self, driver: subprocess.Popen[bytes], probe: Probe) -> None:
        deadline = time.monotonic() + 180
        while not probe.has_begun:
            assert driver.poll() is None, f"it ended with {driver.returncode}\n{self._log()}"
            assert time.monotonic() < deadline, f"it does not start\n{self._log()}"
            time.sleep(1)

    def _soak(self, driver: subprocess.Popen[bytes], probe: Probe) -> None:
        began, seconds = time.monotonic(), self.measured.seconds
        due = {"segments": 0.0, "sample": SEGMENT_SECONDS, "change": CHANGE_SECONDS, "heap": HEAP_SECONDS / 2}
        change: subprocess.Popen[bytes] | None = None
        count = 0
        segments: list[int] = []
        try:
            while (now := time.monotonic() - began) < seconds:
                assert driver.poll() is None, f"it ended with {driver.returncode}\n{self._log()}"
                if now >= due["segments"]:
                    due["segments"] += SEGMENT_SECONDS
                    segments.append(probe.segments())
                if now >= due["sample"]:
                    due["sample"] += SAMPLE_SECONDS
                    self.measured.note(now, probe.look() | {SEGMENTS: statistics.fmean(segments)})
                    segments.clear()
                if now >= due["heap"]:
                    due["heap"] += HEAP_SECONDS
                    self.measured.note(now, probe.heap())
                if now >= due["change"]:
                    due["change"] += CHANGE_SECONDS
                    change = self._change(CHANGES[count % len(CHANGES)], change)
                    count += 1
                time.sleep(0.2)
        finally:
            if change is not None:
                self._count(change, 120)

    def _change(self, commands: Sequence[str], before: subprocess.Popen[bytes] | None) -> subprocess.Popen[bytes]:
        """Asked for beside the sampling; the one before it has had its minute."""
        if before is not None:
            self._count(before, 0)
        return subprocess.Popen(
            " && ".join(f"{shlex.quote(PENSTOCK)} {command}" for command in commands),
            shell=True,
            env=self._environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def _count(self, change: subprocess.Popen[bytes], seconds: float) -> None:
        try:
            code = change.wait(seconds)
            self.measured.outcomes["refused or rolled back" if code else DONE] += 1
        except subprocess.TimeoutExpired:
            self.measured.outcomes["took longer than a minute"] += 1
            os.killpg(change.pid, signal.SIGKILL)  # the shell, and the command that it waits for
            change.wait()

    def _faults(self) -> list[str]:
        command = [PENSTOCK, "events", "--json", "--limit", "10000"]
        told = subprocess.run(command, env=self._environment, check=True, capture_output=True, timeout=60)
        events = json.loads(told.stdout)["events"]
        return [f"{one['subject']}: {one['reason']}" for one in events if one["kind"] == "fault"]

    def _keep_logs(self) -> None:
        """The folder is about to be deleted, and nobody could find out what went wrong."""
        kept = Path(tempfile.mkdtemp(prefix="soak-that-failed-"))
        for file in [
            *self.folder.glob("run.*"),
            *self.folder.glob("state/logs/*"),
            *self.folder.glob("state/cluster/*.log"),
        ]:
            shutil.copy(file, kept)
        print(f"its logs are in {kept}", file=sys.stderr, flush=True)

    def _log(self) -> str:
        """What it said at the end: its error is on standard output, what it showed on standard error."""
        return "\n".join((self.folder / name).read_text()[-4000:] for name in ("run.log", "run.json"))


def report(measured: Measured, summary: str) -> int:
    name = named("soak", measured.is_whole)
    method = METHOD.format(
        rate=RATE,
        keys=KEYS,
        changes=", ".join(" and ".join(commands) for commands in CHANGES),
        warm=measured.warm_up / 60,
        cycle=CYCLE / 60,
        most=MOST_PERCENT,
        most_mb=MOST_MB,
        done=LEAST_DONE_PERCENT,
        lasted=measured.lasted,
        seconds=measured.seconds,
        samples=max(map(len, measured.points.values()), default=0),
        outcomes=", ".join(f"{count} {outcome}" for outcome, count in measured.outcomes.most_common()) or "none",
    )
    lines = [method, *table_of(measured.trends), ""]
    lines += [] if measured.is_whole else [A_LOOK.format(least=LEAST_MINUTES)]
    if measured.points:
        RESULTS.mkdir(exist_ok=True)
        plot(measured.points, measured.warm_up, RESULTS / f"{name}.png")
        lines += [f"![the series]({name}.png)", ""]
    if measured.problem:
        print(measured.problem, file=sys.stderr, flush=True)
        lines += [f"The topology did not run to its end: {measured.problem.splitlines()[0]}.", ""]
    lines += [f"A fault: {one}." for one in measured.faults]
    lines += [f"The topology's own summary: `{summary[:1500] or 'none'}`", ""]
    print("\n".join(lines))
    bars = bars_of(measured)
    write_results(name, lines, bars, machine())
    return finish(bars)


def minutes_of(arguments: Sequence[str] | None = None) -> float:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="of two cycles of changes, 12 minutes")
    parser.add_argument("--minutes", type=float, default=None)
    options = parser.parse_args(arguments)
    return float(options.rounds * 2 * CYCLE / 60 if options.minutes is None else options.minutes)


def main() -> int:
    seconds = 60 * minutes_of()
    with tempfile.TemporaryDirectory(prefix="soak-", ignore_cleanup_errors=True) as folder:
        soak = Soak(Path(folder), seconds)
        summary = soak.run()
    return report(soak.measured, summary)


if __name__ == "__main__":
    sys.exit(main())
