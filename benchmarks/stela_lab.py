"""What benchmarks/stela.py measures on machines that are really apart (docs/lab.md): its experiments, tables, bars."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from results import Bar
from stela_operations import GONE, MACHINES_IN, PAGE_LOAD_IN, RANDOM_GROUPS, STELA, STORM, scale_in_cores
from stela_runs import Result
from stela_tables import after_of, at_zero, middle, table
from stela_topologies import LAB_TOPOLOGIES, Experiment, growth, growth_of_cores, new_instances
from stela_work import carried

from penstock.topology.definition import TopologyDefinition
from penstock.workloads import StandIns

LAB = "lab"
SCALE_IN, SCALE_IN_WAITS = "lab_scale_in", "lab_scale_in_waits"
NAMES = (*LAB_TOPOLOGIES, SCALE_IN, SCALE_IN_WAITS)
#: What `lab` stands for: with one bottleneck also operators that wait, for which (k + n) / k is exact.
CAMPAIGN = (*(name for name, one in LAB_TOPOLOGIES.items() if one.works or one.single), SCALE_IN)
LINK_LOADS = ("least_link_load", "most_link_load")
STRATEGIES = (STELA, STORM, *LINK_LOADS)
#: Each round of an experiment takes about ten minutes.
ROUNDS = 1
#: What Stela's choice gave over the random groups in the paper, the better one first.
PAPER_IN = (2.0, 5.0)
#: What one bottleneck alone is to gain of (k + n) / k.
OF_GROWTH = 0.9
LOAD = 10
METHOD = """\
As stela.md, on machines of a lab: each has a share of a core for its operators and a link of 100 Mbit/s; Spark's JVMs
are outside the limits. All machines together leave one core of the computer to Spark. Operators work: a loop for every
row, calibrated at the start by the CPU time of the process to a tenth of a millisecond for each unit of load
({calibration}). Those of experiments that end in `_waits` wait as long, on machines of a core each. Where operators
work, sources give 25% more than all cores could do after the operation; in a scale-in 25% more than the fullest machine
could do before it. In experiments with `_single` one operator is as slow as published and all others are four times as
fast; where operators wait, sources give 25% more than that one could do with all new instances. Figures are medians of
rounds; rounds here: {rounds}. Batches take {each:g} s for each operator, at least {least:g} s; a run of {warm:g} s
does not count; {window:g} s are measured before and after, when batches have settled for {settled:g} s; after, also
when what had piled up is worked off, at most {drain:g} s later. Sources give a batch a second, because every batch
costs a machine some of its share of a core. "Expected", "own projection" and "best" are those of models that know
instances and no cores.

