"""Which operators get more than they can handle (Stela, section II-C; the thesis' algorithm 1)."""

from __future__ import annotations

from penstock.strategies.load import Load, ratio
from penstock.strategies.rules import PAPER, Rules


def ratios(load: Load) -> tuple[float, ...]:
    pairs = zip(load.inputs, load.operators, strict=True)
    return tuple(ratio(rate, operator.processing) for rate, operator in pairs)


def congested(load: Load, rules: Rules = PAPER) -> tuple[bool, ...]:
    """Congested when R_input / R_execute > alpha; an operator that just keeps up is not."""
    return tuple(value > rules.alpha for value in ratios(load))
