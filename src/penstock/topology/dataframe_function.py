"""How many DataFrames a function takes: one with all inputs interleaved, or one per input.

The function's own parameters say which; the engine and the validation must read them the same way.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from penstock.topology.definition import Keyed, Map, Operator, Sink, Source

_VARIADIC = inspect.Parameter.VAR_POSITIONAL


def stands(operator: Operator) -> bool:
    """Whether bundles do all of an operator's work, without Spark SQL: then they stand, and take share after share."""
    if isinstance(operator, Source):
        return operator.spec.read_by_bundles
    return operator.spec.written_by_bundles if isinstance(operator, Sink) else not takes_dataframes(operator)


def takes_dataframes(operator: Operator) -> bool:
    """Whether the operator's function works on Spark's DataFrames; a source or sink has no function."""
    return isinstance(operator, Keyed) or (isinstance(operator, Map) and operator.takes_dataframes)


def accepts(function: Callable[..., Any], arguments: int) -> bool:
    """Whether it can be called with this many positional arguments; one without a signature gets the benefit of
    the doubt (some built-in callables have none)."""
    signature = _signature(function)
    if signature is None:
        return True
    try:
        signature.bind(*[None] * arguments)
    except TypeError:
        return False
    return True


def frames_taken(function: Callable[..., Any], inputs: int) -> int | None:
    """1 when the inputs come interleaved in one DataFrame, `inputs` when each has its own; None: it takes neither."""
    takes_one = accepts(function, 1)
    takes_each = accepts(function, inputs)
    if takes_one and takes_each:
        # f(*frames) asks for all of them; in f(frame, limit=3) the second parameter is an option, not an input.
        return inputs if _is_variadic(function) else 1
    if takes_one:
        return 1
    return inputs if takes_each else None


def _is_variadic(function: Callable[..., Any]) -> bool:
    signature = _signature(function)
    return signature is not None and any(parameter.kind is _VARIADIC for parameter in signature.parameters.values())


def _signature(function: Callable[..., Any]) -> inspect.Signature | None:
    try:
        return inspect.signature(function)
    except (TypeError, ValueError):
        return None
