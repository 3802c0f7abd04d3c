"""Penstock: elastic stream processing on Spark.

    import penstock
    from penstock import Topology, sinks, sources

What is not used is not loaded: Spark only when something runs, and for a command that looks at a running topology
nothing but what it shows.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from penstock.version import VERSION

if TYPE_CHECKING:
    from penstock import aggregates, sinks, sources
    from penstock.api.handle import Handle
    from penstock.errors import PenstockError
    from penstock.settings import Settings
    from penstock.topology.declare import Output, Topology

__all__ = ["Output", "PenstockError", "Settings", "Topology", "aggregates", "run", "sinks", "sources"]
__version__ = VERSION

_HOMES = {
    "Output": "penstock.topology.declare",
    "Topology": "penstock.topology.declare",
    "PenstockError": "penstock.errors",
    "Settings": "penstock.settings",
}


def run(topology: Topology, cluster: str | None = None, **options: Any) -> Handle:
    """Start a topology in this process and return at once, with a handle to read and steer it: see
    `penstock.api.handle.run` for the options."""
    from penstock.api.handle import run as start

    return start(topology, cluster, **options)


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    if name in ("aggregates", "sinks", "sources"):
        return importlib.import_module(f"penstock.{name}")
    raise AttributeError(f"module 'penstock' has no attribute {name!r}")
