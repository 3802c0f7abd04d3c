"""Everything that can be asked of a running topology, on top of everything that can be read of it: the handle of
`penstock.run`, the HTTP interface and so the command line are all made of this. Answers are plain enough for JSON."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from penstock.api.reads import Json, Reads
from penstock.autoscaler.desk import Desk
from penstock.autoscaler.goals import Grow, Shrink
from penstock.autoscaler.neighbours import ALONE, Neighbours
from penstock.autoscaler.operations import Propose
from penstock.autoscaler.proposals import Proposal
from penstock.cluster.model import Slot
from penstock.errors import PenstockError
from penstock.monitor.events import EventKind
from penstock.monitor.kept_state import left_in_words, unknown_in_words
from penstock.plans import requests as plans
from penstock.running import RunningTopology
from penstock.strategies.mapping import NoRoom


class Steering(Reads):
    """The reads and actions of one running topology. Any thread may call them; actions that change the topology are
    carried out one after the other."""

    def __init__(
        self,
        run: RunningTopology,
        cluster_kind: str,
        request_stop: Callable[[bool], object],
        neighbours: Neighbours = ALONE,
    ) -> None:
        """`request_stop` is told whether to drain, and returns at once."""
        #: Where all changes are decided on and carried out, those of a controller too.
        self.desk = Desk(run, neighbours)
        super().__init__(run, cluster_kind, self.desk.operations, neighbours)
        self._request_stop = request_stop

    def close(self) -> None:
        """Roll back the operation that is under way, and accept no other: before the run is stopped."""
        self.desk.close()

    def scale_out(self, machines: int = 1, strategy: str | None = None, dry_run: bool = False) -> Json:
        """Add machines. The strategy decides which instances they get."""
        _at_least_one("machines", machines)
        name = strategy or self._run.settings.strategy
        propose = self.desk.on_request(name, Grow(machines, ""))
        return self._do("scale-out", {"machines": machines, "strategy": name}, propose, dry_run)

    def scale_in(
        self,
        machines: int | None = None,
        names: Sequence[str] = (),
        strategy: str | None = None,
        dry_run: bool = False,
    ) -> Json:
        """Remove the machines in `names`; without names, the strategy chooses so many machines (by default one)."""
        count = 1 if machines is None else machines
        _at_least_one("machines", count)
        name = strategy or self._run.settings.strategy
        if not names:
            propose = self.desk.on_request(name, Shrink(count, ""))
            return self._do("scale-in", {"machines": count, "strategy": name}, propose, dry_run)

        def remove() -> Proposal:
            snapshot = self.desk.planned()
            return Proposal(plans.remove_machines(snapshot.placement, snapshot.cluster, list(dict.fromkeys(names))))

        return self._do("scale-in", {"names": list(names)}, remove, dry_run)

    def set_instances(
        self, operator: str, count: int | None = None, slots: Mapping[str, int] | None = None, dry_run: bool = False
    ) -> Json:
        """Give an operator `count` instances in all, or exactly the instances in `slots`, by the names of slots."""
        self._run.definition.operator(operator)
        if (count is None) == (slots is None):
            raise PenstockError(
                "BAD_REQUEST", "the request has both count and slots, or neither.", "Give one of the two."
            )

        def propose() -> Proposal:
            placement, cluster, settings = self._run.placements.planned, self._run.cluster, self._run.settings
            if slots is not None:
                wanted = {self._slot(name): number for name, number in slots.items()}
                return Proposal(plans.set_instances(placement, operator, wanted, snapshot=self.desk.planned()))
            plan = plans.so_many_instances(
                self._run.definition,
                placement,
                cluster,
                operator,
                count or 0,
                settings.mapping,
                settings.slot_instances,
                chains=settings.chaining == "on",
                snapshot=self.desk.planned(),
                traffic_gain=settings.traffic_gain,
            )
            if isinstance(plan, NoRoom):
                raise PenstockError(
                    "SLOT_FULL", f"{settings.mapping}: {plan.reason}.", "Add machines, or ask for fewer instances."
                )
            return Proposal(plan)

        arguments: Json = {"operator": operator, "count": count, "slots": None if slots is None else dict(slots)}
        return self._do("set-instances", arguments, propose, dry_run)

    def move_task(self, operator: str, task: int, slot: str, dry_run: bool = False) -> Json:
        """Move one task of a keyed operator, with its state, to another slot."""
        self._run.definition.operator(operator)

        def propose() -> Proposal:
            return Proposal(plans.move_tasks(operator, {task: self._slot(slot)}))

        return self._do("move", {"operator": operator, "task": task, "slot": slot}, propose, dry_run)

    def repartition(self, operator: str, tasks: int, dry_run: bool = False) -> Json:
        """Cut the state of a keyed operator into another number of tasks. The operator stands still meanwhile, and the
        other operators go on. Its instances stay on their slots."""
        self._run.definition.operator(operator)
        _at_least_one("tasks", tasks)

        def propose() -> Proposal:
            return Proposal(plans.set_tasks(operator, tasks))

        return self._do("repartition", {"operator": operator, "tasks": tasks}, propose, dry_run)

    def cancel(self, number: int) -> Json:
        """Drop an operation that waits, or have the operation that is under way rolled back."""
        operation = self.operations.cancel(number)
        self._run.happened(EventKind.REQUEST, "somebody asked to cancel the operation", f"operation {number}")
        return operation.as_json(self.operations.step())

    def pause(self, dry_run: bool = False) -> Json:
        """Let the sources emit nothing more until `resume`. Rows that they have emitted go on."""
        return self._hold("pause", True, dry_run)

    def resume(self, dry_run: bool = False) -> Json:
        """Let the sources emit again."""
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
        """Ask for the end of the topology and return at once. With `drain`, rows that the sources have emitted first
        reach the sinks."""
        reason = f"the topology stops {'after everything has reached the sinks' if drain else 'at once'}"
        if left := self._run.left_inside():
            reason = f"{reason}; results of windows that are open then stay inside (now: {left_in_words(left)})"
        if unknown := self._run.unknown_inside():
            reason = f"{reason}; {unknown_in_words(unknown)}"
        if not dry_run:
            self._run.happened(EventKind.REQUEST, reason, "stop")
            self._request_stop(drain)
        return {"action": "stop", "dry_run": dry_run, "drain": drain, "plan": _in_words(reason)}

    def _do(self, action: str, arguments: Json, propose: Propose, dry_run: bool) -> Json:
        if dry_run:
            return self.desk.execution.dry_run(action, arguments, propose)
        return self.desk.execution.submit(action, arguments, propose)

    def _slot(self, name: str) -> Slot:
        known = {slot.name: slot for slot in self._run.cluster.slots}
        if name not in known:
            raise PenstockError("NO_SUCH_SLOT", f'there is no slot "{name}".', f"The slots are: {', '.join(known)}.")
        return known[name]


def _in_words(reason: str) -> Json:
    """A plan without actions: the request changes no placement."""
    return {"actions": [], "reason": reason}


def _at_least_one(what: str, count: int) -> None:
    if count < 1:
        raise PenstockError("BAD_REQUEST", f"{what} is {count}.", f"Give {what} of at least 1.")
