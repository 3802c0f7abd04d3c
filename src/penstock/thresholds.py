"""The thresholds of the strategy `threshold`: which values go together (Elastic Stateful Storm, section IV-B)."""

from __future__ import annotations

from penstock.errors import PenstockError


def check_thresholds(out: float, in_: float, gap: float) -> None:
    """Refuse thresholds that let a change call for its opposite: BAD_THRESHOLDS.

    Halving the instances at most doubles what each of them uses. With ScaleOutThr > 2 x ScaleInThr + S, an operator
    that was just scaled in is below the upper threshold by at least the gap S."""
    if not out > 2 * in_ + gap:
        raise PenstockError(
            "BAD_THRESHOLDS",
            f"threshold_out={out:g} must be above 2 x threshold_in + threshold_gap = {2 * in_ + gap:g}.",
            "Otherwise an operator that is scaled in would be scaled out again. Raise threshold_out, or lower one of "
            "the others.",
        )
