"""What benchmarks/live.py has to reach, as lines: from what was measured, round by round, to bars. No Spark here.

Lines that begin with 5 say what a change costs a topology whose bundles stand. The others are older.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence

from live_gaps import Measured
from results import Bar

#: What the processes are called.
PENSTOCK, PLAIN, NO_WAIT, STATELESS = "penstock", "plain", "plain, locality.wait=0", "stateless"
#: Actions by their names in the tables.
UP, DOWN = "set instances: up", "set instances: down"
THERE, BACK = "move 2 tasks: there", "move 2 tasks: back"
ADD, USE, REMOVE = "add a machine", "let it take work", "remove a machine"
DECOMMISSION = "decommission"
#: The most seconds without a row at the sink, and until a new machine has worked.
SILENCE, FIRST_WORK = 0.3, 1.0
#: Engine and action -> what was measured, by round.
Found = Mapping[tuple[str, str], Sequence[Measured]]


def bars_of(found: Found, cut: str, plain_cut: str) -> list[Bar]:
    """Of the engines that were measured. `cut` and `plain_cut` are the names of the repartitions."""
    engines = {engine for engine, _ in found}
    bars = stateless_bars(found) if STATELESS in engines else []
    return bars + (state_bars(found, cut, plain_cut) if {PENSTOCK, PLAIN} <= engines else [])


def stateless_bars(found: Found) -> list[Bar]:
    """Where an action has two directions, each is a line."""

    def silence(action: str, most: float) -> Bar:
        gaps = [one.longest_gap for one in found.get((STATELESS, action), ())]
        return Bar.of(f"5. stateless, {action}: longest silence at the sink, s", gaps, most, at_most=True)

    return [*(silence(action, SILENCE) for action in (UP, DOWN, ADD, REMOVE)), silence(USE, FIRST_WORK)]


def state_bars(found: Found, cut: str, plain_cut: str) -> list[Bar]:
    """Where an action has two directions, the worse one counts."""

    def worst(get: Callable[[Measured], float], *actions: str) -> list[float]:
        return max(([get(one) for one in found[PENSTOCK, action]] for action in actions), key=statistics.median)

    def compared(other: str, its: str, mine: str) -> list[float]:
        """Longest gaps, the other's / Penstock's, by round."""
        pairs = zip(found.get((other, its), ()), found[PENSTOCK, mine], strict=False)
        return [one.longest_gap / own.longest_gap for one, own in pairs]

    # A look is without those that do not wait.
    without = compared(NO_WAIT, DECOMMISSION, REMOVE)
    zero = f" (with locality.wait=0: {statistics.median(without):.2f})" if without else ""
    moves = worst(lambda one: one.ratio_but_load, THERE, BACK)
    first = [one.longest_gap - one.median_gap for one in found[PENSTOCK, USE]]
    slower = [1 / one for one in compared(PLAIN, plain_cut, cut)]
    removal = compared(PLAIN, DECOMMISSION, REMOVE)
    return [
        Bar.of("5. with state, first work of a new machine: longest - median gap, s", first, FIRST_WORK, at_most=True),
        Bar.of(f"5. {cut}: longest gap, penstock / plain", slower, 1, at_most=True),
        Bar.of("set instances: longest gap / median gap", worst(lambda one: one.ratio, UP, DOWN), 1.5, at_most=True),
        Bar.of("move 2 of 8 tasks: (longest gap - load of state) / median gap", moves, 2, at_most=True),
        Bar.of("add a machine: longest gap / median gap", worst(lambda one: one.ratio, ADD), 1.5, at_most=True),
        Bar.of("remove a machine with tasks: longest / median gap", worst(lambda one: one.ratio, REMOVE), 2, True),
        Bar.of(f"removal: longest gap of plain decommission / Penstock's{zero}", removal, 3, at_most=False),
    ]
