"""How a run ended, in words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from penstock.errors import PenstockError
from penstock.monitor.kept_state import left_in_words, more_in_words, unknown_in_words

#: A run that ends waits so long for a transaction of its catalog, and of its statistics store: about as long as a
#: PostgreSQL server needs to be started again. What it does not wait for, the next start makes up for.
END_SECONDS = 15.0


def ended_in_words(
    drained: bool, left: Mapping[str, int], unknown: Sequence[str], more: Sequence[str] = (), unwritten: str = ""
) -> str:
    """Whether all rows had reached the sinks, and what is still inside: results `left` in operators, operators of
    which that is `unknown`, and operators that may give `more`. `unwritten` says why the end is not in the catalog, if
    it is not."""
    inside = left or unknown or more
    arrived = "no row was on its way any more" if inside else "everything had reached the sinks"
    how = arrived if drained else "rows were still on their way, and are kept"
    if left:
        how = f"{how}; left inside, in windows that are still open: {left_in_words(left)}"
    if unknown:
        how = f"{how}; {unknown_in_words(unknown)}"
    if more:
        how = f"{how}; {more_in_words(more)}"
    if unwritten:
        how = f"{how}; {unwritten}"
    return how


def unwritten_in_words(error: PenstockError) -> str:
    """What it means that the catalog could not be written at the end."""
    return (
        f"the end could not be written to the catalog ({error.name}: {error.message.removesuffix('.')}). Batches that "
        "were being published are in it as a whole or not at all; with --state, the next run looks which, and goes on "
        "from there"
    )
