"""Stela's scaling operations on real Spark: `make bench-stela`.

Scale-out: each topology of the papers' table I gets one machine more, by `gain`, by Stela, by Storm's default and by
least link load; and by an oracle, which carries out the best assignment that an exhaustive search finds.
Scale-in: four of PageLoad's eight machines go, those that Stela chooses and two random groups. Congested: nothing is
scaled, and it is measured how much of its time a congested instance works, on all six topologies.

    python benchmarks/stela.py [--experiments star,linear,scale_in,congested] [--rounds 3] [--quick]

Every operation has a run of its own, from the same placement, with nothing waiting. The experiments on lab machines
(`--experiments lab`, or lab_star and so on: stela_topologies.py) have a page of their own (stela_lab.py).
"""

from __future__ import annotations

import argparse
import json
import math
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import stela_congested
import stela_lab
from results import Bar, finish, machine, named, write_results
from stela_operations import (
    GONE,
    MACHINES_IN,
    PAGE_LOAD_IN,
    RANDOM_GROUPS,
    Say,
    scale_in,
    scale_in_definition,
    scale_out,
)
from stela_oracle import ORACLE
from stela_runs import (
    DRAIN_SECONDS,
    INTERVAL,
    INTERVAL_FOR_EACH,
    LEAST_INTERVAL,
    SETTLED,
    SETTLED_IN_LAB,
    WARM_UP,
    WINDOW,
    Result,
    Times,
    measured_of,
)
from stela_tables import at_zero, middle, oracle_bars, plot, prediction_bars, table
from stela_topologies import EXAMPLES, LAB_TOPOLOGIES, TOPOLOGIES, experiment_built, topology_of
from stela_work import Calibration, calibrate

from penstock.autoscaler.strategies import STRATEGIES as ALL_STRATEGIES
from penstock.autoscaler.throughput_change import ThroughputPoint
from penstock.errors import PenstockError

GAIN, STELA, STORM, LINK, _ = STRATEGIES = ("gain", "stela", "storm", "least_link_load", ORACLE)
#: Measured only if it is asked for.
BY_CAPACITY = "stela_capacity"
#: What strategies are to reach of what the oracle's assignment reached.
OF_ORACLE = {GAIN: 0.95, STELA: 0.9, BY_CAPACITY: 0.9}
SCALE_IN, CONGESTED = "scale_in", "congested"
ROUNDS = 3
METHOD = """\
Topologies, instances, tasks and machines are those of the papers' table I, each machine a slot of its own executor
({machines} machines before). Operators wait instead of working (examples/*.py, written before these runs: a load of 10
is a millisecond a row), so two cores carry them, and sources give 25% more than the slowest operator can do; nobody
waits for a slow one (backlog_policy=spill), as in Storm. All operators stand, and a piece takes at most about
{interval:g} s. What pieces cost beside their rows is lost to a congested instance ("duty" is the share that it
worked), so the rates are below the nominal ones. The new machine is there before the operation begins, as in the
papers, and is empty: starting a JVM takes the cores from the others here, which it would not on a machine of its own
(what that costs is in live.md).
After a run of {warm:g} s that does not count, each operation has a run of its own: until what came in first has left,
and {settled:g} s more; {window:g} s measured before; the operation; as long again as at the beginning, and until what
had piled up is worked off, at most {drain:g} s; and {window:g} s measured after. While it is worked off, more arrives
at the sinks than comes in. Strategies take turns, and a round begins with another one each time. `stela` is the papers'
rule with its alpha of 1.2.
{ours}`gain` is ours (docs/design/0025): it may correct itself after it has measured its own operation, at most twice.
"oracle" carries out the assignment that an exhaustive search finds to be best by the rates measured in its own run;
"of the oracle's" divides by what that measured, not by what it promised. "Best" is the highest throughput at the sinks
that any assignment of as many new instances could give, by exhaustive search with the service rates measured in the
same run: what a saturated instance executes; for the others rows per busy second, less what pieces cost, times what
the saturated ones show these to be off by. "Own projection" is the same model for what the strategy chose. "Expected"
is what a controller predicts of that placement by the snapshot before the operation: `penstock decisions` shows it,
and verdicts are made on it. After a correction it is that of the corrected placement, by the same snapshot.

Storm's default and least link load add no instance: they move those there are. All waits run at once wherever they are,
so moving gains nothing here. It gained little in the papers on linear and diamond, where executors were not short of
cores (Stela, IV-B and IV-C). The ratio to Storm's default is what new instances give: (k + n) / k where one operator
alone, with k instances, is the bottleneck and gets n new ones. In the published topologies as built here several
operators tie for the bottleneck and share the new instances, so the ratio is lower. On the diamond one operator alone
is the bottleneck; there sources that give only 25% more than it can do are the limit. The ratio is printed beside the
papers'. Variants with one bottleneck are experiments on lab machines (stela_lab.py).
"""
OURS_METHOD = """\
`stela_capacity` is ours, the same rule on rates that are led through the graph with measured capacities
(docs/design/0008).
"""

