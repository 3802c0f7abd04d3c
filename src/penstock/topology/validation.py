"""Checks a declared topology and freezes it: the first mistake is raised under its name, at the user's line.

Penstock checks first the graph as a whole, then each operator in topological order. So it reports the mistake of an
operator before the mistakes that follow from it further down the stream.
"""

from __future__ import annotations

from penstock.errors import Location
from penstock.topology.definition import Operator, Sink, Stream, TopologyDefinition
from penstock.topology.function_rules import check_function
from penstock.topology.graph_rules import (
    check_all_outputs_are_read,
    check_ends,
    check_names,
    check_streams,
    in_topological_order,
)
from penstock.topology.operator_rules import check_operator
from penstock.topology.updates import check_updates, origins_of_updates


def validate(
    name: str, operators: tuple[Operator, ...], streams: tuple[Stream, ...], where: Location
) -> TopologyDefinition:
    """The frozen topology, its operators in topological order, ties in the order of declaration."""
    check_names(name, operators, where)
    check_streams(operators, streams)
    check_ends(name, operators, streams, where)
    check_all_outputs_are_read(operators, streams)
    definition = TopologyDefinition(name, in_topological_order(operators, streams), streams, where)
    origins = origins_of_updates(definition)
    for operator in definition.operators:
        check_operator(definition, operator)
        check_function(definition, operator)
        check_updates(definition, operator, origins)
        if isinstance(operator, Sink):
            operator.spec.check_rows(definition.schema_of_all(definition.inputs_of(operator.name)), operator.where)
    return definition
