"""What a DataFrame function may not do on a stream, in words that say what to do instead.

Spark says what it cannot do; it does not know what Penstock offers for it. Each rule here knows one of Spark's
sentences and the way out. A sentence without a rule is passed on as it is.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from penstock.errors import PenstockError
from penstock.topology.definition import Keyed, Operator

_OWN_STATE = "state of its own (topology.stateful, or applyInPandasWithState as in examples/top_n.py)"
_LARGEST = (
    f"For the newest or largest row of each key use groupBy(...).agg(max_by(...)) in a keyed operator, for the first n "
    f"of them {_OWN_STATE}."
)

_ANTI_JOIN = (
    'To leave out the rows of a table, join with it: frame.join(table, ["key"], "left_anti") keeps no state, and is '
    "allowed in a map."
)

#: Beginning of the name of an operator in Spark's plan -> what the user's function does.
_STATEFUL = {
    "Aggregate": "groups and aggregates rows",
    "Deduplicate": "drops duplicates",
    "Distinct": "drops duplicates",
    "Except": "takes away the rows of a table (subtract)",
    "Join": "joins two streams",
    "FlatMapGroups": "keeps state of its own",
    "TransformWithState": "keeps state of its own",
    "GlobalLimit": "limits the number of rows",
}


@dataclass(frozen=True)
class Rule:
    """One of Spark's sentences, and what to say instead."""

    sentence: str
    problem: str
    hint: str
    name: str = "NOT_ON_A_STREAM"


_RULES = (
    Rule(
        "aggregations without watermark",
        "has {mode}, but its function aggregates without a watermark: no result is ever known to be the last one",
        'Declare output_mode="update", and a result is given again whenever it changes; or give the function a '
        'watermark and group by time: frame.withWatermark("at", "1 minute").groupBy(window("at", "10 minutes"), ...).',
        "BAD_OUTPUT_MODE",
    ),
    Rule(
        r"(Outer|Semi|Anti) join between two streaming .* only in Append",
        "has {mode}, but its function is an outer join of two streams (or a semi or anti join): what has no partner is "
        "known only when its time has passed",
        'Declare output_mode="append", give both inputs a watermark, and let the condition of the join say how far '
        "apart their times may be.",
        "BAD_OUTPUT_MODE",
    ),
    Rule(
        r"(Outer|Semi|Anti) join between two streaming .* without a watermark",
        "has an outer join of two streams (or a semi or anti join) without a watermark: a row would wait for its "
        "partner for ever",
        "Give both inputs a watermark, and let the condition of the join say how far apart their times may be.",
    ),
    Rule(
        "NON_TIME_WINDOW_NOT_SUPPORTED",
        "uses a function over a window of rows (row_number, rank, lag, sum(...).over(...) or the like), which needs "
        "all rows of a key, and a stream has no end",
        _LARGEST,
    ),
    Rule(
        "Sorting is not supported",
        "sorts its rows, and a stream has no end at which they could be sorted",
        f"Sort where the results are read. {_LARGEST} (Results of an aggregation can be sorted with "
        'output_mode="complete", which gives all of them again with every batch.)',
    ),
    Rule(
        "must be executed with writeStream",
        "asks for the rows themselves (collect, count, show, toPandas or the like)",
        "A DataFrame function is called before any row is there, and returns a DataFrame that says what is to be done "
        "with them. Look at rows in a sink, or in an Arrow function (topology.map).",
        "BAD_FUNCTION",
    ),
)


def state_outside_keyed(operator: Operator, stateful: Sequence[str]) -> PenstockError:
    """The error for a map or a source with these stateful operators in Spark's plan."""
    what = next((text for name, text in _STATEFUL.items() if stateful[0].startswith(name)), "keeps state")
    return PenstockError(
        "STATE_OUTSIDE_KEYED",
        f'the {operator.kind} "{operator.name}" must not keep state, but its function {what}.',
        f'Declare it as topology.keyed("{operator.name}", ..., key=..., tasks=...): Penstock places, moves and '
        f"measures the state of keyed operators only.{f' {_ANTI_JOIN}' if stateful[0] == 'Except' else ''}",
        operator.where,
    )


def never_right(operator: Operator, stateful: Sequence[str]) -> PenstockError | None:
    """The error for an operator with these stateful operators in Spark's plan, if Spark runs one of them and gets it
    wrong: for exceptAll it keeps sums, and counts the rows of the table again in every batch."""
    if not any(name.startswith("Except") and name.endswith("All") for name in stateful):
        return None
    return PenstockError(
        "NOT_ON_A_STREAM",
        f'"{operator.name}" uses exceptAll, and Spark would take away the rows of the table anew with every batch.',
        _ANTI_JOIN,
        operator.where,
    )


def needs_rocksdb(operator: Operator, state_store: str) -> PenstockError:
    """The error for state of the user's own on a state store that cannot keep it."""
    return PenstockError(
        "NEEDS_ROCKSDB",
        f'"{operator.name}" keeps state of its own, and the setting state_store is {state_store}.',
        "Leave state_store at rocksdb: of Spark's state stores only that one keeps several states and timers by key.",
        operator.where,
    )


def refused_by_spark(operator: Operator, mode: str, refusal: Callable[[str], str]) -> PenstockError | None:
    """What is wrong with a function in this output mode, if anything is. `refusal` gives Spark's words about a mode,
    which are empty where Spark takes it."""
    words = refusal(mode)
    if not words:
        return None
    others = {other: refusal(other) for other in ("append", "update", "complete") if other != mode}
    accepted = [other for other, said in others.items() if not said]
    if mode == "complete" and not accepted:
        words = others["update"]  # about the function itself, and not about a mode that it could not have anyway
    if error := explained(operator, words, mode, bool(accepted)):
        return error
    problem = f'"{operator.name}" cannot have output_mode="{mode}"' if accepted else f'Spark refuses "{operator.name}"'
    choices = " or ".join(f'output_mode="{other}"' for other in accepted)
    return PenstockError(
        "BAD_OUTPUT_MODE" if accepted else "NOT_ON_A_STREAM",
        f"{problem}: {_first_sentence(words)}.",
        f"Declare {choices}."
        if accepted
        else "Do it in another way: Spark's guide to Structured Streaming lists what cannot be done on a stream.",
        operator.where,
    )


def explained(
    operator: Operator, words: str, mode: str | None = None, another_mode_would_do: bool = False
) -> PenstockError | None:
    """The error for what Spark said about an operator; None if no rule knows it."""
    if mode is None:
        mode = operator.output_mode if isinstance(operator, Keyed) else "append"
    rule = next((rule for rule in _RULES if re.search(rule.sentence, words)), None)
    if rule is None:
        return None
    name = "BAD_OUTPUT_MODE" if another_mode_would_do else rule.name
    problem = rule.problem.format(mode=f'output_mode="{mode}"')
    return PenstockError(name, f'"{operator.name}" {problem}.', rule.hint, operator.where)


def _first_sentence(words: str) -> str:
    """Spark's first sentence, without the plan, the error class and the SQLSTATE."""
    line = words.strip().splitlines()[0]
    return re.sub(r"^\[[\w.]+\]\s*|\s*SQLSTATE:.*$", "", line).rstrip(" .;")
