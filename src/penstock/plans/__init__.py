"""Plans: what is to change about a running topology, made by name, checked as a whole and carried out step by step.

A plan for each thing that a person may ask for is a function here. A plan may also be put together from actions.
"""

from penstock.plans.plan import Action, AddMachine, MoveTask, Plan, RemoveMachine, SetInstances, SetTasks
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
    "Plan",
    "RemoveMachine",
    "SetInstances",
    "SetTasks",
    "add_machines",
    "move_tasks",
    "remove_machines",
    "set_instances",
    "set_tasks",
]
