"""Kinds of sources and sinks by their names: Penstock's own, and those that other packages bring."""

from __future__ import annotations

from typing import Any

from penstock import plugins
from penstock.errors import Location, PenstockError
from penstock.plugins import SINKS, SOURCES

__all__ = ["SINKS", "SOURCES", "registered"]


def registered(group: str, name: str, base: type) -> Any:
    """The class that is registered under a name, or a function that makes one. A class must derive from `base`. A
    mistake points at the line of the user who named it."""
    where = Location.of_caller()
    try:
        kind = plugins.find(group, name)
    except PenstockError as refusal:
        raise PenstockError(refusal.name, refusal.message, refusal.hint, where) from refusal.__cause__
    if not callable(kind) or (isinstance(kind, type) and not issubclass(kind, base)):
        raise PenstockError(
            "PLUGIN_FAILED",
            f'the {plugins.GROUPS[group].what} "{name}" is not a class that derives from {base.__name__}.',
            f"Install another version of {plugins.package_of(group, name)}, or choose another name.",
            where,
        )
    return kind
