"""How a processor declares its states: as attributes of its class, each with its columns and its time to live.

An attribute of the class is the declaration; the same attribute of a processor that works is the state of the key.
"""

from __future__ import annotations

import builtins
import math
from dataclasses import dataclass, field
from typing import Any, Protocol, overload

from penstock.errors import Location, PenstockError
from penstock.schema import Schema, parse_schema, schema_text
from penstock.topology.state.columns import Columns, problem_of
from penstock.topology.state.held import HeldList, HeldMap, HeldValue


class HoldsStates(Protocol):
    """A processor, as the states that its class declares see it."""

    def held_state(self, name: str) -> Any:
        """The state of the key that is declared under this name."""


@dataclass(frozen=True, eq=False)
class Declared:
    """One state of a processor: its columns, and how many seconds a value lives after it was set."""

    columns: Columns
    ttl: float | None
    where: Location
    #: The attribute of the class.
    name: str = field(default="", init=False)

    def __set_name__(self, owner: type, name: str) -> None:
        object.__setattr__(self, "name", name)

    def __set__(self, processor: HoldsStates, value: Any) -> None:
        raise PenstockError(
            "BAD_STATE",
            f'the state "{self.name}" is assigned to.',
            f"Set what it holds: self.{self.name}.set(...).",
        )

    @property
    def ttl_milliseconds(self) -> int | None:
        return None if self.ttl is None else max(1, round(self.ttl * 1000))

    @property
    def words(self) -> str:
        """What the state in a checkpoint depends on. The length of a time to live may change."""
        kind = type(self).__name__.removeprefix("Declared").lower()
        return f"{kind} {schema_text(self.columns.schema)}{' with ttl' if self.ttl is not None else ''}"

    def held(self, handle: Any) -> Any:
        """The state in the store behind a handle, which has the methods of PySpark's StatefulProcessorHandle."""
        raise NotImplementedError


class DeclaredValue(Declared):
    @overload
    def __get__(self, processor: None, owner: type) -> DeclaredValue: ...
    @overload
    def __get__(self, processor: HoldsStates, owner: type) -> HeldValue: ...
    def __get__(self, processor: HoldsStates | None, owner: type) -> DeclaredValue | HeldValue:
        return self if processor is None else processor.held_state(self.name)

    def held(self, handle: Any) -> HeldValue:
        return HeldValue(handle.getValueState(self.name, self.columns.stored, self.ttl_milliseconds), self.columns)


class DeclaredList(Declared):
    @overload
    def __get__(self, processor: None, owner: type) -> DeclaredList: ...
    @overload
    def __get__(self, processor: HoldsStates, owner: type) -> HeldList: ...
    def __get__(self, processor: HoldsStates | None, owner: type) -> DeclaredList | HeldList:
        return self if processor is None else processor.held_state(self.name)

    def held(self, handle: Any) -> HeldList:
        return HeldList(handle.getListState(self.name, self.columns.stored, self.ttl_milliseconds), self.columns)


@dataclass(frozen=True, eq=False)
class DeclaredMap(Declared):
    keys: Columns = field(kw_only=True)

    @overload
    def __get__(self, processor: None, owner: type) -> DeclaredMap: ...
    @overload
    def __get__(self, processor: HoldsStates, owner: type) -> HeldMap: ...
    def __get__(self, processor: HoldsStates | None, owner: type) -> DeclaredMap | HeldMap:
        return self if processor is None else processor.held_state(self.name)

    @property
    def words(self) -> str:
        return f"{super().words} by {schema_text(self.keys.schema)}"

    def held(self, handle: Any) -> HeldMap:
        store = handle.getMapState(self.name, self.keys.stored, self.columns.stored, self.ttl_milliseconds)
        return HeldMap(store, self.columns, self.keys)


def value(schema: Schema, *, ttl: float | None = None) -> DeclaredValue:
    """One value for each key: `state.value("n long")`. It is gone `ttl` seconds after it was set last."""
    where = Location.of_caller()
    return DeclaredValue(_columns(schema, where), _ttl(ttl, where), where)


def list(schema: Schema, *, ttl: float | None = None) -> DeclaredList:
    """A list of values for each key: `state.list("at timestamp")`. Each is gone `ttl` seconds after it was added."""
    where = Location.of_caller()
    return DeclaredList(_columns(schema, where), _ttl(ttl, where), where)


def map(key: Schema, schema: Schema, *, ttl: float | None = None) -> DeclaredMap:
    """A map for each key: `state.map("word string", "n long")`. Each entry is gone `ttl` seconds after it was set."""
    where = Location.of_caller()
    return DeclaredMap(_columns(schema, where), _ttl(ttl, where), where, keys=_columns(key, where, keys=True))


def states_of(processor: type) -> dict[str, Declared]:
    """The states that a class and its bases declare, by name, in the order of their declaration."""
    return {
        name: one
        for base in reversed(builtins.list(processor.__mro__))
        for name, one in vars(base).items()
        if isinstance(one, Declared)
    }


def _columns(schema: Schema, where: Location, keys: bool = False) -> Columns:
    parsed = parse_schema(schema, where)
    if problem := problem_of(parsed):
        raise PenstockError(
            "BAD_STATE",
            f'a state cannot be "{schema_text(parsed)}": {problem}.',
            "Give several columns of simple types (string, long, double, timestamp, ...), or use state.list or "
            "state.map for what is nested.",
            where,
        )
    return Columns(parsed, keys)


def _ttl(ttl: Any, where: Location) -> float | None:
    if ttl is None:
        return None
    if not isinstance(ttl, int | float) or isinstance(ttl, bool) or not math.isfinite(ttl) or ttl <= 0:
        raise PenstockError(
            "BAD_STATE", f"a state has ttl={ttl!r}.", "Give the seconds that a value lives, above 0.", where
        )
    return float(ttl)
