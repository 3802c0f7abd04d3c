"""The protocol of policies: a policy gets a view of a running topology and answers with `Nothing` or with a `Proposal`.

A policy is pure: the same view gets the same answer. It reads no clock and changes nothing; its own earlier decisions
are in the view. A package registers its own as an entry point of the group penstock.policies (see
penstock.plugins), and users name it: `penstock run --strategy NAME`, `penstock scale-out --strategy NAME`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cached_property
from typing import Protocol, runtime_checkable

from penstock import plugins
from penstock.autoscaler.balance import Balance, balance_of
from penstock.autoscaler.goals import Goal, Grow, Shrink
from penstock.autoscaler.measured_load import measured_load
from penstock.autoscaler.proposals import Answer, Nothing, Proposal
from penstock.autoscaler.records import Record
from penstock.cluster.model import Cluster, Machine
from penstock.errors import PenstockError
from penstock.logs import LOGGER
from penstock.monitor.snapshot import Snapshot
from penstock.plans.plan import Plan, SetTasks, target
from penstock.plans.repartition import check_repartition
from penstock.settings import Settings
from penstock.strategies.load import Load
from penstock.strategies.memory import EMPTY, Memory


class Fate(StrEnum):
    """What became of a proposal. The words are those of the operation that carries it out."""

    WAITING = "waiting"
    RUNNING = "running"
    DONE = "done"
    NOTHING = "nothing to do"
    ROLLED_BACK = "rolled back"
    REFUSED = "refused"
    CANCELLED = "cancelled"

    @property
    def over(self) -> bool:
        return self not in (Fate.WAITING, Fate.RUNNING)


@dataclass(frozen=True)
class Decided:
    """A proposal that passed all guards, and what became of it."""

    #: The time of the decision: the view's `now`.
    at: float
    proposal: Proposal
    fate: Fate = Fate.WAITING
    #: The number of the operation that carries it out; None if it was refused at once.
    operation: int | None = None
    #: Why it was refused or rolled back.
    reason: str = ""
    #: When it was first seen to be over, in run time; None before that.
    ended: float | None = None
    #: What was expected of it and what was measured; None if it was refused at once.
    record: Record | None = None
    #: Why it is not to be taken back although it was carried out: after a restart of the driver, what it brought is not
    #: there. Empty if it counts.
    dropped: str = ""


@dataclass(frozen=True)
class Coming:
    """The machines that could come, and the cluster that they would come to. Idle slots that would be taken in as slots
    of the new machines are not in that cluster."""

    machines: tuple[Machine, ...]
    cluster: Cluster


@dataclass(frozen=True)
class View:
    """All that a policy and its guards look at, taken at one moment."""

    #: Its placement is the planned one: a slot that is lost for a moment does not change the plan.
    snapshot: Snapshot
    #: The graph with its rates, as they would be without back-pressure; or why the rates are not known.
    load: Load | Nothing
    settings: Settings = field(default_factory=Settings)
    #: The goal of the topology; None if it has none.
    goal: Goal | None = None
    #: What a person has asked for now; the policy then decides on that and not on the goal.
    request: Grow | Shrink | None = None
    #: The policy's own earlier decisions, the oldest first.
    history: tuple[Decided, ...] = ()
    #: When the view was taken, in run time.
    now: float = 0.0
    #: The same moment by the wall clock, in seconds since the epoch; None if it is not known.
    wall: float | None = None
    #: The operation that is under way, whoever asked for it; empty if none is.
    under_way: str = ""
    #: When the last operation ended; None if there was none.
    last_ended: float | None = None
    #: Since when the policy has wanted the same kind of change in every round; None if that is not known.
    wanted_since: float | None = None
    #: Whether the sources are paused: measurements then say nothing about demand.
    paused: bool = False
    #: What the strategy remembers of its last decision on request that was carried out.
    memory: Memory = EMPTY
    #: The cores that other topologies on the same cluster use, by machine; empty if none are known.
    neighbours: Mapping[str, float] = field(default_factory=dict)

    @cached_property
    def balance(self) -> Balance:
        """What the sinks measured, what the sources are offered, what waits, and whether that grows."""
        return balance_of(self.snapshot)

    @property
    def machines(self) -> int:
        return len(self.snapshot.cluster.machines)

    def coming(self, count: int) -> Coming | Nothing:
        """So many machines that could come, under the names that they would have; or why they cannot come."""
        known, cluster, used = self.snapshot.coming, self.snapshot.cluster, self.snapshot.placement.slots
        if count > len(known.machines):
            return Nothing.of(known.refusal)
        machines = known.machines[:count]
        # Slots on which nothing is placed are taken in as slots of the new machines, so they must not count twice.
        spare = [slot for slot in known.spare if slot not in used]
        return Coming(machines, cluster.without(spare[: sum(len(machine.slots) for machine in machines)]))


@runtime_checkable
class Policy(Protocol):
    """A class that decides from a view whether anything is to change."""

    def decide(self, view: View) -> Answer:
        """A proposal to change something now, or why nothing is to change."""


def view_of(snapshot: Snapshot, settings: Settings, *, request: Grow | Shrink | None = None) -> View:
    """A view of one snapshot, without a goal. A request is also answered on a window that is still young."""
    return View(snapshot, load_of(snapshot, on_demand=request is not None), settings, request=request)


def load_of(snapshot: Snapshot, on_demand: bool = False) -> Load | Nothing:
    try:
        return measured_load(snapshot, on_demand)
    except PenstockError as incomplete:
        return Nothing.of(incomplete)


def policy(name: str) -> Policy:
    """The policy of this name."""
    found = plugins.build(plugins.POLICIES, name)
    if not isinstance(found, Policy):
        raise plugins.failed(plugins.POLICIES, name, "it has no method `decide`")
    return found


def decide(name: str, decider: Policy, view: View) -> Answer:
    """The answer of a policy, with the policy's name and the placement that it decided on. A plan without actions
    becomes `Nothing`, and so do a plan that could not run and a named error. Any other error is a mistake of the
    policy: POLICY_FAILED."""
    try:
        answer = decider.decide(view)
    except PenstockError as refusal:
        return Nothing.of(refusal)
    except Exception as problem:
        LOGGER.exception("the policy %s failed", name)
        text = " ".join(f"{type(problem).__name__}: {problem}".split())[:300]
        raise _failed(name, f"it raised {text}") from problem
    if isinstance(answer, Nothing):
        return answer
    if not isinstance(answer, Proposal):
        raise _failed(name, f"it answered with {type(answer).__name__}, and not with Nothing or a Proposal")
    if not answer.plan:
        return Nothing(answer.plan.reason or "; ".join(answer.reasons), note=answer.note)
    if (unfit := why_not(answer.plan, view)) is not None:
        return replace(unfit, note=answer.note)
    return replace(answer, strategy=name, before=view.snapshot.placement)


def why_not(plan: Plan, view: View) -> Nothing | None:
    """Why a plan could not run on what the view shows; None if it could."""
    placement, definition = view.snapshot.placement, view.snapshot.definition
    try:
        match plan.actions:
            case (SetTasks(operator, tasks),):
                if tasks != len(placement.tasks.get(operator, ())):
                    check_repartition(definition, operator, tasks, sum(placement.instances.get(operator, {}).values()))
            case actions:
                target(actions, placement, view.snapshot.cluster, definition, view.settings.slot_instances)
    except PenstockError as refusal:
        return Nothing.of(refusal)
    return None


def _failed(name: str, how: str) -> PenstockError:
    return PenstockError("POLICY_FAILED", f'the scaling strategy "{name}" failed: {how}.', "Choose another strategy.")
