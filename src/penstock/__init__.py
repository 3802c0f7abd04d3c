"""Penstock: elastic stream processing on Spark.

    from penstock import Topology, sinks, sources

Spark is only imported when something runs.
"""

from penstock import sinks, sources
from penstock.errors import PenstockError
from penstock.settings import Settings
from penstock.topology.declare import Output, Topology

__all__ = ["Output", "PenstockError", "Settings", "Topology", "sinks", "sources"]
__version__ = "0.1.0"
