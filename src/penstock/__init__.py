"""Penstock: elastic stream processing on Spark.

    import penstock
    from penstock import Topology, sinks, sources

`PUBLIC` is the public interface; docs/python.md is made from it. A name is loaded when it is used, and Spark only when
something runs.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from penstock.version import VERSION

if TYPE_CHECKING:
    from penstock import aggregates, extending, plans, sinks, sources, state, testing, workloads
    from penstock.api.handle import Handle, run
    from penstock.api.history_request import HistoryRequest
    from penstock.autoscaler.goals import Goal
    from penstock.errors import PenstockError
    from penstock.plans.enacting import Outcome
    from penstock.plans.plan import Plan
    from penstock.running.topology import RunningTopology
    from penstock.settings import Settings
    from penstock.topology.declaration import Topology
    from penstock.topology.output import Output

__all__ = [
    "Goal",
    "Handle",
    "HistoryRequest",
    "Outcome",
    "Output",
    "PenstockError",
    "Plan",
    "RunningTopology",
    "Settings",
    "Topology",
    "aggregates",
    "extending",
    "plans",
    "run",
    "sinks",
    "sources",
    "state",
    "testing",
    "workloads",
]
__version__ = VERSION

#: Name -> the module that has it (or that it is), and what it is for.
PUBLIC = {
    "Goal": ("penstock.autoscaler.goals", "What a topology that scales by itself is to reach: give it to `run`."),
    "Handle": ("penstock.api.handle", "What `run` returns: everything that can be read of a topology and asked of it."),
    "HistoryRequest": ("penstock.api.history_request", "Which metrics over which time: give it to `Handle.history`."),
    "Outcome": ("penstock.plans.enacting", "What became of a plan: its status, its reason, its steps and their times."),
    "Output": (
        "penstock.topology.output",
        "An output of an operator, which another operator names in its `inputs`.",
    ),
    "PenstockError": ("penstock.errors", "Every error that a user can act on: its name, the problem, the next step."),
    "Plan": ("penstock.plans.plan", "What is to change about a running topology, and why."),
    "RunningTopology": ("penstock.running.topology", "The protocol of a topology that runs: `Handle.run` is one."),
    "Settings": ("penstock.settings", "How a topology is run: see settings.md."),
    "Topology": ("penstock.topology.declaration", "A topology as a program declares it: see guide.md."),
    "aggregates": ("penstock.aggregates", "Aggregates for `Topology.aggregate`."),
    "extending": ("penstock.extending", "What policies, guards, mappings, sources and sinks are written with."),
    "plans": ("penstock.plans", "Functions that make plans, and the actions that plans are made of."),
    "run": ("penstock.api.handle", "Start a topology in this process and return its `Handle` at once."),
    "sinks": ("penstock.sinks", "Where rows go: for `Topology.sink`."),
    "sources": ("penstock.sources", "Where rows come from: for `Topology.source`."),
    "state": ("penstock.state", "State of one's own: what the processor of `Topology.stateful` is written with."),
    "testing": (
        "penstock.testing",
        "For tests: `testing.run` runs a topology on given rows, and doubles do without Spark.",
    ),
    "workloads": ("penstock.workloads", "Operators for experiments: they take as long as real work would."),
}


def __getattr__(name: str) -> Any:
    if name not in PUBLIC:
        raise AttributeError(f"module 'penstock' has no attribute {name!r}")
    home = importlib.import_module(PUBLIC[name][0])
    return home if home.__name__ == f"penstock.{name}" else getattr(home, name)
