"""What the declaration of an operator returns: one of its outputs, which other operators name in their `inputs`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from penstock.topology.definition import DEAD_LETTER, MAIN_OUTPUT, Broadcast, ByKey, Grouping, Shuffle


@dataclass(frozen=True)
class Output:
    """One output of an operator. Another operator names it in its `inputs`."""

    operator: str
    name: str = MAIN_OUTPUT
    grouping: Grouping = field(default_factory=Shuffle)
    #: Without this, Python would take an object with __getitem__ for an endless sequence: `[*lines]`.
    __iter__: ClassVar[None] = None

    def __getitem__(self, output: str) -> Output:
        """Another output of the same operator: `parsed["late"]`."""
        return Output(self.operator, output, self.grouping)

    @property
    def dead_letter(self) -> Output:
        """The rows that the operator could not handle; it must be declared with on_error="dead_letter"."""
        return self[DEAD_LETTER]

    def by_key(self, *columns: str) -> Output:
        """The same rows, with all rows of one key sent to one instance."""
        return Output(self.operator, self.name, ByKey(columns))

    def broadcast(self) -> Output:
        """The same rows, each sent to every instance."""
        return Output(self.operator, self.name, Broadcast())


#: An input is an output of an operator, or the name of an operator (which may be declared further down).
Input = Output | str
