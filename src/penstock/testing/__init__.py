"""What tests need, Penstock's own and those of its users: a topology run on given rows, and test doubles.

    from penstock import testing

    results = testing.run(topology, {"orders": [{"id": 1, "item": "tea"}]})

docs/testing.md is the guide. What needs the engine is loaded only when it is asked for.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.testing.clock import Clock
    from penstock.testing.local_spark import stop_spark
    from penstock.testing.recording import RecordingEngine
    from penstock.testing.recording_topology import RecordingTopology
    from penstock.testing.stateful_trial import StatefulTrial, stateful
    from penstock.testing.trial import Results, run

__all__ = ["Clock", "RecordingEngine", "RecordingTopology", "Results", "StatefulTrial", "run", "stateful", "stop_spark"]

_HOMES = {
    "Clock": "clock",
    "RecordingEngine": "recording",
    "RecordingTopology": "recording_topology",
    "Results": "trial",
    "StatefulTrial": "stateful_trial",
    "run": "trial",
    "stateful": "stateful_trial",
    "stop_spark": "local_spark",
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(f"penstock.testing.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'penstock.testing' has no attribute {name!r}")
