"""The fault campaign: `make faults`. A running, changing topology is struck by faults; it is verified that nothing was
lost, doubled or out of order, and reported how long the stream took to be back, by kind of fault.

    python benchmarks/faults.py [--seeds 1,2,3] [--seed N] [--rounds 3] [--faults 34] [--cluster lab]

The seeds are printed: the same seed gives the same topology, database, and faults and changes in the same order, not at
the same moments (tests/spark/fault_scenarios.py).
"""

from __future__ import annotations

import argparse
import secrets
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from results import Bar, finish, machine, named, write_results

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "spark"))
sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "helpers"))

from fault_campaign import Campaign
from fault_kinds import KINDS_ON, LAB, STANDALONE, by_kind
from fault_lab import OwnLab
from fault_scenarios import scenario_of, skipped

RATE = 500.0
LEAST_FAULTS, LEAST_SEEDS = 100, 3
#: By seed; of a look fewer, which take a quarter of an hour at most.
FAULTS, FEW_FAULTS = 34, 24
#: On lab machines: one seed, about half an hour.
LAB_FAULTS = 20
LAB_METHOD = """\
A topology on a lab of two machines (docs/lab.md), each with half a core for its operators and a link of 100 Mbit/s, at
{rate:g} rows/s, is changed all the time by chance: instances, tasks, machines in and out. The seed says which topology
and the faults, half of them in the middle of a change. A machine that is killed loses every process of its network
namespace at once: the worker with its guard, executors, Python workers, the segment server. A link is taken down at the
switch for 20 s. "Back" is the time from the end of the fault to the first window of 5 s whose throughput at the sink is
at least 90% of that of the 5 s before the fault. In the end it is looked for files, network namespaces, control groups
and mounts that are left.
"""
METHOD = """\
A topology on a standalone cluster of two machines, at {rate:g} rows/s, is changed all the time by chance: instances,
tasks, machines in and out. The seed says which topology (counted: a map and a keyed operator; ordered: dead letters,
a map by key, a broadcast stream; joined: two streams joined by Spark; operators with equal instances run as chains),
which database has the catalog, and the faults, half of them in the middle of a change. State, segments, checkpoints,
scratch files and output are on a small disk, which can be full. A killed driver is started again on its state. The
clock is that of all processes of the topology, JVMs too, and stays as it was set. A neighbour is another topology,
with operators of the same names, that comes and goes on the same locations of segments and checkpoints and the same
database. "Back" is the time from the end of the fault to the first window of 5 s whose throughput at the sink is at
least 90% of that of the 5 s before the fault; faults that were followed by the next one before that have no figure.
With a killed driver, the time includes the start of a new one with its cluster.
"""


@dataclass(frozen=True)
class Result:
    """Of one seed."""

    seed: int
    seconds: float
    campaign: Campaign
    #: What was wrong; empty if everything was right.
    problem: str


def run(seed: int, faults: int, without: Sequence[str], cluster: str = STANDALONE) -> Result:
    began = time.monotonic()

    def tell(text: str) -> None:
        print(f"{time.monotonic() - began:7.1f} s  {text}", file=sys.stderr, flush=True)

    scenario = scenario_of(seed, faults, without, cluster)
    tell(f"seed {seed}: topology {scenario.shape}, catalog in {scenario.catalog}")
    folder = Path(tempfile.mkdtemp(prefix="penstock-faults-"))
    campaign = Campaign(folder, seed, RATE, scenario, tell=tell)
    problem = ""
    try:
        campaign.run()
    except Exception as wrong:  # whatever it is, it is this seed's: the others are run too
        problem = reason(wrong)
        if not isinstance(wrong, AssertionError):
            traceback.print_exc()
        tell(f"{problem}\nWhat the drivers said is kept in {folder}.")
        campaign.end_everybody()
    else:
        for file in campaign.left or ():
            tell(f"left: {file}")
        shutil.rmtree(folder)
    return Result(seed, time.monotonic() - began, campaign, problem)


def reason(wrong: Exception) -> str:
    """Never empty; the first line says what was wrong."""
    if isinstance(wrong, AssertionError) and str(wrong).strip():
        return str(wrong).strip()
    return f"{type(wrong).__name__}: {wrong}"