# One machine more


def out_table(name: str, results: Mapping[str, Sequence[Result]], say: Say) -> list[Bar]:
    setting = TOPOLOGIES[name]
    say(f"### {name}: {setting.machines} machines, one more\n")
    table(results, say)
    after = {chosen: middle(found, lambda one: one.measured.after) for chosen, found in results.items()}
    # By the thesis: within the paper's 5% the noise of two cores often stays out of reach, for all of them.
    converged = {chosen: middle(found, lambda one: one.measured.convergence_sigma) for chosen, found in results.items()}
    if STORM in results:
        most = middle(results[STORM], lambda one: one.best / one.predicted)
        say(
            f"\nBy the rates measured in Storm's runs, which add none, the best assignment would give {most:.2f} "
            f"times what they gave: the most that the ratio to Storm's default can be (paper: {setting.paper:.2f})."
        )
    duties = [one.duty for found in results.values() for one in found if not math.isnan(one.duty)]
    bars = [Bar.of(f"{name}: a congested instance works, of its time", duties, stela_congested.LEAST_SHARE, False)]
    bars += oracle_bars(name, results, OF_ORACLE)
    for chosen in (one for one in OF_ORACLE if one in results):
        picks = {", ".join(one.new) for one in results[chosen]}
        say(f"\nNew instances of {chosen}: {'; or '.join(sorted(picks))}.")
        of_best = middle(results[chosen], lambda one: one.measured.after / one.best)
        say(f"What it reached, over what the best assignment promised by the rates of the same run: {of_best:.2f}.")
        mine, who = after[chosen], f"{name}, {chosen}"
        if STORM in results:
            beside = f"{who}: after / Storm's default (paper: {setting.paper:.2f})"
            later = converged[chosen] / converged[STORM]
            bars.append(Bar(beside, mine / after[STORM], 1.0, at_most=False))
            bars.append(Bar(f"{who}: convergence (thesis) / Storm's default", later, 1.0, at_most=True))
        if LINK in results:
            bars.append(Bar(f"{who}: after / least link load", mine / after[LINK], 1.0, at_most=False))
        bars.append(Bar(f"{who}: s at zero throughput", middle(results[chosen], at_zero), 0, at_most=True))
    return bars


# Four of eight machines go

SCALE_IN_METHOD = """\
PageLoad with {instances} instances of each operator on {machines} machines, each of which holds one operator or two, as
the paper has it; {gone} machines go. Stela chooses by ETPSum; "random" draws the machines (seeds 1 and 2) and deals
everything out again, round robin over those that stay. No instance is lost on the way, so the remaining ones can give
what the fluid model says for all of them. In the paper the random groups lost 80% and 40% of the throughput, and Stela
nearly none: there instances shared the cores that were left, and queues that had grown while Storm stood still were
counted. Here waits share nothing and nothing stands still, so where an instance runs does not change what it gives.
"""


def in_table(results: Mapping[str, Sequence[Result]], say: Say) -> list[Bar]:
    say(f"### PageLoad, {MACHINES_IN} machines, {GONE} go\n")
    say(SCALE_IN_METHOD.format(instances=PAGE_LOAD_IN, machines=MACHINES_IN, gone=GONE))
    table(results, say)
    if STELA not in results or len(results) < 2:
        return []  # the bar of what failed says so
    after = {name: middle(found, lambda one: one.measured.after) for name, found in results.items()}
    possible = middle(results[STELA], lambda one: one.predicted)
    worse = min(rate for name, rate in after.items() if name != STELA)
    return [
        Bar("scale-in: Stela after / what the remaining instances can give", after[STELA] / possible, 0.95, False),
        Bar("scale-in: Stela / the worse random group (paper: 5)", after[STELA] / worse, 2.0, at_most=False),
        Bar("scale-in: s at zero throughput", middle(results[STELA], at_zero), 0, at_most=True),
    ]


# Nothing is scaled


def congested(rounds: int, window: float, folder: Path, say: Say, names: Sequence[str]) -> dict[str, Any]:
    found = {}
    for name in names:

        def tell_of(text: str, name: str = name) -> None:
            say(f"{name}: {text}")

        try:
            found[name] = stela_congested.measure(
                topology_of(name), TOPOLOGIES[name].machines, rounds, window, folder / name, str(EXAMPLES), tell_of
            )
        except (PenstockError, RuntimeError) as problem:  # its bar is missed, and the others are measured
            tell_of(f"failed: {problem}")
            found[name] = []
    return found


