"""The experiments of Elastic Stateful Storm on lab machines: `make bench-stateful`. Needs root, as a lab does.

    python benchmarks/stateful.py [--rounds 3] [--only phases,restarts,moves,sizes,counts]

Parts: `phases`, the five phases with elasticity and without; `restarts`, the same changes without migration, by stop
and start; `moves`, a stateful move beside a stateless one; `sizes`, moves by size of state, beside plain Structured
Streaming; `counts`, every pattern's counts through ten kills in the middle of moves.
"""

from __future__ import annotations

import argparse
import math
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path

import children
import stateful_bars as bars_of
import stateful_moves as moving
from live_gaps import Measured
from live_load import Load
from results import RESULTS, Bar, finish, machine, named, write_results
from stateful_bars import KILLS, PhasesSeen
from stateful_kills import Kills
from stateful_plots import PAPER, plot
from stateful_run import PatternsRun
from stateful_schedule import (
    BEARABLE,
    COST,
    INSTANCES,
    LOOK,
    RATE_SCALE,
    RATES,
    WHOLE,
    Phases,
    longer_batches,
    retimed,
    utilisation,
    without_elasticity,
)
from stateful_seen import PLACEMENT, REPORTER, busy_in, since_first_tweet
from stateful_topology import FREQUENT, Given
from stela_work import Calibration, calibrate

from penstock.cluster.lab.owners import Owner
from penstock.cluster.lab.permission import require_lab
from penstock.cluster.lab.sizes import LabShape
from penstock.errors import PenstockError

PARTS = ("phases", "restarts", "moves", "sizes", "counts")
#: What a look has, unless ONLY names others; how many minutes each part takes by estimate, in a look and as a whole.
OF_LOOK = ("phases",)
MINUTES = {"phases": (15, 42), "restarts": (10, 14), "moves": (8, 22), "sizes": (14, 50), "counts": (14, 18)}
ROUNDS = 3
#: The detector's instances from phase to phase, for `restarts`.
DEALT = (5, 10, 20, 10, 5)
#: MB of state a task of the parts `moves` and `sizes`, of a look without the largest.
MOVE_MB, SIZES, LOOK_SIZES = 16.0, (1.0, 10.0, 100.0, 1000.0), (1.0, 10.0)
ENGINES = ("penstock", "plain")
#: Tweets a second while processes are killed, of the paper's, and seconds of them.
KILLED_RATE, KILLED_SECONDS = 250, 600.0
#: Seconds that a run without elasticity is watched for after its phases: its first tweet comes some time after its
#: start.
AFTER = 15.0
METHOD = """\
Frequent Pattern Detection (examples/frequent_patterns.py) on a lab of five machines, as `penstock run` runs it; every
machine is a slot of four cores to the placement, as a node of the paper, and has 0.4 of a core for its operators' work.
Spark's JVMs are outside of that. Time is divided by {factor:g}: phases of {seconds:.0f} s, rounds of {period:.2f} s,
12 rounds of cooldown. Before the first phase {lead:.0f} s at its rate do not count. Rates are divided by {scale}, and a
tweet costs its detector {scale} times as much: {cost:g} ms of an instance at the paper's rates. The instance computes
for 3% of them (a loop, calibrated at the start: {calibration}) and waits for the rest. A pattern is frequent that is in
more than {frequent} tweets of a minute (the paper: 20).

**Instances are held to what a thread of Storm can do.** Spark runs the tasks of a keyed operator on a slot side by
side, however many instances there are. In this benchmark the tasks of one instance share a second of work in a second
(stateful_instances.py). So "without elasticity" falls behind because the benchmark holds five instances to five
seconds a second, and not because Spark does. Decisions, placements, moves, state and counts are Penstock's own.

Thresholds: 0.7 and {low:g} (the paper: 0.7 and 0.2). A micro-batch costs every task some time, whatever its rows, and
that counts as utilisation of a keyed operator; with 0.2 the last halvings might not come for that alone. For the same
reason a micro-batch is {linger:g} s long. The mapping is {mapping}. Latency is the p50 at the reporter over the last
ten seconds; it has the micro-batches' {linger:g} s in it, and the 5 s that the watermark stays behind. "Grows" is the
slope of Theil and Sen in the second half of a phase.

The reporter has no weight in the throughput by which Penstock judges its own decisions: most of what it gets says that
a pattern is gone, a minute late, and a scale-in after a fall of the load might be undone for that.

"Without migration" (part `restarts`) is what a user without live changes does: stop the topology and start it again on
its state with other instances. While it is down the source's schedule stands still, so its silence is what is shown.

Part `moves`: a source, a map and two keyed operators of 8 tasks on the same rows, on a lab of two machines: one with
{move_mb:g} MB a task, one with 64 keys in all. Two tasks of the one go to the other machine and back, then two of the
other. A gap is the time between two outputs of that operator's sink. All tasks of an operator share its micro-batches,
so what tasks that stay lose is what the operator loses.

Part `sizes`: the topology of bench-live with 4 tasks, on standalone machines, both engines. One of Penstock's tasks
moves and comes back, and its state is cut into 8 tasks; plain is stopped and started, and stopped, repartitioned and
started. It has no bar.
"""
Say = Callable[[str], None]