def line_of(result: Result) -> str:
    campaign, scenario = result.campaign, result.campaign.scenario
    changes = ", ".join(f"{count} {outcome}" for outcome, count in campaign.outcomes.most_common())
    verdict = f"WRONG: {result.problem.splitlines()[0]}" if result.problem else "right"
    counts = f"{len(campaign.faults)} of {len(scenario.kinds)} | {sum(campaign.emitted.values())}"
    left = "files left not looked for" if campaign.left is None else f"{len(campaign.left)} files left"
    return (
        f"| {result.seed} | {scenario.shape} | {scenario.catalog} | {counts} | {result.seconds:.0f} | {changes} | "
        f"{verdict}; {left} |"
    )


def bars_of(results: Sequence[Result], without: Sequence[str], least: int) -> list[Bar]:
    faults = sum(len(result.campaign.faults) for result in results)
    left = [len(result.campaign.left) for result in results if result.campaign.left is not None]
    is_lab = any(result.campaign.scenario.cluster == LAB for result in results)
    what = "files, network namespaces, control groups and mounts" if is_lab else "files"
    return [
        Bar("faults: kills and other faults", faults, least, at_most=False),
        Bar("faults: seeds", len(results), LEAST_SEEDS if least == LEAST_FAULTS else 1, at_most=False),
        Bar("faults: kinds of fault that this machine cannot have", len(without), 0, at_most=True),
        Bar(
            "faults: seeds with rows lost, doubled, out of order, wrong, or that were not run to their end",
            sum(bool(result.problem) for result in results),
            0,
            at_most=True,
        ),
        *([Bar(f"faults: {what} left", sum(left), 0, at_most=True)] if left else []),
        Bar("faults: seeds of which files left were not looked for", len(results) - len(left), 0, at_most=True),
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", default="", help="such as 1,2,3")
    parser.add_argument("--seed", type=int, default=None, help="the first one, which others follow")
    parser.add_argument("--rounds", type=int, default=None, help="how many seeds: 3, on a lab 1")
    parser.add_argument(
        "--faults", type=int, default=None, help="by seed; 34, of fewer than three seeds 24, on a lab 20"
    )
    parser.add_argument("--cluster", choices=list(KINDS_ON), default=STANDALONE)
    options = parser.parse_args()
    is_lab = options.cluster == LAB
    if is_lab and (why := OwnLab.lacking()):
        parser.error(why)
    rounds = options.rounds or (1 if is_lab else LEAST_SEEDS)
    first = secrets.randbelow(1_000_000) if options.seed is None else options.seed
    seeds = [int(seed) for seed in options.seeds.split(",") if seed] or [first + i for i in range(rounds)]
    faults = options.faults or (LAB_FAULTS if is_lab else FAULTS if len(seeds) >= LEAST_SEEDS else FEW_FAULTS)
    print(f"seeds {','.join(map(str, seeds))}", flush=True)
    # What a campaign has mounted and started goes with it, also when it is told to end.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    without = skipped(options.cluster)
    results = [run(seed, faults, list(without), options.cluster) for seed in seeds]
    lines = [
        (LAB_METHOD if is_lab else METHOD).format(rate=RATE),
        "| seed | topology | catalog | faults | rows | s | changes | verdict |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
        *map(line_of, results),
        "",
        "| fault | times | in a change | with a figure | back after s, median | range |",
        "| --- | --- | --- | --- | --- | --- |",
        *by_kind([fault for result in results for fault in result.campaign.faults]),
        "",
        *(f"Skipped: {kind}: {why}." for kind, why in without.items()),
        f"{len(KINDS_ON[options.cluster]) - len(without)} kinds of fault. Processes left would have been a wrong "
        "verdict.",
        "",
    ]
    print("\n".join(lines))
    # A shorter look has its own bar, and says so.
    least = LAB_FAULTS if is_lab else LEAST_FAULTS
    whole = len(seeds) >= (1 if is_lab else LEAST_SEEDS) and faults * len(seeds) >= least
    bars = bars_of(results, list(without), least if whole else faults * len(seeds))
    write_results(named("faults_lab" if is_lab else "faults", whole), lines, bars, machine())
    return finish(bars)


if __name__ == "__main__":
    sys.exit(main())