# What was measured


def by_strategy(found: Sequence[tuple[str, Result]]) -> dict[str, list[Result]]:
    results: dict[str, list[Result]] = {}
    for name, one in found:
        results.setdefault(name, []).append(one)
    order = [*STRATEGIES, *sorted(set(results) - set(STRATEGIES))]
    return {name: results[name] for name in order if name in results}


def kept(
    file: Path, times: Times, wanted: Sequence[str], make: Callable[[], list[tuple[str, Result]]]
) -> list[tuple[str, Result]]:
    """What was measured already, if the file has it: a campaign that was cut off goes on where it was. `wanted` has the
    strategy of every operation: an experiment of which some failed, or were not asked for then, is measured again."""
    if file.exists():
        found = [(name, _result(fields, times)) for name, fields in json.loads(file.read_text())]
        if Counter(name for name, _ in found) >= Counter(wanted):
            return found
    found = make()
    if len(found) == len(wanted):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps([(name, asdict(one)) for name, one in found]))
    return found


def _result(fields: dict[str, Any], times: Times) -> Result:
    timeline = tuple(ThroughputPoint(**sample) for sample in fields["timeline"])
    return Result(
        **{
            **fields,
            "measured": measured_of(timeline, fields["began"], times),
            "timeline": timeline,
            "new": tuple(fields["new"]),
            "removed": tuple(fields["removed"]),
        }
    )


# All of it


@dataclass(frozen=True)
class Page:
    """What is measured in one go, and the page of results that it becomes."""

    stem: str
    names: Sequence[str]
    strategies: Sequence[str]
    rounds: int
    is_lab: bool

    @staticmethod
    def of(asked: str, strategies: str, rounds: int | None, topologies: Sequence[str]) -> Page:
        """Raises ValueError where an experiment or a strategy is not known, or where experiments of two pages are asked
        for."""
        names = stela_lab.names_of(asked)
        experiments = [*TOPOLOGIES, SCALE_IN, CONGESTED]
        if unknown := [name for name in names if name not in (*experiments, *stela_lab.NAMES)]:
            known = ", ".join((*experiments, stela_lab.LAB, *stela_lab.NAMES))
            raise ValueError(f"there is no experiment {', '.join(unknown)}; there are {known}")
        chosen = strategies.split(",") if strategies else []
        if unknown := [name for name in chosen if name not in (*ALL_STRATEGIES, ORACLE)]:
            known = ", ".join((*ALL_STRATEGIES, ORACLE))
            raise ValueError(f"there is no strategy {', '.join(unknown)}; there are {known}")
        in_lab = [name in stela_lab.NAMES for name in names]
        if any(in_lab):
            if not all(in_lab):
                raise ValueError("experiments on lab machines have a page of their own: name no others beside them")
            asked_for = chosen or stela_lab.STRATEGIES
            whole = set(names) >= set(stela_lab.CAMPAIGN) and set(asked_for) >= set(stela_lab.STRATEGIES)
            return Page(named("stela_lab", whole), names, asked_for, rounds or stela_lab.ROUNDS, is_lab=True)
        names = names or experiments[: 1 if rounds == 1 else None]
        asked_for = chosen or STRATEGIES
        whole = set(names) >= set(experiments) and set(topologies) >= set(TOPOLOGIES) and (rounds or ROUNDS) >= ROUNDS
        whole = whole and set(asked_for) >= set(STRATEGIES)
        return Page(named("stela", whole), names, asked_for, rounds or ROUNDS, is_lab=False)


def method(page: Page, calibration: Calibration | None, window: float) -> str:
    figures = {"warm": WARM_UP, "window": window, "drain": DRAIN_SECONDS}
    if page.is_lab:
        batches = {"each": INTERVAL_FOR_EACH, "least": LEAST_INTERVAL, "settled": SETTLED_IN_LAB}
        return stela_lab.METHOD.format(rounds=page.rounds, calibration=calibration, **batches, **figures)
    sizes = ", ".join(f"{name} {one.machines}" for name, one in TOPOLOGIES.items())
    ours = OURS_METHOD if BY_CAPACITY in page.strategies else ""
    return METHOD.format(interval=INTERVAL, settled=SETTLED, machines=sizes, ours=ours, **figures)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--experiments", default="", help="all of them, of a look with --rounds 1 the first")
    parser.add_argument("--strategies", default="", help=f"{','.join(STRATEGIES)}, or those of the lab")
    parser.add_argument("--rounds", type=int, default=None)
    parser.add_argument("--topologies", default=",".join(TOPOLOGIES), help="of the experiment congested")
    parser.add_argument("--quick", action="store_true", help="short times, and not written to results")
    parser.add_argument("--keep", type=Path, help="a folder for what was measured, to go on after a cut")
    return parser


