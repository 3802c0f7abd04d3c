"""Penstock: elastic stream processing on Spark.

    import penstock
    from penstock import Topology, sinks, sources

Spark is only imported when something runs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock import sinks, sources
from penstock.errors import PenstockError
from penstock.settings import Settings
from penstock.topology.declare import Output, Topology

if TYPE_CHECKING:
    from penstock.control.handle import Handle

__all__ = ["Output", "PenstockError", "Settings", "Topology", "run", "sinks", "sources"]
__version__ = "0.1.0"


def run(topology: Topology, cluster: str | None = None, **options: Any) -> Handle:
    """Start a topology in this process and return at once, with a handle to read and steer it: see
    `penstock.control.handle.run` for the options."""
    from penstock.control.handle import run as start

    return start(topology, cluster, **options)