@dataclass
class Report:
    """What the parts have found so far."""

    lines: list[str] = field(default_factory=list)
    bars: list[Bar] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)

    def fail(self, part: str, wrong: BaseException) -> None:
        first = (str(wrong).strip().splitlines() or [""])[0] or type(wrong).__name__
        self.failed.append(f"{part}: {first[:300]}")


@dataclass(frozen=True)
class Bench:
    """What all parts need."""

    folder: Path
    calibration: Calibration
    is_whole: bool
    rounds: int
    mapping: str
    name: str
    say: Say
    phases: Phases

    def given(self, name: str, phases: Phases) -> Given:
        return Given(
            steps=phases.steps,
            rows=phases.rows,
            seats=str(self.folder / name / "seats"),
            out=str(self.folder / name / "out"),
            rounds_per_cpu_second=self.calibration.rounds_per_cpu_second,
            burst=phases.burst,
        )

    def compared(self, name: str, given: Given) -> Mapping[str, object]:
        """With the batch job."""
        self.say("comparing with the batch job")
        here = Path(__file__).parent
        paths = f"{here.parent / 'src'}:{here}:{here.parent / 'examples'}"
        command = [sys.executable, str(here / "stateful_counts.py"), given.as_text()]
        return children.answer_of("the batch job", command, self.folder / f"{name}-batch", self.say, PYTHONPATH=paths)


# The parts


def phases(bench: Bench, report: Report) -> None:
    """First without elasticity: there it is seen what the micro-batches cost, before anything depends on it. What was
    seen is reported also if a run fails half way."""
    all_of_them, few = bench.phases, without_elasticity(bench.phases, bench.is_whole)
    seen = {True: PhasesSeen(all_of_them, []), False: PhasesSeen(few, [])}
    try:
        _through(bench, "fixed", replace(bench.given("fixed", few), rows=2 * few.rows), seen, elastic=False)
        report.lines += _cost_of_batches(bench, seen[False])
        given = bench.given("elastic", all_of_them)
        _through(bench, "elastic", given, seen, elastic=True)
        found = bench.compared("elastic", given)
        report.lines += [f"Counts, beside the batch job: `{found}`", ""]
        report.bars += bars_of.count_bars("through all phases", found)
    finally:
        _report_phases(bench, report, seen[True], seen[False])


def _report_phases(bench: Bench, report: Report, elastic: PhasesSeen, fixed: PhasesSeen) -> None:
    report.lines += ["## The five phases", "", *bars_of.phase_table(elastic, fixed)]
    report.lines += ["### Migrations", "", *bars_of.migration_table(elastic.migrations)]
    if all(one.kind != PLACEMENT for one in elastic.migrations):
        report.lines += ["No change of placement alone was made, so its share of the state has no bar.", ""]
    report.bars += bars_of.phase_bars(elastic, fixed)
    report.bars += bars_of.share_bars(elastic.migrations)
    RESULTS.mkdir(exist_ok=True)
    plot(elastic, fixed, elastic.migrations, RESULTS / f"{bench.name}.png")
    report.lines += [f"![the five phases]({bench.name}.png)", "", PAPER, ""]


def _through(bench: Bench, name: str, given: Given, seen: dict[bool, PhasesSeen], elastic: bool) -> None:
    """With elasticity until every tweet has arrived; without, until the phases are over: it has fallen behind."""
    through = seen[elastic].phases
    works = ", ".join(f"{utilisation(rate, INSTANCES):.2f} at {rate}/s" for rate in through.rates)
    bench.say(f"{name}: {through.total:.0f} s of tweets; by their work alone, five detectors are busy for {works}")
    with PatternsRun(bench.folder / name, given, through.settings(elastic, bench.mapping), bench.say) as run:
        try:
            run.start()
            if not elastic:
                run.watch(through.total + AFTER)
            elif not run.watch(2 * through.total + 300, expected=through.total):
                raise RuntimeError(f"not all tweets have arrived: {run.samples[-1] if run.samples else 'no answer'}")
        finally:
            began, samples = since_first_tweet(run.samples, given.schedule.when)
            migrations = [replace(one, began=one.began - began) for one in run.migrations()]
            seen[elastic] = PhasesSeen(through, samples, migrations)
        if not elastic:
            with suppress(subprocess.SubprocessError):  # all is seen; leaving the block ends it in any case
                run.stop("--at-once")


