"""The door of policies: a policy gets a view of a running topology and answers with nothing, or with a proposal.

A policy is pure: the same view gets the same answer. It reads no clock and changes nothing; what it remembers of its
own decisions is in the view. A package registers its own as an entry point of the group penstock.policies (see
penstock.plugins), and users name it: `penstock run --strategy NAME`, `penstock scale-out --strategy NAME`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Protocol, runtime_checkable

from penstock import plugins
from penstock.autoscaler.goals import Goal, Grow, Shrink
from penstock.autoscaler.measured_load import measured_load
from penstock.autoscaler.proposals import Answer, Nothing, Proposal
from penstock.cluster.model import Cluster, Machine, Slot
from penstock.errors import PenstockError
from penstock.logs import LOGGER
from penstock.monitor.snapshot import Snapshot
from penstock.settings import Settings
from penstock.strategies.load import Load


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

    #: By the view's `now`.
    at: float
    proposal: Proposal
    fate: Fate = Fate.WAITING
    #: The number of the operation that carries it out; None if it was refused at once.
    operation: int | None = None
    #: Why it was refused or rolled back.
    reason: str = ""


@dataclass(frozen=True)
class Coming:
    """Machines that could come, and the cluster that they would come to: without slots that wait for work and would be
    counted as theirs."""

    machines: tuple[Machine, ...]
    cluster: Cluster


def none_can_come(_: int) -> Coming | Nothing:
    return Nothing("no machine can come.", "FIXED_MACHINES", "Choose a cluster whose machines can be changed.")


@dataclass(frozen=True)
class View:
    """All that a policy and its guards look at, taken at one moment."""

    #: The placement is the planned one: a slot that is lost for a moment is no reason to decide for another for good.
    snapshot: Snapshot
    #: The graph with its rates, as if nobody waited for a slow operator; or why the rates are not known.
    load: Load | Nothing
    settings: Settings = field(default_factory=Settings)
    #: What is to be reached; None where nobody has said so.
    goal: Goal | None = None
    #: What somebody has asked for now: then it is decided on that, and not on the goal.
    request: Grow | Shrink | None = None
    #: The policy's own decisions, the oldest first.
    history: tuple[Decided, ...] = ()
    #: So many machines that could come, as they would be called; or why none can.
    coming: Callable[[int], Coming | Nothing] = field(default=none_can_come, repr=False, compare=False)
    #: The time of the run.
    now: float = 0.0
    #: The operation that is under way, whoever asked for it; empty if none is.
    under_way: str = ""
    #: When the last operation ended; None if there was none.
    last_ended: float | None = None
    #: Whether the sources are held: nothing that is measured then says anything about demand.
    paused: bool = False

    @property
    def machines(self) -> int:
        return len(self.snapshot.cluster.machines)


@runtime_checkable
class Policy(Protocol):
    def decide(self, view: View) -> Answer:
        """What to change now, or why nothing."""


class Supply(Protocol):
    """Where machines come from: a running topology, or the provider of its cluster."""

    def upcoming(self, count: int) -> tuple[Machine, ...]: ...
    def idle(self, unused: Collection[Slot]) -> Sequence[Slot]: ...


def view_of(snapshot: Snapshot, settings: Settings, supply: Supply, request: Grow | Shrink | None = None) -> View:
    """A view on one snapshot, without a goal. Who asks for something now gets an answer on a young window too."""

    def coming(count: int) -> Coming | Nothing:
        try:
            machines = supply.upcoming(count)
            # Slots that wait for work are taken in as the new machines: they are not there a second time.
            idle = supply.idle(set(snapshot.cluster.slots) - snapshot.placement.slots)
        except PenstockError as refusal:
            return Nothing.of(refusal)
        taken = idle[: sum(len(machine.slots) for machine in machines)]
        return Coming(machines, snapshot.cluster.without(taken))

    return View(snapshot, load_of(snapshot, on_demand=request is not None), settings, request=request, coming=coming)


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
    """What a policy answers, with its name on it and the placement that it was decided on. A plan that changes nothing
    is nothing; a named error is a refusal, and any other error is the policy's mistake: POLICY_FAILED."""
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
    return replace(answer, strategy=name, before=view.snapshot.placement)


def _failed(name: str, how: str) -> PenstockError:
    return PenstockError("POLICY_FAILED", f'the scaling strategy "{name}" failed: {how}.', "Choose another strategy.")
