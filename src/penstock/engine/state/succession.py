"""Which part of an old state goes on under a declaration that may have changed since: a decision that changes no state.

An operator holds a checkpoint (how far it has read, its state) and the rows that wait in front of it; a channel holds
rows of one schema, split in one way. Each operator is *carried* on as it was, begins *anew*, or is *gone*. Where rows,
state or the progress of a source would be lost without anybody having said so, the start is refused.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from penstock.engine.state.shape import Shape, channel_shapes, channels_read

#: Kinds of operators whose checkpoint holds what cannot be had again.
_HOLDS = {"keyed": "its state", "source": "what it has read so far"}
_WORDS = {
    "kind": "its kind",
    "source": "the kind of source",
    "inputs": "its inputs",
    "key": "its key",
    "tasks": "its tasks",
    "output_mode": "its output mode",
    "plan": "what its function keeps as state",
    "state": "the states that its processor declares",
    "clock": "the clock that its processor goes by",
}
_UNDO = "Undo the change."
_DRAIN = "Run the old declaration until these rows are read."
_DECLARE = "Declare it again, under its old name if it was renamed."


@dataclass(frozen=True)
class OldState:
    """What an earlier run left."""

    shape: Shape
    #: How many rows an operator has not read of a channel, by operator and channel.
    unread: Mapping[tuple[str, str], int] = field(default_factory=dict)
    #: Operators whose queries have published a batch.
    begun: Collection[str] = ()
    #: The tasks of operators whose state was repartitioned.
    tasks: Mapping[str, int] = field(default_factory=dict)
    #: Keyed operators that Spark will have read their last batch once more.
    unfinished: Collection[str] = ()

    def waiting(self, operator: str) -> int:
        """Rows that wait for an operator, in all its channels."""
        return sum(rows for (reader, _), rows in self.unread.items() if reader == operator)


@dataclass(frozen=True)
class Refusal:
    """Why an operator can neither go on nor begin anew, and what to do other than give up what it holds."""

    operator: str
    problem: str
    way_out: str


@dataclass(frozen=True)
class Succession:
    """Operators by what becomes of them, each in the order of its declaration."""

    carried: tuple[str, ...]
    #: Declared now, without anything of an earlier run.
    anew: tuple[str, ...]
    #: Known to the old state, and no longer declared.
    gone: tuple[str, ...]
    refusals: tuple[Refusal, ...] = ()


def decide(old: OldState, declared: Shape, forgotten: Collection[str] = ()) -> Succession:
    """Say what becomes of each operator. `forgotten` names operators whose old state the user gives up."""
    carried: list[str] = []
    refusals: dict[str, Refusal] = {}
    for name, facts in old.shape.items():
        if name in forgotten:
            continue
        if name not in declared:
            refusal = _removed(old, name, facts)
        elif changed := _changed(old, name, declared):
            refusal = _replaced(old, name, changed, declared)
        else:
            carried.append(name)
            refusal = None
        if refusal is not None:
            refusals[name] = refusal
    for refusal in _stale_rows(old, declared, carried):
        refusals.setdefault(refusal.operator, refusal)
    return Succession(
        carried=tuple(name for name in declared if name in carried),
        anew=tuple(name for name in declared if name not in carried),
        gone=tuple(name for name in old.shape if name not in declared),
        refusals=tuple(refusals.values()),
    )


def _removed(old: OldState, name: str, facts: Mapping[str, Any]) -> Refusal | None:
    held = _HOLDS.get(facts["kind"])
    if held and name in old.begun:
        return Refusal(name, f'"{name}" is no longer declared, and {held} would be lost.', _DECLARE)
    if rows := old.waiting(name):
        return Refusal(name, f'"{name}" is no longer declared, and {_rows(rows)} for it would be lost.', _DRAIN)
    return None


def _replaced(old: OldState, name: str, changed: list[str], declared: Shape) -> Refusal | None:
    what = f'"{name}" has changed ({", ".join(_WORDS[one] for one in changed)}) since the state was written'
    held = _HOLDS.get(old.shape[name]["kind"])
    if held and name in old.begun:
        way_out = _UNDO
        if changed == ["tasks"]:
            way_out = f"{_UNDO} The tasks of a topology are changed while it runs, by repartition."
        return Refusal(name, f"{what}, and {held} cannot go on.", way_out)
    if rows := old.waiting(name):
        return Refusal(name, f"{what}, and {_rows(rows)} for it would be lost.", _DRAIN)
    return None


def _changed(old: OldState, name: str, declared: Shape) -> list[str]:
    """Which facts of an operator's own have changed. What an older Penstock did not record is not compared."""
    was, now = old.shape[name], declared[name]
    changed = [fact for fact in ("kind", "source") if fact in was and was[fact] != now.get(fact)]
    # Spark writes down how far an input is read by its place among the inputs.
    reads = [facts["reads"] for facts in (was, now) if facts.get("reads") is not None]
    if channels_read(old.shape, name) != channels_read(declared, name) or reads[:1] != reads[-1:]:
        changed.append("inputs")
    if was["kind"] == now["kind"] == "keyed":
        changed += [fact for fact in ("key", "output_mode", "state", "clock") if fact in was and was[fact] != now[fact]]
        if now["tasks"] not in (was.get("tasks", now["tasks"]), old.tasks.get(name)):
            changed.append("tasks")
        if not _same_plan(was.get("plan"), now.get("plan")):
            changed.append("plan")
    return changed


def _same_plan(was: Mapping[str, Any] | None, now: Mapping[str, Any] | None) -> bool:
    """Whether two plans keep the same state. Plans of two versions of Spark cannot be compared, and count as the
    same. An older Penstock did not record of which input a column is."""
    if not was or not now or was["spark"] != now["spark"]:
        return True
    facts = [fact for fact in ("stateful", "stateful_by_input") if fact in was and fact in now]
    return all(was[fact] == now[fact] for fact in facts)


def _stale_rows(old: OldState, declared: Shape, carried: Collection[str]) -> list[Refusal]:
    """Readers that are carried on in a channel whose rows are declared otherwise now, and have not read all of it."""
    before, now = channel_shapes(old.shape), channel_shapes(declared)
    refusals = []
    for name in sorted(before.keys() & now.keys()):
        was, becomes = before[name], now[name]
        if (was.schema, was.split) == (becomes.schema, becomes.split):
            continue
        for reader in was.readers:
            rows = old.unread.get((reader, name), 0)
            if reader not in carried or not (rows or reader in old.unfinished):
                continue
            what = f"{rows:,} rows wait" if rows else "the last batch, which must be read once more, waits"
            how = "split in other groups" if was.schema == becomes.schema else f'as "{was.schema}"'
            problem = f'{what} for "{reader}", which "{was.producer}" wrote {how}: not as it is declared now.'
            refusals.append(Refusal(reader, problem, _DRAIN))
    return refusals


def _rows(rows: int) -> str:
    return f"{rows:,} rows that wait" if rows != 1 else "1 row that waits"
