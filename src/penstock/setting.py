"""How a setting is declared, read from text and checked. The settings themselves are in penstock.settings."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from penstock import plugins
from penstock.errors import PenstockError


def setting(
    default: Any,
    meaning: str,
    *,
    low: float | None = None,
    high: float | None = None,
    choices: tuple[str, ...] = (),
    group: str = "",
) -> Any:
    """One setting. If its value is the name of a policy or a mapping, `group` is the entry point group of those."""
    metadata = {"meaning": meaning, "low": low, "high": high, "choices": choices, "group": group}
    return dataclasses.field(default=default, metadata=metadata)


#: What a setting of each type must be, in the words of an error.
_TYPES: Mapping[type, str] = {float: "a number", int: "a whole number", str: "a text"}


def type_of(field: dataclasses.Field[Any]) -> type:
    return type(field.default)


def read(field: dataclasses.Field[Any], value: Any) -> Any:
    if not isinstance(value, str) or type_of(field) is str:
        return value
    try:
        return type_of(field)(value)
    except ValueError:
        return value  # check names the mistake


def check(field: dataclasses.Field[Any], value: Any) -> None:
    wanted = type_of(field)
    right = isinstance(value, int | float) if wanted is float else isinstance(value, wanted)
    low, high, choices = (field.metadata[name] for name in ("low", "high", "choices"))
    if not right or isinstance(value, bool):
        problem = f"must be {_TYPES[wanted]}"
    elif choices and value not in choices:
        problem = f"must be one of {', '.join(choices)}"
    elif low is not None and not value >= low:
        problem = f"must be at least {low}"
    elif high is not None and not value <= high:
        problem = f"must be at most {high}"
    else:
        if group := field.metadata["group"]:
            plugins.require(group, value)
        return
    raise PenstockError("BAD_SETTING", f"{field.name}={value!r} {problem}.", field.metadata["meaning"])
