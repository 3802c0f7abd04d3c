"""Kinds that other packages bring, found by the name of their entry point."""

from __future__ import annotations

from importlib.metadata import entry_points
from typing import Any

from penstock.errors import Location, PenstockError

SOURCES = "penstock.sources"
SINKS = "penstock.sinks"
_UNKNOWN = {SOURCES: ("kind of source", "UNKNOWN_SOURCE"), SINKS: ("kind of sink", "UNKNOWN_SINK")}


def registered(group: str, name: str, base: type) -> Any:
    """The class that is registered under a name, or a function that makes one. A class must derive from `base`."""
    what, unknown = _UNKNOWN[group]
    found = list(entry_points(group=group, name=name))
    if not found:
        known = ", ".join(sorted(entry_points(group=group).names)) or "none"
        hint = f'Installed packages register in the group "{group}": {known}.'
        raise PenstockError(unknown, f'there is no {what} "{name}".', hint, Location.of_caller())
    if len({entry.value for entry in found}) > 1:
        raise PenstockError(
            "DUPLICATE_PLUGIN",
            f'the {what} "{name}" is registered several times: {", ".join(sorted(entry.value for entry in found))}.',
            "Uninstall all packages but one that register it.",
            Location.of_caller(),
        )
    try:
        kind = found[0].load()
    except Exception as problem:  # a stranger's module may raise whatever it likes
        raise _failed(what, name, f"cannot be loaded: {type(problem).__name__}: {problem}") from problem
    if not callable(kind) or (isinstance(kind, type) and not issubclass(kind, base)):
        raise _failed(what, name, f"is no class that derives from {base.__name__}")
    return kind


def _failed(what: str, name: str, why: str) -> PenstockError:
    hint = "Install another version of the package that brings it, or choose another name."
    return PenstockError("PLUGIN_FAILED", f'the {what} "{name}" {why}.', hint, Location.of_caller())
