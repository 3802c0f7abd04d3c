"""What a controller still knows after the driver has restarted: what it remembers, as far as it fits what is there now.

Lessons, the budget and the cooldown are about the past, and hold. A step holds only if what it brought is there: a
machine may be missing, because the cluster was started with fewer, and instances may be others, because somebody has
declared others. A pure function."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from penstock.autoscaler.book_form import Remembered, Shape
from penstock.autoscaler.policy import Decided, Fate
from penstock.autoscaler.proposals import in_words, machines_fewer, machines_more
from penstock.autoscaler.records import Verdict
from penstock.autoscaler.steps import Step, open_steps
from penstock.cluster.model import Cluster, Placement
from penstock.plans.plan import AddMachine, Plan, apply

#: A decision without what is not there, and what is told of that.
Changed = tuple[Decided, str]


@dataclass(frozen=True)
class Recollection:
    """What is known again."""

    #: The oldest first.
    decided: tuple[Decided, ...] = ()
    last_ended: float | None = None
    #: The operations that were pending, and got their verdict now.
    judged: frozenset[int | None] = frozenset()
    #: What does not hold any more, and why, in sentences.
    told: tuple[str, ...] = ()


def recollection(remembered: Remembered, placement: Placement, cluster: Cluster, now: float) -> Recollection:
    """`placement` and `cluster` are those with which the new driver goes on."""
    found = Shape.of(placement, len(cluster.machines))
    decided, left, told = _ended(remembered, found, now)
    changed = dict[int | None, Decided]()
    for one, why in _not_there(decided, left, found, set(cluster.names)):
        # In the words of what was decided: the plan may lack the machine that is gone.
        told.append(f"operation {one.operation} ({in_words(_decision(one))}): {why}")
        changed[one.operation] = one
    whole = tuple(changed.get(one.operation, one) for one in decided)
    pending = (one for one in remembered.decided if one.record is not None and one.record.verdict is Verdict.PENDING)
    judged = frozenset(one.operation for one in pending)
    # A change that was carried out while the driver ended is measured from now on: the cooldown begins.
    pairs = zip(remembered.decided, decided, strict=True)
    ended_now = any(one.fate is Fate.DONE and not before.fate.over for before, one in pairs)
    return Recollection(whole, now if ended_now else remembered.last_ended, judged, tuple(told))


def _decision(one: Decided) -> Plan:
    return one.proposal.plan if one.record is None else one.record.proposal.plan


def _ended(remembered: Remembered, found: Shape, now: float) -> tuple[list[Decided], Shape, list[str]]:
    """The decisions, all of them over; how everything was left; and what is to be told of it. What was under way when
    the driver ended was either carried out or not, which the instances tell: a change has no halves."""
    decided, left, told = list[Decided](), remembered.left, list[str]()
    for one in remembered.decided:
        if one.fate.over:
            decided.append(_judged(one))
            continue
        before, after = _led(one)
        left = after if _is(found, before, after) else before
        fate, why = (Fate.DONE, "") if left is after else (Fate.CANCELLED, "the driver ended before it was over")
        decided.append(_judged(replace(one, fate=fate, reason=why, ended=now)))
        how = "was carried out" if left is after else "was not carried out"
        told.append(f"operation {one.operation} ({in_words(_decision(one))}) {how}; the driver ended meanwhile")
    return decided, left, told


def _is(found: Shape, before: Shape, after: Shape) -> bool:
    """Whether what is there is how it was to be after a change. A machine may be missing again by now, so where
    instances changed, they tell."""
    changed = before.instances != after.instances
    return found.instances == after.instances and (changed or found.machines == after.machines)


def _led(one: Decided) -> tuple[Shape, Shape]:
    """How everything was before a decision, and how it was to be after it."""
    assert one.record is not None
    before, machines = one.proposal.before, one.record.before.machines
    more = machines_more(one.proposal.plan) - machines_fewer(one.proposal.plan)
    if before is None:
        same = Shape(one.record.before.instances, machines)
        return same, replace(same, machines=machines + more)
    return Shape.of(before, machines), Shape.of(apply(before, one.proposal.plan.actions), machines + more)


def _judged(one: Decided) -> Decided:
    """What was measured before a restart is lost, and after it a backlog is worked off: nothing is left to judge by."""
    if one.record is None or one.record.verdict is not Verdict.PENDING:
        return one
    verdict, why = Verdict.UNCLEAR, "the driver was started again before it was measured"
    if one.fate is not Fate.DONE:
        verdict, why = Verdict.NOT_APPLIED, f"{one.fate}: {one.reason}"
    return replace(one, record=replace(one.record, verdict=verdict, why=why))


# What is not there


def _not_there(decided: Sequence[Decided], left: Shape, found: Shape, machines: set[str]) -> Iterator[Changed]:
    """The steps of which something is not there, without that. The newest ones are asked first: what came last is what
    a cluster lacks that was started with fewer machines."""
    by_operation = {one.operation: one for one in decided if one.operation is not None}
    steps = [(step, by_operation[step.operation]) for step in reversed(open_steps(decided))]
    missing = Counter({name: count - found.instances.get(name, 0) for name, count in left.instances.items()})
    lost, again = left.machines - found.machines, found.machines - left.machines
    there = list[tuple[Step, Decided]]()
    for step, one in steps:
        lacks = {name: min(count, missing[name]) for name, count in step.instances.items() if missing[name] > 0 < count}
        if not lacks:
            there.append((step, one))
            continue
        # Which of an operator's instances are those that it added, nobody can tell any more.
        missing.subtract(lacks)
        lost -= max(min(step.machines, lost), 0)
        words = " and ".join(f"{count} of {name}" for name, count in lacks.items())
        yield _dropped(one, f"instances that it added are not there any more ({words})")
    for step, one in there:
        if step.machines < 0 < again:
            again += step.machines
            yield _dropped(one, "the cluster has more machines now than it left")
    # Those of which a machine is gone by its name come first. Where all machines have other names, that is no help.
    for step, one in sorted(there, key=lambda pair: _came(pair[0]) <= machines):
        if (count := min(step.machines, lost)) > 0:
            lost -= count
            yield _with_fewer(one, count, machines)


def _dropped(one: Decided, why: str) -> Changed:
    text = f"it will not be taken back, because {why}"
    return replace(one, dropped=text), text


def _with_fewer(one: Decided, count: int, machines: set[str]) -> Changed:
    """The decision as if it had added so many machines less: its instances are there, and now count as instances that
    came without a machine. It is dropped if it has added fewer itself."""
    plan = one.proposal.plan
    added = [action for action in plan.actions if isinstance(action, AddMachine)]
    if len(added) < count:
        return _dropped(one, "the machine that it left is not there any more")
    added.sort(key=lambda action: action.machine.name in machines)
    rest = tuple(action for action in plan.actions if action not in added[:count])
    what = "the machine that it added is" if count == 1 else f"{count} machines that it added are"
    text = f"{what} not there any more; the instances that came along are, and will be taken back by themselves"
    return replace(one, proposal=replace(one.proposal, plan=replace(plan, actions=rest))), text


def _came(step: Step) -> set[str]:
    """The machines that a step added, as far as something runs on them."""
    before, after = ({slot.machine for slot in one.slots} for one in (step.before, step.after))
    return after - before
