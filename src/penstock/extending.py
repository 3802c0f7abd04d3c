"""What the author of an extension needs to write a policy, a guard, a mapping, a source or a sink.

    from penstock.extending import Answer, Nothing, View

`EXTENDING` is the list; docs/python.md is made from it, and CONTRIBUTING.md has a recipe for each kind of extension. A
name is loaded when it is used, so a source or a sink, which also runs on executors, loads nothing of the autoscaler.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping as ReadOnly
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.autoscaler.autonomy import Autonomous
    from penstock.autoscaler.balance import Balance
    from penstock.autoscaler.goals import Grow, Shrink
    from penstock.autoscaler.guards import Guard
    from penstock.autoscaler.policy import Coming, Decided, Fate, Policy, View, view_of
    from penstock.autoscaler.proposals import Answer, Nothing, Prediction, Proposal, machines_fewer, machines_more
    from penstock.autoscaler.records import Figures, Record, Verdict
    from penstock.cluster.model import Cluster, ComingMachines, Machine, Placement, Slot
    from penstock.kinds import (
        BadRow,
        BatchWriter,
        FileWriter,
        Notes,
        Offset,
        Offsets,
        Range,
        SinkKind,
        SinkPlace,
        SourceKind,
        SourcePlace,
        Unit,
    )
    from penstock.monitor.snapshot import OperatorSnapshot, SlotSnapshot, Snapshot, StreamSnapshot
    from penstock.strategies.load import Load, OperatorLoad, StreamLoad
    from penstock.strategies.mapping import Mapping, NoRoom, Wanted
    from penstock.strategies.mapping.tasks import deal_tasks, follow_instances
    from penstock.topology.definition import Keyed, Map, Operator, Sink, Source, Stream, TopologyDefinition

__all__ = [
    "Answer",
    "Autonomous",
    "BadRow",
    "Balance",
    "BatchWriter",
    "Cluster",
    "Coming",
    "ComingMachines",
    "Decided",
    "Fate",
    "Figures",
    "FileWriter",
    "Grow",
    "Guard",
    "Keyed",
    "Load",
    "Machine",
    "Map",
    "Mapping",
    "NoRoom",
    "Notes",
    "Nothing",
    "Offset",
    "Offsets",
    "Operator",
    "OperatorLoad",
    "OperatorSnapshot",
    "Placement",
    "Policy",
    "Prediction",
    "Proposal",
    "Range",
    "Record",
    "Shrink",
    "Sink",
    "SinkKind",
    "SinkPlace",
    "Slot",
    "SlotSnapshot",
    "Snapshot",
    "Source",
    "SourceKind",
    "SourcePlace",
    "Stream",
    "StreamLoad",
    "StreamSnapshot",
    "TopologyDefinition",
    "Unit",
    "Verdict",
    "View",
    "Wanted",
    "deal_tasks",
    "follow_instances",
    "machines_fewer",
    "machines_more",
    "view_of",
]

_GOALS = "penstock.autoscaler.goals"
_GUARDS = "penstock.autoscaler.guards"
_POLICY = "penstock.autoscaler.policy"
_PROPOSALS = "penstock.autoscaler.proposals"
_RECORDS = "penstock.autoscaler.records"
_AUTONOMY = "penstock.autoscaler.autonomy"
_BALANCE = "penstock.autoscaler.balance"
_MODEL = "penstock.cluster.model"
_KINDS = "penstock.kinds"
_SNAPSHOT = "penstock.monitor.snapshot"
_LOAD = "penstock.strategies.load"
_MAPPING = "penstock.strategies.mapping"
_TASKS = "penstock.strategies.mapping.tasks"
_DEFINITION = "penstock.topology.definition"

#: What is written -> name -> the module that has it, and what it is for.
EXTENDING: ReadOnly[str, ReadOnly[str, tuple[str, str]]] = {
    "A policy": {
        "Policy": (_POLICY, "The protocol of a policy: a class with `decide(view)`."),
        "Autonomous": (_AUTONOMY, "The protocol of a policy that needs no goal: it names its rounds and its guards."),
        "View": (_POLICY, "What a policy and its guards look at, taken at one moment."),
        "view_of": (_POLICY, "Makes a view of a snapshot, for the test of a policy."),
        "Answer": (_PROPOSALS, "What a policy answers: `Nothing` or a `Proposal`."),
        "Nothing": (_PROPOSALS, "The answer that nothing is to change, with the reason."),
        "Proposal": (_PROPOSALS, "The answer of a policy that proposes a plan, with reasons and predictions."),
        "Prediction": (_PROPOSALS, "What a proposal expects of a metric after its plan was carried out."),
        "Decided": (_POLICY, "An earlier proposal of the policy, and what became of it: `View.history`."),
        "Fate": (_POLICY, "What became of a proposal: waiting, running, done, rolled back, refused, ..."),
        "Balance": (_BALANCE, "What the sinks measured, what is offered, what waits: `View.balance`."),
        "Record": (_RECORDS, "What a decision expected, what was measured, and the verdict: `Decided.record`."),
        "Figures": (_RECORDS, "What was measured before or after a decision."),
        "Verdict": (_RECORDS, "What a decision turned out to be: as expected, less, none, harmful, ..."),
        "Coming": (_POLICY, "The machines that could come, and the cluster that they would come to."),
        "ComingMachines": (_MODEL, "The machines that could come at the moment of the snapshot: `Snapshot.coming`."),
        "Grow": (_GOALS, "A request for more machines: `View.request`."),
        "Shrink": (_GOALS, "A request for fewer machines: `View.request`."),
        "Snapshot": (_SNAPSHOT, "Rates, utilisation, backlog, traffic and placement over one window."),
        "OperatorSnapshot": (_SNAPSHOT, "What was measured of one operator."),
        "SlotSnapshot": (_SNAPSHOT, "What was measured of one slot, or of one machine."),
        "StreamSnapshot": (_SNAPSHOT, "What was measured of one stream."),
        "Load": (_LOAD, "The graph with its measured rates."),
        "OperatorLoad": (_LOAD, "The rates of one operator."),
        "StreamLoad": (_LOAD, "The rate of one stream."),
    },
    "A guard": {
        "Guard": (
            _GUARDS,
            "A function of a proposal and a view: its answer is a reason against it, '' for none, or another proposal.",
        ),
        "machines_more": (_PROPOSALS, "How many machines a plan adds."),
        "machines_fewer": (_PROPOSALS, "How many machines a plan removes."),
    },
    "A mapping": {
        "Mapping": (_MAPPING, "The protocol of a mapping: a class with `place(wanted)`."),
        "Wanted": (_MAPPING, "What a mapping is to place, and the slots that it may use."),
        "NoRoom": (_MAPPING, "The answer that the slots do not take what is wanted."),
        "deal_tasks": (_TASKS, "Deals the tasks of a keyed operator to the slots of its instances."),
        "follow_instances": (
            _TASKS,
            "Moves as few tasks as possible, the smallest of them, to where the instances of their operator are now.",
        ),
    },
    "A source": {
        "SourceKind": (_KINDS, "The base class of all kinds of sources."),
        "SourcePlace": (_KINDS, "What the offsets of a source need to know of its topology."),
        "Offsets": (_KINDS, "How far a source is read, on the driver."),
        "Offset": (_KINDS, "One position in a source: a value of JSON."),
        "Range": (_KINDS, "The part of a source that one instance reads in one go."),
        "Unit": (_KINDS, "What the size of a range counts: rows or bytes."),
        "Notes": (_KINDS, "Values that a source keeps in the catalog of its topology."),
        "BadRow": (_KINDS, "A function that takes a row that cannot be read, and what is wrong with it."),
    },
    "A sink": {
        "SinkKind": (_KINDS, "The base class of all kinds of sinks."),
        "SinkPlace": (_KINDS, "What the writer of a sink needs to know of its topology."),
        "FileWriter": (_KINDS, "Writes files that appear when their batch is published."),
        "BatchWriter": (_KINDS, "Gets every micro-batch as a DataFrame, on the driver."),
    },
    "Where everything runs": {
        "Cluster": (_MODEL, "The machines of a topology."),
        "Machine": (_MODEL, "A host with slots."),
        "Slot": (_MODEL, "A process that runs bundles."),
        "Placement": (_MODEL, "How many instances of each operator are on each slot, and on which slot each task is."),
    },
    "What was declared": {
        "TopologyDefinition": (_DEFINITION, "A topology as it was declared and checked: operators and streams."),
        "Operator": (_DEFINITION, "A source, a map, a keyed operator or a sink."),
        "Source": (_DEFINITION, "An operator that reads from outside."),
        "Map": (_DEFINITION, "A stateless operator."),
        "Keyed": (_DEFINITION, "A stateful operator, with its key and its number of tasks."),
        "Sink": (_DEFINITION, "An operator that writes to the outside."),
        "Stream": (_DEFINITION, "An edge of the graph, with its grouping."),
    },
}
_HOMES = {name: home for names in EXTENDING.values() for name, (home, _) in names.items()}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'penstock.extending' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)
