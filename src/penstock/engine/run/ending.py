"""How a run ended, in words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from penstock.monitor.kept_state import left_in_words, more_in_words, unknown_in_words


def ended_in_words(drained: bool, left: Mapping[str, int], unknown: Sequence[str], more: Sequence[str] = ()) -> str:
    """Whether all rows had reached the sinks, and what is still inside: results `left` in operators, operators of
    which that is `unknown`, and operators that may give `more`."""
    inside = left or unknown or more
    arrived = "no row was on its way any more" if inside else "everything had reached the sinks"
    how = arrived if drained else "rows were still on their way, and are kept"
    if left:
        how = f"{how}; left inside, in windows that are still open: {left_in_words(left)}"
    if unknown:
        how = f"{how}; {unknown_in_words(unknown)}"
    if more:
        how = f"{how}; {more_in_words(more)}"
    return how