One operator alone with k instances can do (k + n) / k of what it did with n new ones, if each instance gets the core
time that it needs. Where the cores of its machines are used up, one machine more gives it no more than its cores:
(m + 1) / m for an operator that was on m machines. Both figures stand beside the measured one.
"""
Say = Callable[[str], None]


def names_of(asked: str) -> list[str]:
    """The experiments that somebody names; `lab` stands for the campaign."""
    names = [one for one in asked.split(",") if one]
    return list(dict.fromkeys(name for one in names for name in (CAMPAIGN if one == LAB else (one,))))


def out_table(
    name: str,
    experiment: Experiment,
    definition: TopologyDefinition,
    results: Mapping[str, Sequence[Result]],
    say: Say,
) -> list[Bar]:
    say(f"### {name}: {experiment.machines} machines of {experiment.cores:g} cores, one more\n")
    table(results, say)
    say(f"\n{size_line(experiment)}")
    after = {chosen: middle(found, after_of) for chosen, found in results.items()}
    bars: list[Bar] = []
    if STELA not in after:
        return bars
    picks = {", ".join(one.new) for one in results[STELA]}
    say(f"\nNew instances of {STELA}: {'; or '.join(sorted(picks))}.")
    if STORM in after:
        ratio = after[STELA] / after[STORM]
        bars.append(
            Bar(f"{name}: after / Storm's default (paper: {experiment.paper:.2f})", ratio, experiment.paper, False)
        )
        if experiment.single:
            gained = middle(results[STELA], gain_of)
            line, bar = single_figures(name, experiment, definition, ratio, gained)
            say(f"\n{line}")
            bars.append(bar)
    for other in LINK_LOADS:
        if other in after:
            bars.append(Bar(f"{name}: after / {other}", after[STELA] / after[other], 1.0, at_most=False))
    bars.append(Bar(f"{name}: s at zero throughput", middle(results[STELA], at_zero), 0, at_most=True))
    return bars


def size_line(experiment: Experiment) -> str:
    machines, cores = experiment.machines, experiment.cores
    grown = f"{machines * cores:.2f} cores become {(machines + 1) * cores:.2f}: {(machines + 1) / machines:.2f} times"
    if not experiment.works:
        return "Waits need no core, so the cores of the machines do not matter."
    rows = carried(cores, LOAD * StandIns.seconds_per_load)
    return f"A machine carries {rows:.0f} rows/s of a load of {LOAD}. All machines together: {grown}."


def gain_of(found: Result) -> float:
    """What an operation reached, over what its own run had before."""
    return found.measured.after / found.measured.before if found.measured.before else float("nan")


def single_figures(
    name: str, experiment: Experiment, definition: TopologyDefinition, ratio: float, gained: float
) -> tuple[str, Bar]:
    """The (k + n) / k of the one bottleneck beside what was measured, which is the `ratio` to Storm's default. Where
    operators work it is what cores allow, beside what Stela `gained` in its own run: Storm's default spreads the
    instances that there are over the new cores, and gains by that, too."""
    k, n = definition.operator(experiment.bottleneck).instances, new_instances(definition, experiment.machines)
    by_instances, by_cores = growth(k, n), growth_of_cores(k, experiment.machines)
    most = by_cores if experiment.works else by_instances
    line = (
        f"The bottleneck alone is {experiment.bottleneck}: k = {k} instances and n = {n} new ones, "
        f"(k + n) / k = {by_instances:.2f}; by the cores of its machines {by_cores:.2f}; "
        f"measured {ratio:.2f} of Storm's default, and {gained:.2f} of what there was before."
    )
    if experiment.works:
        what = f"after / before, of what the cores of its machines allow ({most:.2f})"
        return line, Bar(f"{name}: {what}", gained / most, OF_GROWTH, False)
    return line, Bar(f"{name}: after / Storm's default, of (k + n) / k ({most:.2f})", ratio / most, OF_GROWTH, False)


def in_table(name: str, results: Mapping[str, Sequence[Result]], say: Say) -> list[Bar]:
    works = name == SCALE_IN
    say(f"### {name}: PageLoad, {MACHINES_IN} machines of {scale_in_cores():g} cores, {GONE} go\n")
    say(
        f"{PAGE_LOAD_IN} instances of each operator, each machine with one operator or two. Stela chooses by ETPSum; "
        f'"random" draws the machines (seeds 1 and 2) and deals everything out again. No instance is lost. '
        + ("The instances share the cores that are left.\n" if works else "Waits need no core.\n")
    )
    table(results, say)
    if STELA not in results:
        return []  # the bar of what failed says so
    after = {chosen: middle(found, after_of) for chosen, found in results.items()}
    kept = middle(results[STELA], lambda one: one.measured.after / one.measured.before)
    say(f"\nStela keeps {kept:.2f} of the throughput with {(MACHINES_IN - GONE) / MACHINES_IN:.2f} of the cores.")
    random = sorted((after[group] for group in RANDOM_GROUPS if group in after), reverse=True)
    which = ("better", "worse")
    return [
        *(
            Bar(
                f"{name}: Stela / the {word} random group (paper: {paper:g})", after[STELA] / rate, paper, at_most=False
            )
            for word, paper, rate in zip(which, PAPER_IN, random, strict=False)
        ),
        Bar(f"{name}: s at zero throughput", middle(results[STELA], at_zero), 0, at_most=True),
    ]
