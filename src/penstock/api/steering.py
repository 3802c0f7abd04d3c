"""Everything that can be read of a running topology and asked of it, in one place: the handle of `penstock.run`, the
HTTP interface and so the command line are all made of this. Answers are plain enough for JSON."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from penstock.api.decisions import Decisions
from penstock.api.operations import Operation, Operations
from penstock.api.shapes import machine_as_json, outcome_as_json, placement_as_json, proposal_as_json
from penstock.api.status import status_of
from penstock.autoscaler.effect import Effects, EndedOperation
from penstock.autoscaler.goals import Grow, Shrink
from penstock.autoscaler.measured_load import measured_load
from penstock.autoscaler.policy import Fate, View, view_of
from penstock.autoscaler.proposals import Proposal, action_of, machines_fewer, machines_more
from penstock.clock import meant, shown, wall_time
from penstock.cluster.model import Placement, Slot
from penstock.errors import PenstockError
from penstock.monitor.events import EventKind
from penstock.monitor.history import POINTS, HistoryQuery
from penstock.monitor.kept_state import left_in_words, unknown_in_words
from penstock.monitor.series import By
from penstock.monitor.snapshot import Snapshot
from penstock.plans import requests as plans
from penstock.plans.enacting import Outcome, Status
from penstock.plans.plan import Plan
from penstock.plans.repair import repair
from penstock.running import RunningTopology
from penstock.strategies.mapping import NoRoom
from penstock.strategies.mapping.chains import why_apart
from penstock.strategies.rules import Rules
from penstock.strategies.stela import explain
from penstock.topology import render

#: The most events in one answer, and the longest that a question may wait for one.
MOST_EVENTS = 10_000
#: How long the end of a topology waits for a plan that a program carries out itself.
CLOSING = 5.0
POLL = 0.05
Json = dict[str, Any]


class Steering:
    """One running topology. Any thread may call it; what changes something is done one after the other."""

    def __init__(self, run: RunningTopology, cluster_kind: str, request_stop: Callable[[bool], object]) -> None:
        """`request_stop` is told whether to drain, and returns at once."""
        self._run = run
        self._kind = cluster_kind
        self._request_stop = request_stop
        self._changes = run.changes
        self._effects = Effects(run)
        self._decisions = Decisions(self.view, self._planned_placement)
        self.operations = Operations(self._carry_out, self._changes.cancel, lambda: self._changes.step, self._ended)

    def close(self) -> None:
        """Have what is under way rolled back, and let nothing more in: before the run is stopped. A plan that a program
        carries out itself is rolled back too, if that takes no longer than CLOSING seconds."""
        self.operations.close()
        deadline = time.monotonic() + CLOSING
        while self._changes.step and time.monotonic() < deadline:
            self._changes.cancel()  # again and again: a plan that is only being checked may begin later
            time.sleep(POLL)
        self._effects.close()

    # Reads

    def topology(self) -> Json:
        return render.as_json(self._run.definition)

    def status(self) -> Json:
        current = self.operations.current
        operation = None if current is None else current.as_json(self.operations.step())
        answer = status_of(self._run, self._kind) | {"operation": operation}
        return answer | {"state": "stopping"} if self.operations.closing else answer

    def snapshot(self) -> Json:
        return self._run.snapshot().as_json()

    def placement(self) -> Json:
        """What was decided, what is asked of Spark on the slots there are, and what Spark did in the newest batches."""
        run = self._run
        placements = run.placements
        seen = {one.name: placements.observed(one.name) for one in run.definition.operators}
        return {
            "planned": placement_as_json(placements.planned),
            "requested": placement_as_json(placements.requested),
            "observed": {name: None if one is None else one.as_json() for name, one in seen.items()},
            "machines": [machine_as_json(machine) for machine in run.cluster.machines],
        }

    def history(
        self,
        metrics: Sequence[str],
        since: float,
        until: float | None = None,
        by: By = "operator",
        operator: str | None = None,
        points: int = POINTS,
    ) -> Json:
        if operator is not None:
            self._run.definition.operator(operator)
        end = wall_time() if until is None else until
        if not since < end:
            raise PenstockError(
                "BAD_REQUEST", f"since ({since}) is not before until ({end}).", "Give an earlier since."
            )
        query = HistoryQuery(tuple(metrics), self._noted_at(since), self._noted_at(end), by, operator, points)
        series = self._run.history(query)
        if series is None:
            raise PenstockError("NO_HISTORY", "this run keeps no history.", "Run it with the setting monitoring=on.")
        for one in series:
            one.times = [shown(at) if at >= self._run.started_at else at for at in one.times]
        return {"since": since, "until": end, "by": by, "series": [one.as_json() for one in series]}

    def _noted_at(self, time: float) -> float:
        """Where a time by the wall clock is in what was written down: in time of this run, or of one before it."""
        noted = meant(time)
        return noted if noted >= self._run.started_at else min(noted, time)

    def events(self, after: int = 0, limit: int = 1000, wait: float = 0.0) -> Json:
        """The first events above an id, once there are any; `next` is the id to ask for after these."""
        log = self._run.events
        if wait > 0:
            log.wait(after, wait)
        found = log.since(after, min(limit, MOST_EVENTS))
        return {"events": [event.as_json() for event in found], "next": found[-1].id if found else after}

    def explain(self, alpha: float | None = None) -> Json:
        """The load as Stela sees it: input, processing, congestion and ETP of every operator, ETPSum of machines. And
        of every stream, whether its ends run as one, or why they do not."""
        snapshot = self._run.snapshot()
        load = measured_load(snapshot, on_demand=True)
        seen = explain.view(load, snapshot.placement, snapshot.cluster, self._rules(alpha)).as_json()
        apart = why_apart(snapshot.definition, snapshot.placement, snapshot.chains)
        streams = [{"name": name, "chained": not why, "reason": why} for name, why in apart.items()]
        return {**seen, "streams": streams}

    def all_operations(self) -> Json:
        step = self.operations.step()
        return {"operations": [one.as_json(step) for one in self.operations.all()]}

    def operation(self, number: int, wait: float = 0.0) -> Json:
        operation = self.operations.get(number)
        if wait > 0:
            self.operations.wait(operation, wait)
        return operation.as_json(self.operations.step())

    # Actions

    def scale_out(self, machines: int = 1, strategy: str | None = None, dry_run: bool = False) -> Json:
        """More machines, and on them what the strategy decides."""
        _at_least_one("machines", machines)
        name = strategy or self._run.settings.strategy
        propose = self._decisions.on_request(name, Grow(machines, ""))
        return self._do("scale-out", {"machines": machines, "strategy": name}, propose, dry_run)

    def scale_in(
        self,
        machines: int | None = None,
        names: Sequence[str] = (),
        strategy: str | None = None,
        dry_run: bool = False,
    ) -> Json:
        """Fewer machines: those that are named, or so many (one, unless it is said) that the strategy chooses."""
        count = 1 if machines is None else machines
        _at_least_one("machines", count)
        name = strategy or self._run.settings.strategy
        if not names:
            propose = self._decisions.on_request(name, Shrink(count, ""))
            return self._do("scale-in", {"machines": count, "strategy": name}, propose, dry_run)

        def remove() -> Proposal:
            snapshot = self._planned()
            return Proposal(plans.remove_machines(snapshot.placement, snapshot.cluster, list(dict.fromkeys(names))))

        return self._do("scale-in", {"names": list(names)}, remove, dry_run)

    def carry_out(self, proposal: Proposal) -> Json:
        """What a policy has decided: this plan and no other. It is refused if the placement that it was decided on is
        not the one there is when its turn comes."""
        count = machines_more(proposal.plan) + machines_fewer(proposal.plan)
        arguments: Json = {"machines": count} if count else {}
        arguments |= {"strategy": proposal.strategy}
        who = f"the policy {proposal.strategy}" if proposal.strategy else "somebody"
        return self._do(action_of(proposal.plan), arguments, self._decisions.made(proposal), False, who)

    def view(self, request: Grow | Shrink | None = None) -> View:
        """What a policy decides on, all of it on one snapshot."""
        return view_of(self._planned(), self._run.settings, self._run, request)

    def set_instances(
        self, operator: str, count: int | None = None, slots: Mapping[str, int] | None = None, dry_run: bool = False
    ) -> Json:
        """An operator's instances: so many in all, or by slot."""
        self._run.definition.operator(operator)
        if (count is None) == (slots is None):
            raise PenstockError("BAD_REQUEST", "count and slots are both given, or neither.", "Give one of the two.")

        def propose() -> Proposal:
            placement, cluster, settings = self._run.placements.planned, self._run.cluster, self._run.settings
            if slots is not None:
                wanted = {self._slot(name): number for name, number in slots.items()}
                return Proposal(plans.set_instances(placement, operator, wanted))
            plan = plans.so_many_instances(
                self._run.definition,
                placement,
                cluster,
                operator,
                count or 0,
                settings.mapping,
                settings.slot_instances,
                chains=settings.chaining == "on",
                snapshot=self._planned(),
            )
            if isinstance(plan, NoRoom):
                raise PenstockError(
                    "SLOT_FULL", f"{settings.mapping}: {plan.reason}.", "Add machines, or ask for fewer."
                )
            return Proposal(plan)

        arguments: Json = {"operator": operator, "count": count, "slots": None if slots is None else dict(slots)}
        return self._do("set-instances", arguments, propose, dry_run)

    def move_task(self, operator: str, task: int, slot: str, dry_run: bool = False) -> Json:
        """One task of a keyed operator, with its state, to another slot."""
        self._run.definition.operator(operator)

        def propose() -> Proposal:
            return Proposal(plans.move_tasks(operator, {task: self._slot(slot)}))

        return self._do("move", {"operator": operator, "task": task, "slot": slot}, propose, dry_run)

    def repartition(self, operator: str, tasks: int, dry_run: bool = False) -> Json:
        """The state of a keyed operator in another number of tasks. The operator stands still meanwhile; the others go
        on, and its instances stay what and where they are."""
        self._run.definition.operator(operator)
        _at_least_one("tasks", tasks)

        def propose() -> Proposal:
            return Proposal(plans.set_tasks(operator, tasks))

        return self._do("repartition", {"operator": operator, "tasks": tasks}, propose, dry_run)

    def cancel(self, number: int) -> Json:
        operation = self.operations.cancel(number)
        self._run.happened(EventKind.REQUEST, "somebody asked to cancel the operation", f"operation {number}")
        return operation.as_json(self.operations.step())

    def pause(self, dry_run: bool = False) -> Json:
        """Sources emit nothing more until `resume`; what is on its way goes on."""
        return self._hold("pause", True, dry_run)

    def resume(self, dry_run: bool = False) -> Json:
        return self._hold("resume", False, dry_run)

    def _hold(self, action: str, paused: bool, dry_run: bool) -> Json:
        names = ", ".join(source.name for source in self._run.definition.sources)
        reason = f"{names} {'emit nothing more' if paused else 'go on'}"
        if self._run.paused == paused:
            reason = f"{names} {'are paused' if paused else 'are not paused'}: nothing changes"
        if not dry_run and self._run.pause(paused):
            self._run.happened(EventKind.ACTION, reason, action)
        return {"action": action, "dry_run": dry_run, "paused": self._run.paused, "plan": _in_words(reason)}

    def stop(self, drain: bool = True, dry_run: bool = False) -> Json:
        """Ask for the end, and wait for nothing: what is under way reaches the sinks first, unless it is not to."""
        reason = f"the topology stops {'after everything has reached the sinks' if drain else 'at once'}"
        if left := self._run.left_inside():
            reason = f"{reason}; results of windows that are open then stay inside (now: {left_in_words(left)})"
        if unknown := self._run.unknown_inside():
            reason = f"{reason}; {unknown_in_words(unknown)}"
        if not dry_run:
            self._run.happened(EventKind.REQUEST, reason, "stop")
            self._request_stop(drain)
        return {"action": "stop", "dry_run": dry_run, "drain": drain, "plan": _in_words(reason)}

    # How an action is done

    def _do(
        self, action: str, arguments: Json, propose: Callable[[], Proposal], dry_run: bool, who: str = "somebody"
    ) -> Json:
        if dry_run:
            return self._dry_run(action, arguments, propose)
        event = self._run.happened(EventKind.REQUEST, f"{who} asked for this", action, fields=arguments)
        try:
            if self.operations.current is None:
                # Nothing is in the way: what cannot be is refused here and now, and not later in the queue.
                self._changes.leads_to(propose().plan)
            return self.operations.submit(action, arguments, propose, str(event.id)).as_json()
        except PenstockError as refusal:
            self._refused(refusal, action, str(event.id))
            raise

    def _dry_run(self, action: str, arguments: Json, propose: Callable[[], Proposal]) -> Json:
        proposal = propose()
        target = self._changes.leads_to(proposal.plan)
        return {
            "action": action,
            "arguments": arguments,
            "dry_run": True,
            **proposal_as_json(proposal),
            "leads_to": placement_as_json(target.placement)
            | {"machines": [machine_as_json(machine) for machine in target.cluster.machines]},
        }

    def _carry_out(self, operation: Operation) -> Outcome:
        run, proposal, cause = self._run, operation.proposal, operation.cause
        assert proposal is not None
        if proposal.strategy:
            fields = {"decision": dict(proposal.decision), "note": proposal.note}
            run.happened(EventKind.DECISION, proposal.plan.reason, operation.action, cause, fields)
        if not proposal.plan:
            return Outcome(proposal.plan, Status.NOTHING, proposal.plan.reason)
        outcome = self._tried(operation, proposal.plan)
        what = "; ".join(str(action) for action in outcome.plan.actions)
        text = f"{outcome.status} after {outcome.seconds:.1f} s: {what}"
        if outcome.status is Status.ROLLED_BACK:
            text = f"{text}; because {outcome.reason}"
        run.happened(EventKind.ACTION, text, operation.action, cause, outcome_as_json(outcome))
        return outcome

    def _tried(self, operation: Operation, plan: Plan) -> Outcome:
        """A fault in the middle of an operation aborts it, and it is begun again (Stela, section III-B): with the same
        plan, since what was measured before it is what it was decided on. If that cannot be any more it is over."""
        if operation.cancelled:
            return Outcome(plan, Status.ROLLED_BACK, "CANCELLED: the operation had not begun", error="CANCELLED")
        outcome = self._changes.carry_out(plan)
        for _ in range(1, self._run.settings.scaling_attempts):
            if outcome.status is not Status.ROLLED_BACK or outcome.error == "CANCELLED" or operation.cancelled:
                break
            text = f"the operation was rolled back and begins again: {outcome.reason}"
            self._run.happened(EventKind.FAULT, text, operation.action, operation.cause, outcome_as_json(outcome))
            try:
                outcome = self._changes.carry_out(plan)
            except PenstockError as refusal:
                return replace(outcome, reason=f"{outcome.reason}; and the operation cannot begin again: {refusal}")
        return outcome

    def _ended(self, operation: Operation) -> None:
        if operation.state is Fate.DONE and operation.began_at is not None:
            self._effects.ended(
                EndedOperation(operation.id, operation.action, operation.cause, operation.began_at, operation.ended_at)
            )
        if operation.error is not None:
            self._refused(operation.error, operation.action, operation.cause)

    def _refused(self, refusal: PenstockError, action: str, cause: str) -> None:
        self._run.happened(EventKind.VETO, str(refusal), action, cause, {"error": refusal.name})

    def _planned(self) -> Snapshot:
        """What is measured, with the placement as it was decided: a slot that is lost for a moment is no reason to
        decide for another one for good."""
        return replace(self._run.snapshot(), placement=self._planned_placement())

    def _planned_placement(self) -> Placement:
        return repair(self._run.placements.planned, self._run.cluster.slots)

    def _rules(self, alpha: float | None = None) -> Rules:
        return Rules.of(self._run.settings, alpha)

    def _slot(self, name: str) -> Slot:
        known = {slot.name: slot for slot in self._run.cluster.slots}
        if name not in known:
            raise PenstockError("NO_SUCH_SLOT", f'there is no slot "{name}".', f"The slots are: {', '.join(known)}.")
        return known[name]


def _in_words(reason: str) -> Json:
    """The plan of what is no change of placement."""
    return {"actions": [], "reason": reason}


def _at_least_one(what: str, count: int) -> None:
    if count < 1:
        raise PenstockError("BAD_REQUEST", f"{what} is {count}.", f"Give {what} of at least 1.")
