"""Which neighbouring operators run as one chain: in one query and one bundle, without a channel between them.

A chain saves a micro-batch and a file for every stream inside it. Its operators share their instances: a row is handled
by all of them on the thread that read it. So those that are placed apart, or have other numbers of instances, stay so.
"""

from __future__ import annotations

from itertools import pairwise

from penstock.cluster.model import Placement
from penstock.topology.definition import (
    DEAD_LETTER,
    Keyed,
    Map,
    Operator,
    Shuffle,
    Sink,
    Source,
    Stream,
    TopologyDefinition,
)

#: Each at least two operators, in the order of the streams.
Chains = tuple[tuple[str, ...], ...]


def chains_of(definition: TopologyDefinition, placement: Placement) -> Chains:
    """The longest chains that a placement allows."""
    behind: dict[str, str] = {}
    for stream in definition.streams:
        if not obstacle(definition, placement, stream):
            behind.setdefault(stream.producer, stream.consumer)  # of several outputs, the first that can
    later = set(behind.values())
    found = []
    for operator in definition.operators:
        if operator.name in behind and operator.name not in later:
            chain = [operator.name]
            while chain[-1] in behind:
                chain.append(behind[chain[-1]])
            found.append(tuple(chain))
    return tuple(found)


def candidates(definition: TopologyDefinition) -> list[Stream]:
    """Streams whose ends may run as one if they are placed alike; of every operator one output at most."""
    found: dict[str, Stream] = {}
    for stream in definition.streams:
        ends = (definition.operator(stream.producer), definition.operator(stream.consumer))
        if ends[0].instances == ends[1].instances and not _declared_apart(definition, stream):
            found.setdefault(stream.producer, stream)
    return list(found.values())


def obstacle(definition: TopologyDefinition, placement: Placement, stream: Stream) -> str:
    """Why the two ends of a stream run apart; empty if they may run as one."""
    return _declared_apart(definition, stream) or _placed_apart(placement, stream)


def _declared_apart(definition: TopologyDefinition, stream: Stream) -> str:
    producer, consumer = definition.operator(stream.producer), definition.operator(stream.consumer)
    if isinstance(producer, Keyed) and producer.chained:
        # A chain is taken apart when one of its operators is scaled, and then its query starts anew.
        return f"{producer.name} is keyed: apart, it can be scaled without loading its state again"
    by_themselves = (why for operator in (producer, consumer) if (why := _cannot_be_chained(operator)))
    return next(by_themselves, "") or _rows_go_elsewhere(definition, stream)


def _rows_go_elsewhere(definition: TopologyDefinition, stream: Stream) -> str:
    if not isinstance(stream.grouping, Shuffle):
        return f"rows go {stream.grouping} to other instances"
    if stream.output == DEAD_LETTER:
        return "rows that failed go their own way"
    readers = [one for one in definition.streams if (one.producer, one.output) == (stream.producer, stream.output)]
    if len(readers) > 1:
        return f"{stream.producer} has other readers"
    return f"{stream.consumer} has other inputs" if len(definition.inputs_of(stream.consumer)) > 1 else ""


def _placed_apart(placement: Placement, stream: Stream) -> str:
    if placement.of(stream.producer) == placement.of(stream.consumer):
        return ""
    same = placement.total(stream.producer) == placement.total(stream.consumer)
    return "they are placed on different slots" if same else "they have different numbers of instances"


def why_apart(definition: TopologyDefinition, placement: Placement, chains: Chains) -> dict[str, str]:
    """By stream: why its ends run apart; empty for those inside a chain."""
    inside = {pair for chain in chains for pair in pairwise(chain)}
    reasons = {}
    for stream in definition.streams:
        if (stream.producer, stream.consumer) in inside:
            reasons[stream.name] = ""
        elif why := obstacle(definition, placement, stream):
            reasons[stream.name] = why
        else:
            other = next((two for one, two in inside if one == stream.producer), None)
            reasons[stream.name] = f"{other} is behind {stream.producer} already" if other else "chaining is off"
    return reasons


def following(chains: Chains) -> dict[str, str]:
    """Operator -> the first of its chain; only of those that are not the first themselves."""
    return {operator: chain[0] for chain in chains for operator in chain[1:]}


def as_one(placement: Placement, chains: Chains) -> Placement:
    """All operators of a chain where the first of it is: a repair of lost slots may have torn them apart."""
    if not chains:
        return placement
    first = following(chains)
    instances = {name: placement.instances[first.get(name, name)] for name in placement.instances}
    return Placement(instances, placement.tasks)


def _cannot_be_chained(operator: Operator) -> str:
    if not operator.chained:
        return f"{operator.name} is declared with chained=False"
    match operator:
        case Keyed():
            return f"{operator.name} is keyed: Spark's shuffle splits its rows"
        case Map(takes_dataframes=True):
            return f"the work of {operator.name} is done by Spark SQL"
        case Source() if not operator.spec.read_by_bundles:
            return f"{operator.name} is read by Spark"
        case Sink() if not operator.spec.written_by_bundles:
            return f"{operator.name} is written by Spark"
    return ""
