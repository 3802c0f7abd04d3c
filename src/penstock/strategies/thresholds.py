"""The scaling rule of Elastic Stateful Storm (section IV-B): how many instances an operator is to have, by the CPU
utilisation U_e of each of its instances e. Pure.

Scale-out: one more instance for every e with U_e > ScaleOutThr, so at most twice as many. Scale-in, only of operators
that are not scaled out: if U_e < ScaleInThr for all e, half as many, and not fewer than minExec(op).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from penstock.settings import Settings


@dataclass(frozen=True)
class InstanceUse:
    """Instances that were measured together, because they share a slot."""

    instances: int
    #: U_e of each of them; None if it was not measured, which is not 0.
    share: float | None


@dataclass(frozen=True)
class Thresholds:
    #: ScaleOutThr.
    out: float
    #: ScaleInThr.
    in_: float

    @staticmethod
    def of(settings: Settings) -> Thresholds:
        return Thresholds(settings.threshold_out, settings.threshold_in)


def wanted_instances(
    uses: Sequence[InstanceUse], thresholds: Thresholds, least: int = 1, most: int | None = None
) -> int:
    """How many instances the rule wants; as many as there are if it wants no change.

    `least` is minExec(op); `most` is |T(op)|, the number of tasks, because |E(op)| <= |T(op)|. An odd number is halved
    upwards: 2 x ScaleInThr bounds the utilisation afterwards only if at least half of the instances stay."""
    now = sum(use.instances for use in uses)
    overloaded = sum(use.instances for use in uses if use.share is not None and use.share > thresholds.out)
    if overloaded:
        return max(now, now + overloaded if most is None else min(now + overloaded, most))
    if all(use.share is not None and use.share < thresholds.in_ for use in uses):
        return min(now, max((now + 1) // 2, least))
    return now
