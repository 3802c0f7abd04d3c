"""What is to change to reach the goal: other instances on the machines that are there, or machines, or less of both.

More is tried in this order: a strategy that corrects itself gives the new instances of its last scale-out out again;
other instances come where cores are idle; what a scale-in took away comes back; machines come, which the strategy
fills. When the topology needs less, what was added last is taken back: instances, or a machine with the instances that
came with it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from penstock.autoscaler.answers import answer_of, expected_of, last_machine
from penstock.autoscaler.corrections import correction
from penstock.autoscaler.expectation import Expectation
from penstock.autoscaler.goals import (
    MOST_USED,
    TOLERANCE,
    Grow,
    Shrink,
    cores_used,
    demand,
    rules_for,
    too_slow,
    wish,
)
from penstock.autoscaler.lessons import at_their_limit
from penstock.autoscaler.measured_load import bare_load
from penstock.autoscaler.policy import Coming, Fate, View
from penstock.autoscaler.proposals import Answer, Nothing, Proposal
from penstock.autoscaler.rearrangement import Rearranged, rearranged
from penstock.autoscaler.steps import Step, machines_brought, open_steps, taken_back, way_back, with_machines
from penstock.autoscaler.strategies import Gain, Strategy
from penstock.cluster.model import Placement, Slot
from penstock.monitor.snapshot import Snapshot
from penstock.plans.plan import AddMachine, Plan, diff
from penstock.plans.repair import repair
from penstock.strategies.decision import Decision, NothingToDo
from penstock.strategies.load import Load
from penstock.strategies.mapping.chains import chains_of
from penstock.strategies.mapping.keeping import least_loaded
from penstock.strategies.mapping.tasks import follow_instances
from penstock.strategies.memory import EMPTY, Added, Memory
from penstock.strategies.rules import Rules

#: What brings less than this share of the throughput is not worth a change.
WORTHWHILE = 0.03
#: Instances that came without a machine stay for so many windows (an hour, by default, if a chain is to be joined; else
#: four): idle instances cost little, and a load that comes and goes would have them come and go.
JOINED_AFTER, TAKEN_AFTER = 18, 72
#: Instead of the name of a machine that came and that nobody knows any more: it was replaced, or is empty.
_UNKNOWN = "some machine"


def towards_the_goal(view: View, strategy: Strategy) -> Answer:
    if view.goal is None:
        return Nothing("the topology has no goal, and nobody has asked for machines")
    if isinstance(view.load, Nothing):
        return view.load
    rules = rules_for(Rules.of(view.settings), view.balance)
    wanted = wish(view.goal, view.snapshot, view.load, rules)
    if isinstance(wanted, Grow):
        return _more(view, view.load, strategy, wanted, rules)
    if isinstance(wanted, Shrink):
        return _fewer(view, view.load, strategy, wanted, rules)
    return _relaxed(view, view.load, rules, wanted.reason)


# More


def _more(view: View, load: Load, strategy: Strategy, wanted: Grow, rules: Rules) -> Answer:
    goal, now = view.goal, view.balance.throughput or 0.0
    assert goal is not None
    room = None if goal.machines_max is None else goal.machines_max - view.machines
    coming = Nothing(f"the goal allows {goal.machines_max} machines") if room == 0 else view.coming(1)
    if isinstance(strategy, Gain) and (isinstance(coming, Nothing) or not _lacks_cores(view, load)):
        corrected = correction(view, load, strategy, rules, _memory(view), wanted.reason)
        if corrected is not None:
            return corrected
    other = rearranged(view.snapshot, load, goal.throughput, view.settings)
    helps = isinstance(other, Rearranged) and (other.moved or other.expected.throughput >= now * (1 + WORTHWHILE))
    # What is left is what the sources do not offer.
    enough = goal.throughput is None or not other.expected.saturated
    enough = enough or other.expected.throughput >= (goal.throughput or 0.0) * (1 - TOLERANCE)
    if isinstance(other, Rearranged) and helps and (enough or isinstance(coming, Nothing)):
        return _instances(view, other, wanted.reason)
    why_not = str(other) if isinstance(other, Rearranged) else other.reason
    if isinstance(coming, Nothing):
        return Nothing(f"{wanted.reason}; {why_not}; and {coming.reason}")
    again = _again(view, wanted)
    if again is not None:
        return again
    return _machines(view, load, strategy, wanted, rules, why_not)


def _lacks_cores(view: View, load: Load) -> bool:
    """Whether the cores that are there are too few for the goal, however instances are given out: a correction, which
    knows rates and no cores, would promise too much."""
    used, goal, now = cores_used(view.snapshot), view.goal, view.balance.throughput
    if used is None or goal is None or goal.throughput is None or not now:
        return False
    return used * min(goal.throughput, demand(load)) / now > sum(slot.cores for slot in view.snapshot.cluster.slots)


def _instances(view: View, other: Rearranged, why: str) -> Proposal:
    reason = f"cores are idle on the machines that are there: {other}"
    plan = Plan(diff(view.snapshot.placement, other.placement), reason)
    decision = {"outcome": "decision", "reason": reason, "added_instances": dict(other.added)}
    expected, now = other.expected, view.balance.throughput or 0.0
    if other.moved:  # at least what makes it worthwhile, or it was in vain
        expected = replace(expected, throughput=max(expected.throughput, now * (1 + WORTHWHILE)))
    return Proposal(plan, (why, reason), expected.predictions(view.machines), decision=decision)


def _again(view: View, wanted: Grow) -> Proposal | None:
    """The way back to before the last scale-in, if that was the last thing that was done."""
    steps = open_steps(view.history)
    if not steps or steps[-1].machines >= 0 or not _as_left(view, steps[-1]):
        return None
    step = steps[-1]
    actions = way_back(view, step)
    if isinstance(actions, Nothing) or not actions:
        return None
    reason = f"everything goes back to where it was before operation {step.operation} removed a machine"
    expected = expected_of(view, step.before)
    predictions = expected.predictions(view.machines - step.machines) if expected is not None else ()
    return Proposal(Plan(actions, reason), (wanted.reason, reason), predictions, reverts=(step.operation,))


def _as_left(view: View, step: Step) -> bool:
    now = view.snapshot.placement
    return all(now.total(name) == step.after.total(name) for name in step.after.instances if name in now.instances)


def _machines(view: View, load: Load, strategy: Strategy, wanted: Grow, rules: Rules, why_not: str) -> Answer:
    coming = view.coming(wanted.machines)
    if isinstance(coming, Nothing):
        coming = view.coming(1)
    if isinstance(coming, Nothing):
        return coming
    rates = load if strategy.needs_rates else bare_load(view.snapshot)
    if isinstance(strategy, Gain):
        placement, memory = view.snapshot.placement, _memory(view)
        found = strategy.scale_out(rates, placement, coming.cluster, coming.machines, rules, memory)
    else:
        found = strategy.scale_out(rates, view.snapshot.placement, coming.cluster, coming.machines, rules)
    slow = too_slow(view.snapshot, load, rules)
    if isinstance(found, Decision):
        new = {step.operator for step in found.steps if step.origin is None}
        if new and new.isdisjoint(slow):
            return _cores(view, load, coming, slow, wanted.reason) or Nothing(
                f"{wanted.reason}; a machine would bring nothing: {at_their_limit(view, slow) or why_not}"
            )
    elif isinstance(found, NothingToDo):
        # Whether cores are what lacks, is asked here for all strategies.
        nothing = answer_of(found, view, wanted.reason, view.machines)
        return _cores(view, load, coming, slow, wanted.reason) or nothing
    return answer_of(found, view, wanted.reason, len(coming.cluster.machines))


def _cores(view: View, load: Load, coming: Coming, slow: Sequence[str], why: str) -> Proposal | None:
    """Machines for what a strategy, which looks at operators one by one, does not see. Operators that have all the
    instances that they can use, but not the cores: some of the instances move there, with their tasks. And a chain that
    is too slow as a whole, though each of its operators by itself is fast enough: it grows as a whole."""
    larger = replace(view.snapshot, cluster=coming.cluster.plus(coming.machines))
    other = rearranged(larger, load, view.goal.throughput if view.goal else None, view.settings)
    if not isinstance(other, Rearranged):
        return None
    chains = [chain for chain in view.snapshot.chains if chain[0] in slow and other.added.keys() >= set(chain)]
    new_slots = {slot for machine in coming.machines for slot in machine.slots}
    gains = other.expected.throughput >= (view.balance.throughput or 0.0) * (1 + WORTHWHILE)
    if not other.moved and not (chains and gains and not new_slots.isdisjoint(other.placement.slots)):
        return None
    found = _instances(view, other, why)
    actions = (*(AddMachine(machine) for machine in coming.machines), *found.plan.actions)
    if other.moved:
        reason = f"{', '.join(dict.fromkeys(other.moved))} lacks cores, not instances: {other}"
    else:
        reason = f"the chain {' - '.join(chains[0])} is too slow as a whole: {other}"
    machines = [replace(one, value=float(len(larger.cluster.machines))) for one in found.predictions[:1]]
    return replace(
        found, plan=Plan(actions, reason), reasons=(why, reason), predictions=(*machines, *found.predictions[1:])
    )


def _memory(view: View) -> Memory:
    """The rates that `gain` has learned. What was added is left out: `steps.py` takes it back, for all strategies."""
    kept = (one.proposal.memory for one in reversed(view.history) if one.fate is Fate.DONE)
    found = next((memory for memory in kept if memory is not None), EMPTY)
    return replace(found, added=())


# Less


def _fewer(view: View, load: Load, strategy: Strategy, wanted: Shrink, rules: Rules) -> Answer:
    snapshot = view.snapshot
    if wanted.machines >= view.machines:
        return last_machine(wanted.machines, snapshot.cluster.names)
    # What is reverted, and what says to a strategy that takes instances away itself how many these are.
    steps = came = with_machines(view.history, wanted.machines)
    placement = _without_what_is_idle(view, load, steps)
    if placement == snapshot.placement != taken_back(snapshot, steps):
        steps = []  # all that came with the machine is needed
    rates = load if strategy.needs_rates else bare_load(snapshot)
    if isinstance(strategy, Gain):
        # It takes instances away itself, so it gets the placement that was measured, and is told what to take back.
        brought = bool(came) or machines_brought(view.history) >= wanted.machines
        back = _to_take_back(snapshot.placement, placement, came, wanted.machines) if brought else ()
        memory = replace(_memory(view), added=back)
        found = strategy.scale_in(rates, snapshot.placement, snapshot.cluster, wanted.machines, rules, memory)
    else:
        found = strategy.scale_in(rates, placement, snapshot.cluster, wanted.machines, rules)
    if isinstance(found, Decision):
        found = _with_what_is_needed(view, found, placement)
    return answer_of(found, view, wanted.reason, view.machines, reverts=tuple(step.operation for step in steps))


def _without_what_is_idle(view: View, load: Load, steps: Sequence[Step]) -> Placement:
    """The placement without the instances that these steps added. An operator that would have too little time without
    them keeps as many as it needs; in a chain, that is the operator that takes most of the chain's time, or the whole
    chain if that operator by itself would have time enough."""
    snapshot, kept = view.snapshot, Counter[str]()
    expectation = Expectation(snapshot, load, view.settings.chaining == "on")
    while True:
        placement = taken_back(snapshot, steps, kept)
        lacking = _too_full(snapshot.placement, placement, expectation)
        if not lacking:
            return placement
        utilisation = expectation.of(placement).utilisation
        busiest = max(lacking, key=lambda name: utilisation[name])
        kept.update(_keeps_one(snapshot, placement, expectation, busiest))


def _keeps_one(snapshot: Snapshot, placement: Placement, expectation: Expectation, name: str) -> Sequence[str]:
    """Who keeps an instance if an operator has too few: it alone, or its chain, which then stays one."""
    chain = snapshot.chain_of(name)
    alone = (snapshot.operators[name].rate or 0.0) / max(expectation.rates[name] * placement.total(name), 1e-9)
    alike = all(placement.of(one) == placement.of(name) for one in chain)
    return chain if alike and alone <= MOST_USED else (name,)


def _to_take_back(now: Placement, left: Placement, steps: Sequence[Step], machines: int) -> tuple[Added, ...]:
    """What came with the machines that these steps, the newest first, added, as a strategy remembers it: the instances
    that are not `left`. There are none if the steps were taken back before, with another machine that came with them:
    only where the controller has not added the machines is it for the strategy to say how many go."""
    back = {name: now.total(name) - left.total(name) for name in now.instances}
    known = set[str]()
    if steps:
        before, after = ({slot.machine for slot in one.slots} for one in (steps[-1].before, steps[0].after))
        known = after - before
    # As many as go, so that nothing more is taken away with the others.
    names = [*sorted(known), *(f"{_UNKNOWN} {number}" for number in range(machines))][:machines]
    return (*(Added(name, {}) for name in names[1:]), Added(names[0], back))


def _with_what_is_needed(view: View, found: Decision, placement: Placement) -> Decision:
    """The decision; or the same machines removed with as many more instances as the goal needs, and as operators need
    to have time to spare, on the machines that stay: there are cores for them. Where these have no room, all instances
    are kept if the goal needs them, which will not fit either, and the machine stays."""
    now = view.balance.throughput or 0.0
    required = now if view.goal is None or view.goal.throughput is None else min(now, view.goal.throughput)
    slots = view.snapshot.cluster.minus(found.removed).slots
    after, given = found.placement, Counter[str]()
    while (expected := expected_of(view, after)) is not None:
        fewer = [name for name in placement.instances if after.total(name) < placement.total(name)]
        short = expected.throughput < required * (1 - TOLERANCE)
        lacking = fewer if short else [name for name in fewer if expected.fullness[name] > MOST_USED]
        if not lacking:
            break
        name = max(lacking, key=lambda one: expected.fullness[one])
        more = _with_one_more(view, after, name, slots)
        if more is None:
            after = repair(placement, slots) if short else after
            break
        after, given = more, given + Counter([name])
    if after == found.placement:
        return found
    words = ", ".join(f"{count} of {name}" for name, count in given.items()) or "all instances"
    reason = f"{', '.join(found.removed)} goes, and {words} that {found.strategy} would take away stay: they are needed"
    return replace(found, placement=after, steps=(), reason=reason, projected=None)


def _with_one_more(view: View, placement: Placement, name: str, slots: Sequence[Slot]) -> Placement | None:
    """The placement with one more instance of an operator on one of these slots; None if none of them has room."""
    load = placement.load()
    room = [slot for slot in slots if load.get(slot, 0) < view.settings.slot_instances]
    if not room:
        return None
    own = dict(placement.of(name))
    slot = least_loaded(room, load, own)
    own[slot] = own.get(slot, 0) + 1
    tasks = dict(placement.tasks)
    if name in tasks:
        sizes = view.snapshot.operators[name].state_sizes(len(tasks[name]))
        tasks[name] = follow_instances(tasks[name], own, sizes)
    return Placement({**placement.instances, name: own}, tasks)


def _relaxed(view: View, load: Load, rules: Rules, why: str) -> Answer:
    """Take back the instances that were added last without a machine, if the others have time enough. Operators that
    were one chain before become one again by that."""
    steps, now = open_steps(view.history), view.balance
    if not steps or steps[-1].machines or now.behind or now.lacking or too_slow(view.snapshot, load, rules):
        return Nothing(why)
    placement = taken_back(view.snapshot, steps[-1:])
    actions = diff(view.snapshot.placement, placement)
    if not actions or not _enough(view, load, placement):
        return Nothing(why)
    window = view.settings.window_samples * view.settings.sample_seconds
    definition, was = view.snapshot.definition, view.snapshot.placement
    joins = view.settings.chaining == "on" and chains_of(definition, placement) != chains_of(definition, was)
    left = steps[-1].at + (JOINED_AFTER if joins else TAKEN_AFTER) * window - view.now
    if left > 0:
        return Nothing(
            f"{why}; instances that were added lately are kept for {left:.0f} s: they cost nothing meanwhile"
        )
    names = ", ".join(steps[-1].instances)
    reason = f"the instances of {names} that operation {steps[-1].operation} added are not needed any more"
    expected = Expectation(view.snapshot, load, view.settings.chaining == "on").of(placement)
    return Proposal(
        Plan(actions, reason), (why, reason), expected.predictions(view.machines), reverts=(steps[-1].operation,)
    )


def _enough(view: View, load: Load, placement: Placement) -> bool:
    """Whether a placement with fewer instances would do what is done now, with time to spare."""
    expectation = Expectation(view.snapshot, load, view.settings.chaining == "on")
    return not _too_full(view.snapshot.placement, placement, expectation)


def _too_full(before: Placement, placement: Placement, expectation: Expectation) -> list[str]:
    """The operators of which fewer instances than before are too few. It may be another operator that has too little
    time then: operators that are placed alike become one chain, and its first one holds the others back."""
    was, then = expectation.of(before).fullness, expectation.of(placement).fullness
    fewer = [name for name in before.instances if placement.total(name) < before.total(name)]
    full = [name for name, share in then.items() if share > max(MOST_USED, was[name] * (1 + WORTHWHILE))]
    return [name for name in fewer if then[name] > MOST_USED] or (fewer if full else [])