def main() -> int:
    parser = _parser()
    options = parser.parse_args()
    topologies = options.topologies.split(",")
    try:
        page = Page.of(options.experiments, options.strategies, options.rounds, topologies)
    except ValueError as problem:
        parser.error(str(problem))
    # What was started goes in order, also when it is told to end.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    window = 10.0 if options.quick else WINDOW
    began = time.monotonic()
    lines: list[str] = []
    bars: list[Bar] = []
    operations: list[Result] = []

    def say(text: str) -> None:
        print(text, flush=True)
        lines.append(text)

    calibration = calibrate() if page.is_lab else None
    say(method(page, calibration, window))
    if page.stem.endswith("-look"):
        say(f"A look: {page.rounds} rounds of {', '.join(page.names)}.\n")
    with tempfile.TemporaryDirectory(prefix="penstock-stela-", ignore_cleanup_errors=True) as temporary:
        for name in page.names:

            def tell_of(text: str, name: str = name) -> None:
                print(f"{time.monotonic() - began:6.0f} s  {name}: {text}", file=sys.stderr, flush=True)

            folder = Path(temporary) / name
            if name == CONGESTED:
                bars += stela_congested.report(congested(page.rounds, window, folder, tell_of, topologies), say)
                continue
            measured = _Measured(name, page, calibration, window, folder, options.keep or Path(temporary))
            try:
                results = measured.results(tell_of)
                operations += [one for found in results.values() for one in found]
                bars += measured.report(results, say)
                if results:
                    plot(f"{page.stem}_{name}", measured.title, results)
                    say(f"\n![throughput]({page.stem}_{name}.png)\n")
            except Exception as problem:  # its bar is missed, and the others are measured
                traceback.print_exc()
                say(f"{name} failed: {type(problem).__name__}: {problem}\n")
                bars.append(Bar.of(f"{name}: operations that were measured", [], 1, at_most=False))
            if not options.quick:  # whatever becomes of the next one, this one is kept
                write_results(page.stem, lines, bars, machine())
    # The model of what is predicted knows instances, and no cores.
    bars += [] if page.is_lab else prediction_bars(operations, say)
    if not options.quick:
        write_results(page.stem, lines, bars, machine())
    return finish(bars)


class _Measured:
    """One experiment: what is run for it, and what is told of it."""

    def __init__(
        self, name: str, page: Page, calibration: Calibration | None, window: float, folder: Path, keep: Path
    ) -> None:
        self.name = name
        self.page = page
        self.window = window
        self.folder = folder
        self.keep = keep
        self.experiment = (TOPOLOGIES | LAB_TOPOLOGIES).get(name)
        if self.experiment is None:
            works = name == stela_lab.SCALE_IN
            self.definition = scale_in_definition(calibration if works else None)
        else:
            self.definition = experiment_built(self.experiment, calibration).definition

    @property
    def title(self) -> str:
        return f"{self.name}: {'four machines of eight go' if self.experiment is None else 'one machine more'}"

    def results(self, say: Say) -> dict[str, list[Result]]:
        def make() -> list[tuple[str, Result]]:
            page, one, window, folder = self.page, self.experiment, self.window, self.folder
            if one is None:
                return scale_in(self.definition, page.is_lab, page.rounds, window, folder, say)
            return scale_out(one, self.definition, page.strategies, page.rounds, window, folder, say)

        times = Times.of(self.definition, self.window, self.page.is_lab)
        found = kept(self.keep / f"{self.name}.json", times, self.wanted, make)
        results = by_strategy(found)
        if self.experiment is None:
            return results
        return {chosen: one for chosen, one in results.items() if chosen in self.page.strategies}

    @property
    def wanted(self) -> list[str]:
        """The strategy of every operation that is measured if none fails."""
        names = (STELA, *RANDOM_GROUPS) if self.experiment is None else self.page.strategies
        return self.page.rounds * [*names]

    def report(self, results: Mapping[str, Sequence[Result]], say: Say) -> list[Bar]:
        """What could not be measured is a bar that is missed, whatever the others say."""
        failed = max(len(self.wanted) - sum(map(len, results.values())), 0)
        bars = [Bar(f"{self.name}: operations that failed", failed, 0, at_most=True)] if failed else []
        return [*self._tables(results, say), *bars]

    def _tables(self, results: Mapping[str, Sequence[Result]], say: Say) -> list[Bar]:
        if self.experiment is None:
            return stela_lab.in_table(self.name, results, say) if self.page.is_lab else in_table(results, say)
        if self.page.is_lab:
            return stela_lab.out_table(self.name, self.experiment, self.definition, results, say)
        return out_table(self.name, results, say)


if __name__ == "__main__":
    sys.exit(main())
