"""The bodies of actions over HTTP. They are checked before anything is done, and the OpenAPI description is made from
them."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

from penstock.monitor.history import WITH_HISTORY
from penstock.plugins import POLICIES, names, require

#: More than any cluster has: a larger number is a typing mistake.
MOST_MACHINES = 1000
MOST_INSTANCES = 100_000
#: Each task is a state store with files of its own, so more of them only cost time.
MOST_TASKS = 10_000


def _whole(value: object) -> object:
    """JSON has one kind of number, so 2.0 is accepted as the whole number 2."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


#: Must be last in a type: pydantic does not describe bounds that follow it.
WHOLE = BeforeValidator(_whole)
Name = Annotated[str, Field(min_length=1, max_length=200)]


def _known(name: str | None) -> str | None:
    """Refuse an unknown strategy at once, also while another operation is under way."""
    if name is not None:
        require(POLICIES, name)
    return name


#: An unknown strategy has an error of its own.
Strategy = Annotated[
    str | None,
    Field(
        description="A scaling strategy; by default the setting `strategy`.",
        json_schema_extra={"enum": [*names(POLICIES), None]},
    ),
    AfterValidator(_known),
]
#: The description lists the metrics; `HistoryQuery` checks them.
Metric = Annotated[str, Field(json_schema_extra={"enum": list(WITH_HISTORY)})]
DryRun = Annotated[bool, Field(description="Return the plan, and change nothing.")]


class Request(BaseModel):
    """A body with a field that Penstock does not know is refused: its sender would not notice the mistake."""

    model_config = ConfigDict(extra="forbid", strict=True)


class ScaleOut(Request):
    machines: Annotated[int, Field(ge=1, le=MOST_MACHINES), WHOLE] = 1
    strategy: Strategy = None
    dry_run: DryRun = False


class ScaleInByNumber(Request):
    machines: Annotated[
        int, Field(ge=1, le=MOST_MACHINES, description="How many machines; the strategy chooses which."), WHOLE
    ] = 1
    strategy: Strategy = None
    dry_run: DryRun = False


class ScaleInByName(Request):
    names: Annotated[
        list[Name], Field(min_length=1, max_length=MOST_MACHINES, description="The names of the machines.")
    ]
    dry_run: DryRun = False


class SetNumber(Request):
    operator: Name
    count: Annotated[int, Field(ge=1, le=MOST_INSTANCES, description="How many instances in all."), WHOLE]
    dry_run: DryRun = False


class SetBySlot(Request):
    operator: Name
    slots: Annotated[
        dict[Name, Annotated[int, Field(ge=1, le=MOST_INSTANCES), WHOLE]],
        Field(
            min_length=1,
            max_length=MOST_INSTANCES,
            description="How many instances on which slot; no other slot has any.",
        ),
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
        int, Field(ge=1, le=MOST_TASKS, description="How many tasks in all, each with its share of the keys."), WHOLE
    ]
    dry_run: DryRun = False


class Stop(Request):
    drain: Annotated[bool, Field(description="First let all rows that the sources have emitted reach the sinks.")] = (
        True
    )
    dry_run: DryRun = False


class Pause(Request):
    """The body of pause and of resume."""

    dry_run: DryRun = False


class Problem(BaseModel):
    """Every error has this shape, as with --json on the command line."""

    error: str
    message: str
    hint: str
    where: dict[str, str | int] | None = None
