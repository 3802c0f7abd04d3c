"""The door to a topology that runs: what everything outside the engine may ask of it, and the values of the answers.

Nothing here imports Spark or an engine. The engine on Spark implements the door, and so does the double in
`penstock.testing`; tests/contract/test_running_topology.py holds both to it.
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