def _cost_of_batches(bench: Bench, fixed: PhasesSeen) -> list[str]:
    """What micro-batches cost beside the work, and what to do if that is more than the rule bears."""
    busy = busy_in(fixed.samples, fixed.phases.spans[0])
    cost = busy - utilisation(RATES[0], INSTANCES)
    told = (
        f"At {RATES[0]}/s five detectors were busy for {busy:.2f} of their time; {cost:.2f} of it is what "
        f"micro-batches cost (bearable: {BEARABLE:g})."
    )
    bench.say(told)
    if not cost <= BEARABLE:
        what = "It is not known for how long they are busy."
        if not math.isnan(cost):
            longer = longer_batches(bench.phases, cost)
            knobs = f"LINGER={longer.linger:g} FACTOR={longer.factor:g}"
            what = f"Longer micro-batches would help: {knobs} ({longer.total:.0f} s of tweets)."
        bench.say(f"WARNING: the detector's instances will not go the paper's way. {what}")
    return [told, ""]


def restarts(bench: Bench, report: Report) -> None:
    """What the same changes cost somebody who stops the topology and starts it again."""
    hold = bench.phases.seconds / 3
    lines = ["## Without migration: stop and start", "", "| detectors | silence, s |", "| --- | ---: |"]
    steps = [(bench.phases.lead + hold, bench.phases.rates[0] / RATE_SCALE)]
    steps += [(hold, rate / RATE_SCALE) for rate in bench.phases.rates[1:]]
    given = replace(bench.given("restarts", bench.phases), steps=steps, rows=10 * bench.phases.rows)
    with PatternsRun(bench.folder / "restarts", given, bench.phases.settings(False, bench.mapping), bench.say) as run:
        run.start()
        run.watch(bench.phases.lead + hold)
        for before, after in pairwise(DEALT):
            began = time.monotonic()
            run.stop("--at-once")
            run.start(replace(given, instances=after))
            if not run.watch(300.0, lambda: _reported(run)):
                raise RuntimeError("nothing is reported after a start")
            silence = time.monotonic() - began
            bench.say(f"{before} to {after} detectors by stop and start: silent for {silence:.0f} s")
            lines.append(f"| {before} to {after} | {silence:.0f} |")
            run.watch(hold)
        run.stop("--at-once")
    report.lines += [*lines, ""]


def _reported(run: PatternsRun) -> bool:
    status = run.look()
    return status is not None and any(one["name"] == REPORTER and one["rows_in"] for one in status["operators"])


def moves(bench: Bench, report: Report) -> None:
    load = Load(1000, MOVE_MB, before=10.0, after=5.0, warm_up=60.0 if bench.is_whole else 30.0, filling=20.0)
    rounds = []
    sizes: list[int] = []
    for number in range(bench.rounds):
        answer = moving.in_a_process("moves", load, bench.folder / f"moves-{number}", bench.say)
        rounds.append({name: [Measured(**one) for one in found] for name, found in answer["moves"].items()})
        sizes += answer["bytes"]
    held = f"from {min(sizes) / 1e6:.1f} to {max(sizes) / 1e6:.1f} MB"
    report.lines += ["## A stateful move beside a stateless one", "", f"State of a task: {held}.", ""]
    report.lines += bars_of.move_table(rounds)
    report.bars += bars_of.move_bars(rounds)


def sizes(bench: Bench, report: Report) -> None:
    found = []
    for size in SIZES if bench.is_whole else LOOK_SIZES:
        filling = max(5.0, size * 4 / 20)  # 20 MB/s
        load = Load(200, size, before=10.0, after=10.0, warm_up=20.0, tasks=4, text=4000, filling=filling)
        for engine in ENGINES:
            bench.say(f"{size:g} MB a task, {engine}")
            answer = moving.in_a_process(engine, load, bench.folder / f"sizes-{size:g}-{engine}", bench.say)
            found.append((size, engine, answer["state_bytes"], [Measured(**one) for one in answer["actions"]]))
    report.lines += ["## Moves by size of state", "", *bars_of.size_table(found)]


def counts(bench: Bench, report: Report) -> None:
    steps = [(1.0, KILLED_RATE / RATE_SCALE)]
    rows = int(KILLED_RATE / RATE_SCALE * KILLED_SECONDS)
    given = replace(bench.given("counts", bench.phases), steps=steps, rows=rows, instances=10)
    # Kills that came too late for their move are kills all the same, and each may end some queries.
    settings = bench.phases.settings(False, "fewest_moves") | {"query_restarts": 100}
    with PatternsRun(bench.folder / "counts", given, settings, bench.say) as run:
        run.start()
        kills = Kills(run, bench.say)
        done = kills.all(KILLS)
        report.lines += ["## Kills in the middle of moves", "", f"Killed, in this order: {', '.join(done)}.", ""]
        report.bars.append(Bar("4. kills in the middle of moves", len(done), KILLS, at_most=False))
        bench.say(f"{len(done)} kills; waiting for the last tweets")
        if not run.watch(2 * KILLED_SECONDS, expected=KILLED_SECONDS / 4):
            raise RuntimeError("not all tweets have arrived after the kills")
    found = bench.compared("counts", given)
    report.lines += [f"Counts, beside the batch job: `{found}`", ""]
    report.bars += bars_of.count_bars("through the kills", found)


