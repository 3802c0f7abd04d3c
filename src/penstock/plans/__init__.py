"""Plans say what is to change about a running topology. A plan is checked as a whole and carried out step by step.

For each change that a person may ask for, a function here makes the plan. A plan may also be put together from
actions; `diff` gives the actions from one placement to another.
"""

from penstock.plans.enacting import Outcome, Status
from penstock.plans.plan import (
    Action,
    AddMachine,
    MoveTask,
    Plan,
    RemoveMachine,
    SetInstances,
    SetTasks,
    Target,
    diff,
)
from penstock.plans.requests import (
    add_machines,
    move_tasks,
    remove_machines,
    set_instances,
    set_tasks,
)

__all__ = [
    "Action",
    "AddMachine",
    "MoveTask",
    "Outcome",
    "Plan",
    "RemoveMachine",
    "SetInstances",
    "SetTasks",
    "Status",
    "Target",
    "add_machines",
    "diff",
    "move_tasks",
    "remove_machines",
    "set_instances",
    "set_tasks",
]
