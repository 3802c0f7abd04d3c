"""The rules about the graph: names, ends of streams, nothing lost, no cycle."""

from __future__ import annotations

import difflib
import heapq
import re
from collections import defaultdict
from collections.abc import Sequence

from penstock.errors import Location, PenstockError
from penstock.topology.definition import DEAD_LETTER, DEAD_LETTER_SCHEMA, OnError, Operator, Sink, Source, Stream

#: Names end up in file names, tables and drawings.
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
NAME_HINT = "Use letters, digits, - and _, at most 64 of them, the first a letter or digit."


def check_names(name: str, operators: Sequence[Operator], where: Location) -> None:
    """BAD_NAME, DUPLICATE_NAME."""
    _check_name("the topology", name, where)
    first_of_name: dict[str, Operator] = {}
    for operator in operators:
        _check_name("an operator", operator.name, operator.where)
        for output in operator.outputs:
            _check_name(f'an output of "{operator.name}"', output, operator.where)
        _check_dead_letter(operator)
        first = first_of_name.setdefault(operator.name, operator)
        if first is not operator:
            raise PenstockError(
                "DUPLICATE_NAME",
                f'there is already an operator "{operator.name}", declared at {first.where}.',
                "Give one of the two another name.",
                operator.where,
            )


def _check_name(what: str, name: object, where: Location) -> None:
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise PenstockError(
            "BAD_NAME",
            f"{what} has the name {name!r}.",
            NAME_HINT,
            where,
        )


def _check_dead_letter(operator: Operator) -> None:
    declared = operator.outputs.get(DEAD_LETTER)
    if declared is not None and (operator.on_error is not OnError.DEAD_LETTER or declared != DEAD_LETTER_SCHEMA):
        raise PenstockError(
            "BAD_NAME",
            f'"{operator.name}" declares an output "{DEAD_LETTER}", which is a reserved name.',
            f'Give the output another name; on_error="{DEAD_LETTER}" adds an output for rows that cannot be handled.',
            operator.where,
        )


def check_streams(operators: Sequence[Operator], streams: Sequence[Stream]) -> None:
    """UNKNOWN_OPERATOR, UNKNOWN_OUTPUT, DUPLICATE_STREAM."""
    by_name = {operator.name: operator for operator in operators}
    seen: set[tuple[str, str, str]] = set()
    for stream in streams:
        for name in (stream.producer, stream.consumer):
            if name not in by_name:
                raise PenstockError(
                    "UNKNOWN_OPERATOR",
                    f'a stream into "{stream.consumer}" comes from "{stream.producer}"; there is no operator "{name}".',
                    _suggestion(name, list(by_name)),
                    stream.where,
                )
        outputs = by_name[stream.producer].outputs
        if stream.output not in outputs:
            raise PenstockError(
                "UNKNOWN_OUTPUT",
                f'"{stream.consumer}" reads the output "{stream.output}" of "{stream.producer}", which does not '
                "declare it.",
                _hint_for_output(stream, list(outputs)),
                stream.where,
            )
        ends = (stream.producer, stream.output, stream.consumer)
        if ends in seen:
            raise PenstockError(
                "DUPLICATE_STREAM",
                f'"{stream.consumer}" has the output "{stream.output}" of "{stream.producer}" twice as input.',
                "Name it once; otherwise every row would arrive twice.",
                stream.where,
            )
        seen.add(ends)


def _suggestion(name: str, known: Sequence[str]) -> str:
    closest = difflib.get_close_matches(name, known, n=1)
    if closest:
        return f'Did you mean "{closest[0]}"?'
    return f"There are: {', '.join(known)}."


def _hint_for_output(stream: Stream, outputs: Sequence[str]) -> str:
    if stream.output == DEAD_LETTER:
        return f'Declare "{stream.producer}" with on_error="{DEAD_LETTER}".'
    return _suggestion(stream.output, outputs) if outputs else f'"{stream.producer}" is a sink: it emits nothing.'


def check_ends(name: str, operators: Sequence[Operator], streams: Sequence[Stream], where: Location) -> None:
    """NO_SOURCE, NO_SINK, NO_INPUT."""
    if not any(isinstance(operator, Source) for operator in operators):
        raise PenstockError("NO_SOURCE", f'"{name}" has no source.', "Declare one with topology.source(...).", where)
    if not any(isinstance(operator, Sink) for operator in operators):
        raise PenstockError("NO_SINK", f'"{name}" has no sink.', "Declare one with topology.sink(...).", where)
    consumers = {stream.consumer for stream in streams}
    for operator in operators:
        if not isinstance(operator, Source) and operator.name not in consumers:
            raise PenstockError(
                "NO_INPUT",
                f'the {operator.kind} "{operator.name}" has no input.',
                "Name at least one output of another operator in `inputs`.",
                operator.where,
            )


def check_all_outputs_are_read(operators: Sequence[Operator], streams: Sequence[Stream]) -> None:
    """UNUSED_OPERATOR."""
    read = {(stream.producer, stream.output) for stream in streams}
    for operator in operators:
        for output in operator.outputs:
            if (operator.name, output) not in read:
                raise PenstockError(
                    "UNUSED_OPERATOR",
                    f'nothing reads the output "{output}" of "{operator.name}".',
                    'Let a sink read it, or use on_error="skip".'
                    if output == DEAD_LETTER
                    else "Let another operator or a sink read it, or do not declare it.",
                    operator.where,
                )


def in_topological_order(operators: Sequence[Operator], streams: Sequence[Stream]) -> tuple[Operator, ...]:
    """Kahn's algorithm; of the operators that are ready, the one declared first. Raises CYCLE."""
    declared_at = {operator.name: index for index, operator in enumerate(operators)}
    readers: dict[str, list[str]] = defaultdict(list)
    waits_for = dict.fromkeys(declared_at, 0)
    for stream in streams:
        readers[stream.producer].append(stream.consumer)
        waits_for[stream.consumer] += 1
    ready = [index for name, index in declared_at.items() if not waits_for[name]]
    ordered: list[Operator] = []
    while ready:
        operator = operators[heapq.heappop(ready)]
        ordered.append(operator)
        for reader in readers[operator.name]:
            waits_for[reader] -= 1
            if not waits_for[reader]:
                heapq.heappush(ready, declared_at[reader])
    if len(ordered) < len(operators):
        raise _cycle({name for name, count in waits_for.items() if count}, declared_at, streams)
    return tuple(ordered)


def _cycle(unordered: set[str], declared_at: dict[str, int], streams: Sequence[Stream]) -> PenstockError:
    """One cycle among the operators that could not be ordered: each of them waits for another of them, so walking
    against the streams must come back to where it has been."""
    stream_into = {stream.consumer: stream for stream in streams if stream.producer in unordered}
    name = min(unordered, key=declared_at.__getitem__)
    path: list[Stream] = []
    walked: dict[str, int] = {}
    while name not in walked:
        walked[name] = len(path)
        path.append(stream_into[name])
        name = path[-1].producer
    cycle = path[walked[name] :][::-1]
    # Some stream of a cycle must come from an operator declared further down: that line is the one to look at.
    backward = next(
        index for index, edge in enumerate(cycle) if declared_at[edge.producer] >= declared_at[edge.consumer]
    )
    in_order = cycle[backward + 1 :] + cycle[: backward + 1]
    names = [in_order[0].producer, *(edge.consumer for edge in in_order)]
    return PenstockError(
        "CYCLE",
        f"the streams form a cycle: {' -> '.join(names)}.",
        "Remove one of these streams: rows can never flow back to an operator that they have passed.",
        cycle[backward].where,
    )