MEASURES: Mapping[str, Callable[[Bench, Report], None]] = {
    "phases": phases,
    "restarts": restarts,
    "moves": moves,
    "sizes": sizes,
    "counts": counts,
}


# Putting it together


def chosen_parts(only: str, rounds: int) -> list[str]:
    """In their order; ValueError for one that there is not."""
    asked = [one for one in only.split(",") if one]
    if unknown := set(asked) - set(PARTS):
        raise ValueError(f"{', '.join(sorted(unknown))}: --only takes {', '.join(PARTS)}")
    wanted = asked or (PARTS if rounds > 1 else OF_LOOK)
    return [part for part in PARTS if part in wanted]


def page_of(parts: Sequence[str], is_whole: bool) -> str:
    """The name of the results: parts that are run one after the other do not overwrite each other's."""
    if parts == list(PARTS if is_whole else OF_LOOK):
        return named("stateful", is_whole)
    return named(f"stateful-{'-'.join(parts)}", False)


def minutes_left(parts: Sequence[str], is_whole: bool) -> int:
    return sum(MINUTES[part][is_whole] for part in parts)


def refusal() -> str:
    """Why there can be no lab here; empty if there can be."""
    try:
        require_lab(LabShape(), 1, Owner.this_process())
    except PenstockError as error:
        return f"{error.message} {error.hint}"
    return ""


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="of moves; 1 is a look: shorter phases, one part")
    parser.add_argument("--only", default="", help="parts, separated by commas")
    parser.add_argument("--mapping", default="traffic_aware", help="of the phases")
    parser.add_argument("--linger", type=float, help="seconds of a micro-batch, if not those of the phases")
    parser.add_argument("--factor", type=float, help="by which time is divided, if not that of the phases")
    options = parser.parse_args(arguments)
    is_whole = options.rounds >= ROUNDS
    try:
        parts = chosen_parts(options.only, options.rounds)
        timed = retimed(WHOLE if is_whole else LOOK, options.linger, options.factor)
    except ValueError as wrong:
        parser.error(str(wrong))
    if why := refusal():
        parser.error(why)
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    began = time.monotonic()

    def say(text: str) -> None:
        print(f"{time.monotonic() - began:6.0f} s  {text}", file=sys.stderr, flush=True)

    name = page_of(parts, is_whole)
    report = Report()
    calibration = calibrate()
    say(f"calibrated: {calibration}")
    with tempfile.TemporaryDirectory(prefix="penstock-stateful-", ignore_cleanup_errors=True) as folder:
        bench = Bench(Path(folder), calibration, is_whole, options.rounds, options.mapping, name, say, timed)
        try:
            for index, part in enumerate(parts):
                say(f"part {part}; about {minutes_left(parts[index:], is_whole)} minutes left in all")
                _measured(bench, report, part)
        finally:  # also if somebody ends it: what was measured until then is worth a page
            report.bars.append(Bar("parts that failed", len(report.failed), 0, at_most=True))
            lines = [*method(bench).splitlines(), "", *report.lines, *(f"Failed: {one}\n" for one in report.failed)]
            lines.append(f"The whole took {(time.monotonic() - began) / 60:.0f} minutes.\n")
            print("\n".join(report.lines))
            write_results(name, lines, report.bars, machine())
    return finish(report.bars)


def _measured(bench: Bench, report: Report, part: str) -> None:
    try:
        MEASURES[part](bench, report)
    except Exception as wrong:  # the other parts are measured all the same, and a bar is missed
        bench.say(f"{part} failed: {wrong}")
        report.fail(part, wrong)
    except BaseException as wrong:
        report.fail(part, wrong)
        raise


def method(bench: Bench) -> str:
    settings = bench.phases.settings(True, bench.mapping)
    return METHOD.format(
        factor=bench.phases.factor,
        seconds=bench.phases.seconds,
        period=settings["threshold_period"],
        lead=bench.phases.lead,
        scale=RATE_SCALE,
        cost=1000 * COST,
        frequent=FREQUENT,
        calibration=bench.calibration,
        low=settings["threshold_in"],
        mapping=bench.mapping,
        linger=bench.phases.linger,
        move_mb=MOVE_MB,
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
