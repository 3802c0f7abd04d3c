"""Which streams carry updates: rows that take the place of an earlier row of the same key, and do not add to it.

A keyed operator emits its result for a key again whenever it changes (output_mode="update"), or all results with every
batch ("complete"). Only "append" emits every result once. What a map emits for updates are updates again. A sink and a
map may read updates: they take each row by itself. A keyed operator keeps state, so it would count the same key again
with every update: of the totals 1, 2 and 3 of one key it would say that the mean is 2, but the total is 3. So a keyed
operator may read updates only if its function is written for them.
"""

from __future__ import annotations

from collections.abc import Mapping

from penstock.aggregates import Merge
from penstock.errors import PenstockError
from penstock.topology.definition import DEAD_LETTER, Keyed, Map, Operator, Stream, TopologyDefinition

_AGAIN = {"update": "the row of a key again whenever it changes", "complete": "all its rows again with every batch"}


def origins_of_updates(definition: TopologyDefinition) -> Mapping[str, Keyed]:
    """Each operator whose rows are updates -> the keyed operator that they come from."""
    origins: dict[str, Keyed] = {}
    for operator in definition.operators:  # in topological order
        if isinstance(operator, Keyed):
            if operator.output_mode != "append":
                origins[operator.name] = operator
        elif isinstance(operator, Map):
            found = (_origin(stream, origins) for stream in definition.inputs_of(operator.name))
            if origin := next(filter(None, found), None):
                origins[operator.name] = origin
    return origins


def _origin(stream: Stream, origins: Mapping[str, Keyed]) -> Keyed | None:
    # Every dead letter tells of one failure, also of one with an update.
    return None if stream.output == DEAD_LETTER else origins.get(stream.producer)


def check_updates(definition: TopologyDefinition, operator: Operator, origins: Mapping[str, Keyed]) -> None:
    """UPDATES_AS_ROWS."""
    if not isinstance(operator, Keyed) or operator.takes_updates:
        return
    for stream in definition.inputs_of(operator.name):
        if origin := _origin(stream, origins):
            raise PenstockError(
                "UPDATES_AS_ROWS",
                f'"{operator.name}" would count updates as rows: "{origin.name}" has '
                f'output_mode="{origin.output_mode}", so it gives {_AGAIN.get(origin.output_mode, "rows again")}.',
                f'{_given_once(origin)} If the function of "{operator.name}" is written for updates (it keeps the '
                "newest row of each key, by max_by or in state of its own), declare it as topology.keyed(..., "
                "takes_updates=True).",
                stream.where,
            )


def _given_once(origin: Keyed) -> str:
    """How the results of an operator can be had once each."""
    if isinstance(origin.function, Merge):
        return (
            f'Declare "{origin.name}" as topology.keyed(..., output_mode="append"), with a watermark and a window in '
            "its function: it then gives each result once, when its window is closed."
        )
    return (
        f'Declare "{origin.name}" with output_mode="append": it then gives each result once. (An aggregation needs a '
        "watermark for that, and gives its result when its window is closed; deduplication and inner joins need "
        "nothing.)"
    )
