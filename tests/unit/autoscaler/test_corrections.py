"""A scale-out of `gain` is corrected once it was measured: by the policy that the loop asks, from its own history."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from made_up import cluster, decided, placed, seen, view

from penstock.autoscaler.goals import Goal
from penstock.autoscaler.loop import Controller
from penstock.autoscaler.policy import Decided, Fate, View, decide, policy
from penstock.autoscaler.proposals import Answer, Proposal, machines_more
from penstock.autoscaler.records import Record, Verdict
from penstock.autoscaler.steps import open_steps
from penstock.cluster.model import Placement
from penstock.plans.plan import AddMachine, SetInstances, apply

#: 100 and 150 rows a second for an instance of "work" and of "out"; 390 are offered, and wanted.
SPEEDS = {"rows": 10_000.0, "work": 100.0, "out": 150.0}
ONE, TWO = cluster(1, cores=1), cluster(2, cores=1)
GOAL = Goal(throughput=390.0)
BEFORE = placed(ONE, rows=1, work=1, out=1)
FIRST, SECOND = TWO.slots
#: Instances mostly wait, and use this share of a core while they are busy: cores are not what lacks.
WAITS = 0.2
#: The scale-out took "out" to be faster than it is: all new instances are of "work".
SCALED = Placement({"rows": {FIRST: 1}, "work": {FIRST: 1, SECOND: 3}, "out": {FIRST: 1}})
CORRECTED = Placement({"rows": {FIRST: 1}, "work": {FIRST: 1, SECOND: 2}, "out": {FIRST: 1, SECOND: 1}})


def scaled_out(offered: float = 390.0) -> Decided:
    actions = (AddMachine(TWO.machines[1]), SetInstances("work", SCALED.of("work")))
    measured = seen(SCALED, TWO, SPEEDS, offered)
    return decided(1, seen(BEFORE, ONE, SPEEDS, offered), *actions, verdict=Verdict.LESS, measured=measured)


def corrected(number: int, rate: float = 390.0) -> Decided:
    actions = (SetInstances("work", CORRECTED.of("work")), SetInstances("out", CORRECTED.of("out")))
    measured = seen(CORRECTED, TWO, SPEEDS, rate)
    made = decided(number, seen(SCALED, TWO, SPEEDS, 390.0), *actions, measured=measured)
    return replace(made, proposal=replace(made.proposal, corrects=1))


def looked(placement: Placement, *history: Decided, offered: float = 390.0, cpu: float = WAITS, **more: Any) -> View:
    return view(seen(placement, TWO, SPEEDS, offered, cpu=cpu), GOAL, history=history, **more)


def answer(seen_by: View, strategy: str = "gain") -> Answer:
    return decide(strategy, policy(strategy), seen_by)


def corrects(found: Answer) -> int | None:
    return found.corrects if isinstance(found, Proposal) else None


def test_the_new_instances_are_given_out_again_by_what_was_measured() -> None:
    found = answer(looked(SCALED, scaled_out()))
    assert isinstance(found, Proposal)
    assert found.corrects == 1
    assert apply(SCALED, found.plan.actions) == CORRECTED
    assert "150 rows/s were measured" in found.reasons[1]
    assert found.memory is not None and found.memory.rates["out"] == 150.0


def test_where_cores_lack_a_machine_comes_and_nothing_is_corrected_before() -> None:
    """Two cores are busy with 150 rows/s, and 390 are wanted: other instances on the same cores do not help."""
    found = answer(looked(SCALED, scaled_out(), cpu=1.0))
    assert corrects(found) is None
    assert isinstance(found, Proposal)
    assert machines_more(found.plan) >= 1
    assert corrects(answer(looked(SCALED, scaled_out(), cpu=1.0, machines=0))) == 1, "no machine can come"


def test_only_gain_corrects_itself() -> None:
    assert corrects(answer(looked(SCALED, scaled_out()), "stela")) is None


def test_what_was_not_measured_under_this_load_is_not_corrected() -> None:
    assert corrects(answer(looked(SCALED, scaled_out(), offered=500.0))) is None
    pending = scaled_out()
    assert pending.record is not None
    pending = replace(pending, record=replace(pending.record, verdict=Verdict.PENDING, measured=None))
    assert corrects(answer(looked(SCALED, pending))) is None


def test_what_was_changed_by_somebody_else_is_not_corrected() -> None:
    other = Placement({**SCALED.instances, "rows": {FIRST: 2}})
    assert corrects(answer(looked(other, scaled_out()))) is None


def test_a_correction_that_is_right_is_the_last() -> None:
    assert corrects(answer(looked(CORRECTED, scaled_out(), corrected(2)))) is None


def test_the_better_placement_comes_back() -> None:
    """The correction measured worse by less than what counts as harmful."""
    worse = corrected(2)
    assert worse.record is not None and worse.record.measured is not None
    balance = replace(worse.record.measured.balance, throughput=140.0)
    record = replace(worse.record, measured=replace(worse.record.measured, balance=balance))
    found = answer(looked(CORRECTED, scaled_out(), replace(worse, record=record)))
    assert isinstance(found, Proposal)
    assert found.corrects == 1
    assert apply(CORRECTED, found.plan.actions) == SCALED


def test_it_is_corrected_twice_at_most() -> None:
    """As if the instances were back where the scale-out had put them."""
    actions = (SetInstances("work", SCALED.of("work")), SetInstances("out", SCALED.of("out")))
    back = decided(3, seen(CORRECTED, TWO, SPEEDS, 390.0), *actions, measured=seen(SCALED, TWO, SPEEDS, 390.0))
    back = replace(back, proposal=replace(back.proposal, corrects=1))
    first = replace(corrected(2), record=scaled_out().record)
    assert corrects(answer(looked(SCALED, scaled_out(), back))) == 1
    assert corrects(answer(looked(SCALED, scaled_out(), first, back))) is None


def test_a_correction_is_a_part_of_its_scale_out() -> None:
    """So a scale-in takes back what there is, and the numbers of the morning come out."""
    [step] = open_steps((scaled_out(), corrected(2)))
    assert (step.operation, step.machines) == (1, 1)
    assert step.instances == {"work": 2, "out": 1}
    night = view(seen(CORRECTED, TWO, SPEEDS, 40.0), Goal(throughput=40.0), history=(scaled_out(), corrected(2)))
    found = answer(night)
    assert isinstance(found, Proposal)
    assert found.reverts == (1,)
    after = apply(CORRECTED, found.plan.actions)
    assert {name: after.total(name) for name in after.instances} == {"rows": 1, "work": 1, "out": 1}


class HandsOfAWrongGuess:
    """Everything is carried out at once. Before the scale-out, "out" is taken to be faster than it is, and no core is
    idle, so that a machine comes."""

    def __init__(self) -> None:
        self.placement, self.carried = BEFORE, list[Proposal]()

    def look(self, history: tuple[Decided, ...]) -> View:
        where = ONE if self.placement == BEFORE else TWO
        cpu = 1.0 if where is ONE else WAITS
        snapshot = seen(self.placement, where, SPEEDS, 390.0, cpu=cpu, since=100.0 * len(history))
        if where is ONE:
            guessed = replace(snapshot.operators["out"], capacity=1_000.0)
            snapshot = replace(snapshot, operators={**snapshot.operators, "out": guessed})
        return view(snapshot, GOAL, history=history, now=100.0 * len(history))

    def carry_out(self, proposal: Proposal) -> int:
        self.carried.append(proposal)
        self.placement = apply(self.placement, proposal.plan.actions)
        return len(self.carried)

    def fate(self, operation: int) -> tuple[Fate, str]:
        return Fate.DONE, ""

    def keep(self, record: Record) -> Record:
        return record

    def tell(self, kind: object, reason: str) -> None:
        pass


def test_the_loop_scales_out_measures_and_corrects() -> None:
    hands = HandsOfAWrongGuess()
    controller = Controller("gain", policy("gain"), hands, guards=(), every=1.0)
    controller.step()
    assert hands.placement == SCALED
    controller.step()
    assert hands.placement == CORRECTED
    scale_out, second = controller.history()
    assert scale_out.record is not None and scale_out.record.verdict is Verdict.LESS
    assert second.proposal.corrects == scale_out.operation == 1
