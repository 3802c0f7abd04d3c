"""What a controller remembers in its stored form: JSON with a version, times by the wall clock.

A text that somebody has damaged must not reach a decision, so everything is looked at when it is read. Slots stand in
one table, because every decision has a placement and names the same ones."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn

from penstock.autoscaler.balance import Balance
from penstock.autoscaler.policy import Decided, Fate
from penstock.autoscaler.proposals import Prediction, Proposal
from penstock.autoscaler.records import Figures, Record, Verdict
from penstock.cluster.model import Cluster, Machine, Placement, Slot
from penstock.errors import PenstockError
from penstock.plans.plan import Action, AddMachine, MoveTask, Plan, RemoveMachine, SetInstances, SetTasks, apply
from penstock.strategies.memory import Added, Memory
from penstock.topology.definition import TopologyDefinition

#: Raise it with every change of the form; a text with a higher number was written by a newer Penstock.
VERSION = 1
#: No count of anything is larger, and no slot has more instances of an operator: a number beyond that is damage.
MOST, MOST_INSTANCES = 10**15, 10_000
#: The most that the decisions may take. All of them are written with every change, and one of a topology with hundreds
#: of operators on dozens of slots takes hundreds of kilobytes: fewer of those are kept.
MOST_BYTES = 2 << 20
#: What the reading of a damaged text can end in.
_DAMAGE = (ValueError, TypeError, KeyError, IndexError, AttributeError, OverflowError, RecursionError)
Json = Any
Time = Callable[[float], float]


@dataclass(frozen=True)
class Shape:
    """How many instances and machines there were."""

    #: By operator.
    instances: Mapping[str, int] = field(default_factory=dict)
    machines: int = 0

    @staticmethod
    def of(placement: Placement, machines: int) -> Shape:
        return Shape({name: placement.total(name) for name in placement.instances}, machines)


@dataclass(frozen=True)
class Remembered:
    """All that a controller remembers, with times in run time."""

    #: The oldest first.
    decided: tuple[Decided, ...]
    #: How everything was when this was written.
    left: Shape
    #: When the last operation ended, whoever had asked for it.
    last_ended: float | None = None


@dataclass(frozen=True)
class DoesNotFit:
    """The text is of another topology."""

    reason: str


def identity(definition: TopologyDefinition) -> str:
    """What makes a topology another one: its name, its operators, and who reads from whom. Rates and instances may
    differ, and so may what the functions do: nobody can see that."""
    operators = [[one.name, one.kind] for one in definition.operators]
    streams = sorted(stream.name for stream in definition.streams)
    whole = json.dumps([definition.name, sorted(operators), streams])
    return hashlib.sha256(whole.encode()).hexdigest()[:32]


def text_of(remembered: Remembered, definition: TopologyDefinition, now: float, shown: Time) -> str:
    """The stored form, with the newest decisions that fit into MOST_BYTES. `shown` gives the time by the wall clock for
    one in run time."""
    writer, decided, size = _Writer(shown), list[str](), 0
    # Not one of them is left out between others: a step that was taken back would look open without what took it back.
    for one in reversed(remembered.decided):
        decided.append(_json(writer.decided(one)))
        size += len(decided[-1]) + 1
        if size > MOST_BYTES:
            del decided[-1]
            break
    head = {
        "version": VERSION,
        "topology": identity(definition),
        "written": shown(now),
        "last_ended": None if remembered.last_ended is None else shown(remembered.last_ended),
        "machines": remembered.left.machines,
        "instances": dict(remembered.left.instances),
        "slots": [[slot.machine, slot.index, slot.cores] for slot in writer.slots],
    }
    return f'{_json(head)[:-1]},"decided":[{",".join(reversed(decided))}]}}'


def _json(value: Json) -> str:
    return json.dumps(value, separators=(",", ":"), allow_nan=False)


def remembered_of(
    text: str, definition: TopologyDefinition, cluster: Cluster, now: float, meant: Time
) -> Remembered | DoesNotFit:
    """What a stored text says; DECISIONS_UNREADABLE if it cannot be read. `meant` gives the run time for a time by the
    wall clock. Slots that are there are those of the cluster."""
    try:
        whole = json.loads(text)
        version = _count(_mapping(whole)["version"])
        if version > VERSION:
            raise _unreadable(f"a newer Penstock has written it (version {version}; this one knows {VERSION})")
        if version < 1:
            raise ValueError(f"its version is {version}")
        if _text(whole["topology"]) != identity(definition):
            return DoesNotFit("the topology has other operators or other streams now")
        return _Reader(whole, definition, cluster, _in_run_time(_number(whole["written"]), now, meant)).remembered()
    except PenstockError as problem:
        if problem.name == "DECISIONS_UNREADABLE":
            raise
        raise _unreadable(f"it is damaged: {problem.message}") from None
    except _DAMAGE as problem:
        what = " ".join(f"{type(problem).__name__}: {problem}".split())[:200]
        raise _unreadable(f"it is damaged ({what})") from None


def _unreadable(why: str) -> PenstockError:
    return PenstockError(
        "DECISIONS_UNREADABLE",
        f"What the controller remembers of its decisions before the restart cannot be read: {why}.",
        "The controller begins anew. What it added before stays until somebody takes it away.",
    )


def _in_run_time(written: float, now: float, meant: Time) -> Time:
    """From times in a text to run time. Nothing in it happened after now, whatever the clock says: otherwise a clock
    that was set back would have a cooldown last for hours. If it was set back since the text was written, nobody knows
    how much time has passed; none is assumed to have, so what lay an hour apart still does."""
    set_back = max(meant(written) - now, 0.0)
    return lambda shown: min(meant(shown) - set_back, now)


class _Writer:
    def __init__(self, shown: Time) -> None:
        self._shown = shown
        #: Slot -> its place in the table.
        self.slots: dict[Slot, int] = {}

    def decided(self, one: Decided) -> Json:
        record = one.record
        return {
            "at": self._shown(one.at),
            "fate": str(one.fate),
            "operation": one.operation,
            "reason": one.reason,
            "ended": None if one.ended is None else self._shown(one.ended),
            "dropped": one.dropped,
            "proposal": self._proposal(one.proposal),
            "record": None if record is None else self._record(record, one.proposal),
        }

    def _record(self, one: Record, decided: Proposal) -> Json:
        same = one.proposal is decided or one.proposal == decided
        return {
            "at": self._shown(one.at),
            "proposal": None if same else self._proposal(one.proposal),
            "before": _figures_form(one.before),
            "operation": one.operation,
            "measured": None if one.measured is None else _figures_form(one.measured),
            "verdict": str(one.verdict),
            "why": one.why,
            "id": one.id,
        }

    def _proposal(self, one: Proposal) -> Json:
        """Without the steps and notes for people: nobody decides on them."""
        return {
            "actions": [self._action(action) for action in one.plan.actions],
            "reason": one.plan.reason,
            "reasons": list(one.reasons),
            "predictions": [[each.metric, _finite(each.value), each.subject] for each in one.predictions],
            "strategy": one.strategy,
            "before": None if one.before is None else self._placement(one.before),
            "reverts": list(one.reverts),
            "corrects": one.corrects,
            "memory": None if one.memory is None else _memory_form(one.memory),
            "undo": one.undo,
        }

    def _action(self, action: Action) -> Json:
        match action:
            case SetInstances(operator, slots):
                return ["instances", operator, self._slots(slots)]
            case MoveTask(operator, task, slot):
                return ["move", operator, task, self._slot(slot)]
            case AddMachine(machine):
                return ["add", machine.name, [self._slot(slot) for slot in machine.slots]]
            case RemoveMachine(name):
                return ["remove", name]
            case SetTasks(operator, tasks):
                return ["tasks", operator, tasks]

    def _placement(self, placement: Placement) -> Json:
        return {
            "instances": {name: self._slots(slots) for name, slots in placement.instances.items()},
            "tasks": {name: [self._slot(slot) for slot in slots] for name, slots in placement.tasks.items()},
        }

    def _slots(self, slots: Mapping[Slot, int]) -> Json:
        return [[self._slot(slot), count] for slot, count in slots.items()]

    def _slot(self, slot: Slot) -> int:
        return self.slots.setdefault(slot, len(self.slots))


class _Reader:
    def __init__(self, whole: Json, definition: TopologyDefinition, cluster: Cluster, at: Time) -> None:
        self._whole = whole
        self._operators = {one.name for one in definition.operators}
        self._at = at
        here = {slot: slot for slot in cluster.slots}
        stored = [Slot(_text(machine), _count(index), _count(cores)) for machine, index, cores in whole["slots"]]
        # The cluster's own slots know how many cores they have now.
        self._table = [here.get(slot, slot) for slot in stored]

    def remembered(self) -> Remembered:
        whole = self._whole
        decided = tuple(self._decided(one) for one in _list(whole["decided"]))
        numbers = [one.operation for one in decided if one.operation is not None]
        if numbers != sorted(set(numbers)):
            raise ValueError("its operations are not in order")
        left = Shape(
            {name: _count(count) for name, count in self._by_operator(whole["instances"])}, _count(whole["machines"])
        )
        return Remembered(decided, left, self._maybe_time(whole["last_ended"]))

    def _decided(self, one: Json) -> Decided:
        proposal, fate = self._proposal(one["proposal"]), Fate(one["fate"])
        operation = None if one["operation"] is None else _count(one["operation"])
        record = None if one["record"] is None else self._record(one["record"], proposal)
        if operation is None and fate is not Fate.REFUSED:
            raise ValueError("a decision has no operation")
        if not fate.over and record is None:
            raise ValueError("a decision that was under way has no figures")
        at, ended = self._time(one["at"]), self._maybe_time(one["ended"])
        return Decided(at, proposal, fate, operation, _text(one["reason"]), ended, record, _text(one["dropped"]))

    def _record(self, one: Json, proposal: Proposal) -> Record:
        return Record(
            self._time(one["at"]),
            proposal if one["proposal"] is None else self._proposal(one["proposal"]),
            _figures(one["before"]),
            None if one["operation"] is None else _count(one["operation"]),
            None if one["measured"] is None else _figures(one["measured"]),
            Verdict(one["verdict"]),
            _text(one["why"]),
            _count(one["id"]),
        )

    def _proposal(self, one: Json) -> Proposal:
        memory, before = one["memory"], None if one["before"] is None else self._placement(one["before"])
        plan = Plan(tuple(self._action(action) for action in _list(one["actions"])), _text(one["reason"]))
        if before is not None:
            apply(before, plan.actions)  # refused if it names tasks that are not there
        predictions = [Prediction(_text(name), _rate(value), _text(who)) for name, value, who in one["predictions"]]
        return Proposal(
            plan,
            tuple(_text(reason) for reason in _list(one["reasons"])),
            tuple(predictions),
            strategy=_text(one["strategy"]),
            before=before,
            reverts=tuple(_count(number) for number in _list(one["reverts"])),
            corrects=None if one["corrects"] is None else _count(one["corrects"]),
            memory=None if memory is None else self._memory(memory),
            undo=_flag(one["undo"]),
        )

    def _memory(self, one: Json) -> Memory:
        rates = {name: _rate(rate) for name, rate in self._by_operator(one["rates"])}
        added = [
            Added(
                _text(machine),
                {name: _count(count, -MOST_INSTANCES, MOST_INSTANCES) for name, count in self._by_operator(instances)},
            )
            for machine, instances in _list(one["added"])
        ]
        return Memory(rates, tuple(added))

    def _action(self, action: Json) -> Action:
        kind, *rest = _list(action)
        match kind, rest:
            case "instances", [operator, slots]:
                return SetInstances(self._operator(operator), self._slots(slots))
            case "move", [operator, task, slot]:
                return MoveTask(self._operator(operator), _count(task), self._slot(slot))
            case "add", [name, slots]:
                return AddMachine(Machine(_text(name), tuple(self._slot(slot) for slot in _list(slots))))
            case "remove", [name]:
                return RemoveMachine(_text(name))
            case "tasks", [operator, tasks]:
                return SetTasks(self._operator(operator), _count(tasks))
        raise ValueError(f"nothing is known of the action {kind!r}")

    def _placement(self, one: Json) -> Placement:
        instances = {name: self._slots(slots) for name, slots in self._by_operator(one["instances"])}
        if instances.keys() != self._operators:
            raise ValueError("a placement lacks operators")
        tasks = {
            name: tuple(self._slot(slot) for slot in _list(slots)) for name, slots in self._by_operator(one["tasks"])
        }
        return Placement(instances, tasks)

    def _slots(self, slots: Json) -> dict[Slot, int]:
        return {self._slot(slot): _count(count, 1, MOST_INSTANCES) for slot, count in _list(slots)}

    def _slot(self, place: Json) -> Slot:
        return self._table[_count(place)]

    def _operator(self, name: Json) -> str:
        if _text(name) not in self._operators:
            raise ValueError(f"there is no operator {name!r}")
        return str(name)

    def _by_operator(self, values: Json) -> Iterable[tuple[str, Json]]:
        return [(self._operator(name), value) for name, value in _mapping(values).items()]

    def _time(self, value: Json) -> float:
        return self._at(_number(value))

    def _maybe_time(self, value: Json) -> float | None:
        return None if value is None else self._time(value)


def _memory_form(one: Memory) -> Json:
    return {"rates": _rates(one.rates), "added": [[each.machine, dict(each.instances)] for each in one.added]}


# Figures


def _figures_form(one: Figures) -> Json:
    balance = {name: _finite(value) for name, value in vars(one.balance).items()}
    rest = {"machines": one.machines, "instances": dict(one.instances), "tasks": dict(one.tasks)}
    return {"balance": balance, "utilisation": _rates(one.utilisation), **rest}


def _figures(one: Json) -> Figures:
    return Figures(
        _balance(_mapping(one["balance"])),
        _count(one["machines"]),
        {_text(name): _rate(share) for name, share in _mapping(one["utilisation"]).items()},
        {_text(name): _count(count) for name, count in _mapping(one["instances"]).items()},
        {_text(name): _count(count) for name, count in _mapping(one["tasks"]).items()},
    )


def _balance(one: Mapping[str, Json]) -> Balance:
    def rate(name: str) -> float | None:
        return None if one[name] is None else _rate(one[name])

    if one.keys() != {each.name for each in dataclasses.fields(Balance)}:
        raise ValueError("a balance has other figures")
    return Balance(
        rate("throughput"),
        rate("offered"),
        rate("emitted"),
        _count(one["backlog"]),
        _rate(one["wait"]),
        rate("trend"),
        _flag(one["unmet"]),
        _flag(one["grows"]),
        _flag(one["far_behind"]),
    )


# Values


def _rates(rates: Mapping[str, float]) -> Json:
    return {name: _finite(rate) for name, rate in rates.items()}


def _finite(value: Any) -> Json:
    """JSON has no infinity, but a backlog at which nobody works takes one."""
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def _rate(value: Json) -> float:
    return float(value) if value in ("inf", "-inf", "nan") else _number(value)


def _number(value: Json) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        _wrong(value, "a number")
    return float(value)


def _count(value: Json, least: int = 0, most: int = MOST) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        _wrong(value, "a count")
    return int(value)


def _flag(value: Json) -> bool:
    return value if isinstance(value, bool) else _wrong(value, "true or false")


def _text(value: Json) -> str:
    return value if isinstance(value, str) else _wrong(value, "a text")


def _list(value: Json) -> Sequence[Json]:
    return value if isinstance(value, list) else _wrong(value, "a list")


def _mapping(value: Json) -> Mapping[str, Json]:
    return value if isinstance(value, dict) else _wrong(value, "an object")


def _wrong(value: Json, what: str) -> NoReturn:
    raise ValueError(f"{str(value)[:40]!r} is not {what}")
