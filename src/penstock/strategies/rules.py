"""The rules of scaling decisions that a user may set; the defaults are those of the papers."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.errors import PenstockError
from penstock.settings import Settings


@dataclass(frozen=True)
class Rules:
    #: CongestionRate (Stela, section II-C): congested above this ratio of input to processing.
    alpha: float = 1.2
    #: The most instances, of all operators together, on one slot; None is no bound.
    slot_capacity: int | None = None
    #: The seed with which Storm's default draws the machines that it removes: the same seed draws the same machines.
    seed: int = 0
    #: Alpha for `stela_capacity`, which compares the input with the capacity of an operator, so it needs no margin.
    capacity_alpha: float = 1.05

    @staticmethod
    def of(settings: Settings, alpha: float | None = None) -> Rules:
        return Rules(
            settings.stela_alpha if alpha is None else alpha,
            settings.slot_instances,
            capacity_alpha=settings.stela_capacity_alpha,
        )

    def __post_init__(self) -> None:
        for name in ("alpha", "capacity_alpha"):
            if not (value := getattr(self, name)) > 0:
                raise PenstockError("BAD_SETTING", f"{name}={value!r} must be above 0.", "The papers use 1.2.")
        if self.slot_capacity is not None and self.slot_capacity < 1:
            raise PenstockError(
                "BAD_SETTING",
                f"slot_capacity={self.slot_capacity!r} must be at least 1.",
                "Leave it out if a slot may have any number of instances.",
            )


PAPER = Rules()
