"""What a strategy remembers from one decision to the next, as a value: it is handed in and handed back, so that the
strategy itself stays pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

#: The `machine` of instances that came without a machine.
NO_MACHINE = ""


@dataclass(frozen=True)
class Added:
    """The instances that a decision added, so that they can be taken back."""

    #: The machine that they came with; NO_MACHINE if the machines were there.
    machine: str
    #: By operator; below 0 if the operator gave instances away.
    instances: Mapping[str, int]

    def __post_init__(self) -> None:
        kept = {name: count for name, count in self.instances.items() if count}
        object.__setattr__(self, "instances", MappingProxyType(kept))


@dataclass(frozen=True)
class Memory:
    #: What one instance of an operator was seen to do when it had more rows than it could handle, in rows a second.
    rates: Mapping[str, float] = field(default_factory=dict)
    #: What was added and not yet taken back, the oldest first.
    added: tuple[Added, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "rates", MappingProxyType(dict(self.rates)))

    def knowing(self, rates: Mapping[str, float]) -> Memory:
        return replace(self, rates={**self.rates, **rates})

    def with_added(self, *added: Added) -> Memory:
        # A machine that came without instances is remembered too: it takes none with it when it goes.
        known = (one for one in added if one.instances or one.machine != NO_MACHINE)
        return replace(self, added=(*self.added, *known))

    @property
    def last(self) -> tuple[Added, ...]:
        """What came with the machine that came last, and what was added since then."""
        for place in range(len(self.added) - 1, -1, -1):
            if self.added[place].machine != NO_MACHINE:
                return self.added[place:]
        return self.added

    def without_last(self) -> Memory:
        return replace(self, added=self.added[: len(self.added) - len(self.last)])


EMPTY = Memory()


def merged(added: tuple[Added, ...]) -> dict[str, int]:
    """What these added together, by operator."""
    total: dict[str, int] = {}
    for one in added:
        for name, count in one.instances.items():
            total[name] = total.get(name, 0) + count
    return total
