"""What may be asked over HTTP: the bodies of actions, checked before anything is done. The OpenAPI description is made
from these."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, model_validator

#: More than any cluster has: what is above it is a slip of the finger.
MOST_MACHINES = 1000
MOST_INSTANCES = 100_000
Name = Annotated[str, Field(min_length=1, max_length=200)]
Strategy = Annotated[
    str | None, Field(max_length=100, description="A scaling strategy by name; by default the setting `strategy`.")
]
DryRun = Annotated[bool, Field(description="Return the plan, and change nothing.")]


class Request(BaseModel):
    """No body may have a field that nobody reads: it would be a mistake that nobody notices."""

    model_config = ConfigDict(extra="forbid", strict=True)


class ScaleOut(Request):
    machines: Annotated[int, Field(ge=1, le=MOST_MACHINES)] = 1
    strategy: Strategy = None
    dry_run: DryRun = False


class ScaleIn(Request):
    machines: Annotated[int | None, Field(ge=1, le=MOST_MACHINES, description="How many; the strategy chooses.")] = None
    names: Annotated[list[Name], Field(max_length=MOST_MACHINES, description="Or which ones.")] = []
    strategy: Strategy = None
    dry_run: DryRun = False

    @model_validator(mode="after")
    def _one_of_them(self) -> ScaleIn:
        if self.machines is not None and self.names:
            raise ValueError("give either machines or names")
        return self


class SetInstances(Request):
    operator: Name
    count: Annotated[int | None, Field(ge=1, le=MOST_INSTANCES, description="How many in all.")] = None
    slots: Annotated[
        dict[Name, Annotated[int, Field(ge=1, le=MOST_INSTANCES)]] | None,
        Field(max_length=MOST_INSTANCES, description="Or how many on which slot, and none elsewhere."),
    ] = None
    dry_run: DryRun = False

    @model_validator(mode="after")
    def _one_of_them(self) -> SetInstances:
        if (self.count is None) == (self.slots is None):
            raise ValueError("give either count or slots")
        return self


class MoveTask(Request):
    operator: Name
    task: Annotated[int, Field(ge=0, le=MOST_INSTANCES)]
    slot: Name
    dry_run: DryRun = False


class Stop(Request):
    drain: Annotated[bool, Field(description="First let everything that was emitted reach the sinks.")] = True
    dry_run: DryRun = False


class Pause(Request):
    """Pause and resume."""

    dry_run: DryRun = False


class Problem(BaseModel):
    """Every mistake has this shape, as in the command line's --json."""

    error: str
    message: str
    hint: str
    where: dict[str, str | int] | None = None
