"""Which operators get more than they can handle (Stela, section II-C; the thesis' algorithm 1)."""

from __future__ import annotations

import math

from penstock.strategies.scaling.load import Load
from penstock.strategies.scaling.rules import PAPER, Rules


def ratio(R_input: float, R_execute: float) -> float:
    """R_input / R_execute. An operator that executes nothing of what it gets is as congested as can be."""
    if R_execute > 0:
        return R_input / R_execute
    return math.inf if R_input > 0 else 0.0


def ratios(load: Load) -> tuple[float, ...]:
    pairs = zip(load.inputs, load.operators, strict=True)
    return tuple(ratio(rate, operator.processing) for rate, operator in pairs)


def congested(load: Load, rules: Rules = PAPER) -> tuple[bool, ...]:
    """Congested when R_input / R_execute > alpha; an operator that just keeps up is not."""
    return tuple(value > rules.alpha for value in ratios(load))
