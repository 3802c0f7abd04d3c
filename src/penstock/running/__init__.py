"""The protocol of a running topology: what code outside the engine may ask of it, and the values of the answers.

Nothing here imports Spark or an engine. The engine on Spark implements the protocol, and so does the double
in `penstock.testing`; tests/contract/test_running_topology.py tests both.
"""

from penstock.running.changes import Changes
from penstock.running.placements import BundlePlace, Observed, Placements, Places, TaskPlace
from penstock.running.topology import RunningTopology, StateLocation

__all__ = [
    "BundlePlace",
    "Changes",
    "Observed",
    "Placements",
    "Places",
    "RunningTopology",
    "StateLocation",
    "TaskPlace",
]
