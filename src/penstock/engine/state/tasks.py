"""What the catalog says about tasks: how many a keyed operator has after it was repartitioned, and which repartition is
under way."""

from __future__ import annotations

import json
from collections.abc import Collection

from penstock.channels.catalog import Catalog
from penstock.cluster.model import Placement
from penstock.strategies.mapping.tasks import deal_tasks

_TASKS = "tasks"
_UNDER_WAY = "repartition"


def dealt_anew(placement: Placement, operator: str, tasks: int) -> Placement:
    """The placement with so many tasks of an operator, dealt to the slots where its instances are. No mapping is asked,
    since the instances stay."""
    return Placement(placement.instances, {**placement.tasks, operator: deal_tasks(tasks, placement.of(operator))})


def recorded_tasks(catalog: Catalog) -> dict[str, int]:
    """The tasks of operators whose state was repartitioned, by name."""
    return dict(json.loads(catalog.get_meta(_TASKS) or "{}"))


def record_tasks(catalog: Catalog, operator: str, tasks: int) -> None:
    """Record that a repartition is done."""
    catalog.set_meta(_TASKS, json.dumps(recorded_tasks(catalog) | {operator: tasks}))
    catalog.set_meta(_UNDER_WAY, "")


def begin(catalog: Catalog, operator: str, tasks: int) -> None:
    """Record that a repartition is under way."""
    catalog.set_meta(_UNDER_WAY, json.dumps({"operator": operator, "tasks": tasks}))


def give_up(catalog: Catalog) -> None:
    """Record that no repartition is under way any more: Spark had not begun it."""
    catalog.set_meta(_UNDER_WAY, "")


def under_way(catalog: Catalog) -> tuple[str, int] | None:
    """The repartition that was going on when the driver ended: operator and tasks."""
    text = catalog.get_meta(_UNDER_WAY)
    fields = json.loads(text) if text else None
    return (fields["operator"], fields["tasks"]) if fields else None


def forgotten(catalog: Catalog, operators: Collection[str]) -> dict[str, str]:
    """What is to be recorded, by key, when these operators begin anew or are gone."""
    tasks, unfinished = recorded_tasks(catalog), under_way(catalog)
    found = {_TASKS: json.dumps({name: count for name, count in tasks.items() if name not in operators})}
    return found | ({_UNDER_WAY: ""} if unfinished is not None and unfinished[0] in operators else {})
