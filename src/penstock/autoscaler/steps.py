"""The steps that a controller has taken and not taken back, and how one is taken back.

A controller walks: what it did last is what it takes back first. A scale-in takes back the instances that the scale-out
before it had added, with their machine; without that, every cycle of out and in would leave more instances behind. And
if a machine is needed again that was removed, everything goes back to where it was before. What was done is read from
the policy's own decisions in the view; instances that a person set are left alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from penstock.autoscaler.policy import Decided, Fate, View
from penstock.autoscaler.proposals import Nothing, machines_fewer, machines_more
from penstock.cluster.model import Cluster, Machine, Placement, Slot
from penstock.monitor.snapshot import Snapshot
from penstock.plans.plan import Action, AddMachine, RemoveMachine, apply, diff
from penstock.plans.repair import repair
from penstock.strategies.mapping.tasks import follow_instances


@dataclass(frozen=True)
class Step:
    """A decision that was carried out, with its corrections, and that no later one has taken back."""

    operation: int
    #: When it was decided, in run time.
    at: float
    #: Machines that came, less those that went.
    machines: int
    before: Placement
    after: Placement

    @property
    def instances(self) -> Mapping[str, int]:
        """Operator -> the instances that the step added; below 0, those that it took away."""
        change = {name: self.after.total(name) - self.before.total(name) for name in self.before.instances}
        return {name: count for name, count in change.items() if count}


def open_steps(history: Sequence[Decided]) -> list[Step]:
    """The oldest first. What was taken back by a decision that was undone itself is there again. Where a decision took
    steps back and kept some of their instances, these are a step of their own; once that is taken back too, nothing of
    the first steps is left."""
    made: list[Decided] = []
    taken_back: set[int] = set()
    undone: set[int] = set()
    corrected: dict[int, Placement] = {}
    for one in reversed(history):
        if one.fate is not Fate.DONE or one.operation is None or one.operation in undone:
            continue
        (undone if one.proposal.undo else taken_back).update(one.proposal.reverts)
        if one.proposal.before is None or one.proposal.undo or one.dropped:
            continue
        if one.proposal.corrects is not None:  # it is a part of what it corrects, and the newest one counts
            corrected.setdefault(one.proposal.corrects, step_of(one).after)
        else:
            made.append(one)
    steps: dict[int, Step] = {}
    for one in reversed(made):
        step, reverts = step_of(one), one.proposal.reverts
        if not reverts:
            steps[step.operation] = replace(step, after=corrected.get(step.operation, step.after))
        elif all(back in steps for back in reverts):  # of steps that are forgotten, nobody knows what was kept
            left = _left_by(step, [steps[back] for back in reverts])
            steps |= {} if left is None else {left.operation: left}
    return [step for operation, step in steps.items() if operation not in taken_back]


def _left_by(back: Step, reverted: Sequence[Step]) -> Step | None:
    """The instances that these steps, the newest first, added and that the step which took them back has kept, with the
    machines that stayed; None if it has kept no instances. Instances that a person set are not among them."""
    change: Counter[str] = Counter()
    for step in (*reverted, back):
        change.update(step.instances)
    first = reverted[-1].before
    # Not more than there are more than before: a person may have taken some away.
    left = {name: min(count, back.after.total(name) - first.total(name)) for name, count in change.items()}
    if not any(count > 0 for count in left.values()):
        return None
    instances = {name: dict(slots) for name, slots in back.after.instances.items()}
    for name, count in left.items():
        for _ in range(count):
            _drop(instances[name], first.of(name))
    machines = max(back.machines + sum(step.machines for step in reverted), 0)
    return replace(back, machines=machines, before=replace(back.after, instances=instances))


def step_of(one: Decided) -> Step:
    before, plan = one.proposal.before, one.proposal.plan
    assert before is not None
    assert one.operation is not None
    return Step(one.operation, one.at, machines_more(plan) - machines_fewer(plan), before, apply(before, plan.actions))


def with_machines(history: Sequence[Decided], machines: int) -> list[Step]:
    """The steps to take back together with so many machines: the newest first, down to the step that added them. Empty
    if the controller has not added the last of these machines itself."""
    found: list[Step] = []
    for step in reversed(open_steps(history)):
        if step.machines < 0:
            return []
        found.append(step)
        machines -= step.machines
        if machines <= 0:
            return found
    return []


def machines_brought(history: Sequence[Decided]) -> int:
    """How many machines are there because the controller has added them, as far as it remembers."""
    done = [one.proposal.plan for one in history if one.fate is Fate.DONE and not one.dropped]
    return sum(machines_more(plan) - machines_fewer(plan) for plan in done)


def taken_back(snapshot: Snapshot, steps: Sequence[Step], kept: Mapping[str, int] | None = None) -> Placement:
    """The placement without what these steps, the newest first, changed in numbers of instances; of the instances that
    they added, those that are `kept` stay. An instance goes from the slot that has most more of its operator than
    before the steps, and one that was given away comes back where it lacks most, so where nothing else has changed and
    nothing is kept, the instances from before come out. Tasks go home as far as that moves no more bytes than any other
    way to share them fairly."""
    placement = snapshot.placement
    instances = {name: dict(slots) for name, slots in placement.instances.items()}
    tasks = dict(placement.tasks)
    change: Counter[str] = Counter()
    for step in steps:
        change.update(step.instances)
    for name, count in change.items():
        slots, had = instances[name], steps[-1].before.instances.get(name, {})
        least = max(snapshot.definition.operator(name).min_instances, 1)
        for _ in range(min(count - (kept or {}).get(name, 0), sum(slots.values()) - least)):
            _drop(slots, had)
        for _ in range(-count):
            _bring_back(slots, {slot: number for slot, number in had.items() if slot in placement.slots})
    for name in change.keys() & tasks.keys():
        if instances[name] != placement.of(name):
            sizes = snapshot.operators[name].state_sizes(len(tasks[name]))
            homes = steps[-1].before.tasks.get(name, ())
            tasks[name] = follow_instances(tasks[name], instances[name], sizes, homes)
    return Placement(instances, tasks)


def _drop(slots: dict[Slot, int], had: Mapping[Slot, int]) -> None:
    slot = max(slots, key=lambda one: (slots[one] - had.get(one, 0), slots[one], one))
    slots[slot] -= 1
    if not slots[slot]:
        del slots[slot]


def _bring_back(slots: dict[Slot, int], had: Mapping[Slot, int]) -> None:
    """One more on the slot that has most fewer than before; nothing if none has."""
    slot = max(had, key=lambda one: (had[one] - slots.get(one, 0), one), default=None)
    if slot is not None and had[slot] > slots.get(slot, 0):
        slots[slot] = slots.get(slot, 0) + 1


def way_back(view: View, step: Step) -> tuple[Action, ...] | Nothing:
    """The actions that lead from here to where everything was before a step. Machines that are gone since are replaced
    by new ones; machines that the step added go."""
    now, cluster = view.snapshot.placement, view.snapshot.cluster
    if any(len(now.tasks.get(name, ())) != len(slots) for name, slots in step.before.tasks.items()):
        return Nothing("operators were repartitioned since then, so the placement of before does not fit any more")
    missing = max(-step.machines, 0)
    coming = view.coming(missing) if missing else None
    if isinstance(coming, Nothing):
        return coming
    new = coming.machines if coming is not None else ()
    target = _mapped(step.before, cluster, new)
    known = cluster.plus(new)
    superfluous = [machine.name for machine in known.machines if target.slots.isdisjoint(machine.slots)]
    gone = superfluous[len(superfluous) - max(step.machines, 0) :] if step.machines > 0 else []
    target = repair(target, known.minus(gone).slots)
    return (
        *(AddMachine(machine) for machine in new),
        *diff(now, target),
        *(RemoveMachine(name) for name in gone),
    )


def _mapped(placement: Placement, cluster: Cluster, new: Sequence[Machine]) -> Placement:
    """The placement on slots that are there: each slot that is gone becomes one of a new machine, in their order."""
    there = set(cluster.slots)
    lost = sorted(slot for slot in placement.slots if slot not in there)
    fresh = [slot for machine in new for slot in machine.slots]
    instead = dict(zip(lost, fresh, strict=False))

    def here(slot: Slot) -> Slot:
        return instead.get(slot, slot)

    instances = {}
    for name, slots in placement.instances.items():
        moved: dict[Slot, int] = {}
        for slot, count in slots.items():
            moved[here(slot)] = moved.get(here(slot), 0) + count
        instances[name] = moved
    tasks = {name: tuple(here(slot) for slot in slots) for name, slots in placement.tasks.items()}
    return Placement(instances, tasks)
