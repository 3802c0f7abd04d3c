"""What may be asked over HTTP: the bodies of actions, checked before anything is done. The OpenAPI description is made
from these."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

from penstock.monitor.history import WITH_HISTORY
from penstock.plugins import POLICIES, names, require

#: More than any cluster has: what is above it is a slip of the finger.
MOST_MACHINES = 1000
MOST_INSTANCES = 100_000
#: Each is a state store with files of its own: thousands of them are no use to anybody.
MOST_TASKS = 10_000


def _whole(value: object) -> object:
    """JSON knows one kind of number: 2.0 is a whole one too."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


#: Comes last in a type: bounds that follow it would not be described.
WHOLE = BeforeValidator(_whole)
Name = Annotated[str, Field(min_length=1, max_length=200)]


def _known(name: str | None) -> str | None:
    """Not left to those who carry it out: they may be busy, and would refuse it only when its turn comes."""
    if name is not None:
        require(POLICIES, name)
    return name


#: An unknown one has an error of its own.
Strategy = Annotated[
    str | None,
    Field(
        description="A scaling strategy; by default the setting `strategy`.",
        json_schema_extra={"enum": [*names(POLICIES), None]},
    ),
    AfterValidator(_known),
]
#: Named in the description, and checked by those who know them.
Metric = Annotated[str, Field(json_schema_extra={"enum": list(WITH_HISTORY)})]
DryRun = Annotated[bool, Field(description="Return the plan, and change nothing.")]


class Request(BaseModel):
    """No body may have a field that nobody reads: it would be a mistake that nobody notices."""

    model_config = ConfigDict(extra="forbid", strict=True)


class ScaleOut(Request):
    machines: Annotated[int, Field(ge=1, le=MOST_MACHINES), WHOLE] = 1
    strategy: Strategy = None
    dry_run: DryRun = False


class ScaleInByNumber(Request):
    machines: Annotated[int, Field(ge=1, le=MOST_MACHINES, description="How many; the strategy chooses."), WHOLE] = 1
    strategy: Strategy = None
    dry_run: DryRun = False


class ScaleInByName(Request):
    names: Annotated[list[Name], Field(min_length=1, max_length=MOST_MACHINES, description="Which ones.")]
    dry_run: DryRun = False


class SetNumber(Request):
    operator: Name
    count: Annotated[int, Field(ge=1, le=MOST_INSTANCES, description="How many in all."), WHOLE]
    dry_run: DryRun = False


class SetBySlot(Request):
    operator: Name
    slots: Annotated[
        dict[Name, Annotated[int, Field(ge=1, le=MOST_INSTANCES), WHOLE]],
        Field(min_length=1, max_length=MOST_INSTANCES, description="How many on which slot, and none elsewhere."),
    ]
    dry_run: DryRun = False


ScaleIn = ScaleInByNumber | ScaleInByName
SetInstances = SetNumber | SetBySlot


class MoveTask(Request):
    operator: Name
    task: Annotated[int, Field(ge=0, le=MOST_INSTANCES), WHOLE]
    slot: Name
    dry_run: DryRun = False


class Repartition(Request):
    operator: Name
    tasks: Annotated[
        int, Field(ge=1, le=MOST_TASKS, description="How many in all, each with its share of keys."), WHOLE
    ]
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
