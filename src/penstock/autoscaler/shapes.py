"""Plans, proposals and outcomes as JSON, in the one shape that all interfaces use."""

from __future__ import annotations

import dataclasses
from typing import Any

from penstock.autoscaler.proposals import Proposal
from penstock.clock import shown
from penstock.cluster.model import Machine, Placement
from penstock.plans.enacting import Interruption, Outcome
from penstock.plans.migration import Barrier, Migration
from penstock.plans.migration_log import Migrated
from penstock.plans.plan import Action, AddMachine, MoveTask, Plan, RemoveMachine, SetInstances, SetTasks


def plan_as_json(plan: Plan) -> dict[str, Any]:
    return {"actions": [action_as_json(action) for action in plan.actions], "reason": plan.reason}


def action_as_json(action: Action) -> dict[str, Any]:
    match action:
        case SetInstances(operator, slots):
            placed = {slot.name: count for slot, count in sorted(slots.items())}
            return {"action": "set instances", "operator": operator, "slots": placed, "text": str(action)}
        case MoveTask(operator, task, slot):
            move = {"action": "move task", "operator": operator, "task": task, "slot": slot.name}
            return {**move, "text": str(action)}
        case SetTasks(operator, tasks):
            return {"action": "set tasks", "operator": operator, "tasks": tasks, "text": str(action)}
        case AddMachine(machine):
            return {"action": "add machine", "machine": machine_as_json(machine), "text": str(action)}
        case RemoveMachine(name):
            return {"action": "remove machine", "machine": {"name": name}, "text": str(action)}


def machine_as_json(machine: Machine) -> dict[str, Any]:
    return {"name": machine.name, "slots": [slot.name for slot in machine.slots]}


def placement_as_json(placement: Placement) -> dict[str, Any]:
    return {
        "instances": {
            operator: {slot.name: count for slot, count in sorted(slots.items())}
            for operator, slots in placement.instances.items()
        },
        "tasks": {operator: [slot.name for slot in slots] for operator, slots in placement.tasks.items()},
    }


def proposal_as_json(proposal: Proposal) -> dict[str, Any]:
    return {
        "plan": plan_as_json(proposal.plan),
        "reasons": list(proposal.reasons),
        "predictions": [dataclasses.asdict(one) for one in proposal.predictions],
        "strategy": proposal.strategy or None,
        "decision": dict(proposal.decision) or None,
        "note": proposal.note,
    }


def outcome_as_json(outcome: Outcome) -> dict[str, Any]:
    return {
        "status": str(outcome.status),
        "reason": outcome.reason,
        "seconds": outcome.seconds,
        "steps": [dataclasses.asdict(step) for step in outcome.steps],
        "moves": [
            {
                "operator": move.operator,
                "task": move.task,
                "from": move.origin.name,
                "to": move.slot.name,
                "state_bytes": move.state_bytes,
                "load_seconds": move.load_seconds,
                "interruption": _interruption(move.interruption),
            }
            for move in outcome.placed.moves
        ],
        "interruptions": [_interruption(one) for one in outcome.placed.interruptions],
        "migrations": [migration_as_json(one) for one in outcome.placed.migrations],
    }


def migrated_as_json(change: Migrated) -> dict[str, Any]:
    return {
        "id": change.id,
        "time": shown(min(one.asked_at for one in change.migrations)),
        "change": change.change,
        "reason": change.reason,
        "operators": [migration_as_json(one) for one in change.migrations],
    }


def migration_as_json(one: Migration) -> dict[str, Any]:
    return {
        "operator": one.operator,
        "tasks": list(one.tasks),
        "tasks_of_operator": one.tasks_of_operator,
        "moved_bytes": one.moved_bytes,
        "state_bytes": one.state_bytes,
        "share": one.share,
        "asked_at": shown(one.asked_at),
        "pause_seconds": one.pause_seconds,
        "save_seconds": one.save_seconds,
        "load_seconds": one.load_seconds,
        "resume_seconds": one.resume_seconds,
        "first_barrier": _barrier(one.barriers.first),
        "second_barrier": _barrier(one.barriers.second),
        "own": None if one.own is None else dataclasses.asdict(one.own),
        "others": [dataclasses.asdict(other) for other in one.others],
    }


def _barrier(one: Barrier | None) -> dict[str, Any] | None:
    return None if one is None else {"batch": one.batch, "time": shown(one.at)}


def _interruption(one: Interruption) -> dict[str, Any]:
    return dataclasses.asdict(one)
