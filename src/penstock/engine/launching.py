"""From a topology, a choice of cluster and settings to a topology that runs on Spark.

    with launch(topology.definition(), ClusterChoice("standalone", machines=2), Settings()) as run:
        run.wait(30)

Leaving the block drains the topology, unless it failed, and ends every process that was started for it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from penstock.cluster.choice import ATTACHED, LOCAL, LOCAL_SLOTS, ClusterChoice
from penstock.engine.spark.host import SparkHost
from penstock.engine.spark.idle_workers import MOST_IDLE, most_idle
from penstock.engine.state.folder import StateFolder
from penstock.engine.topology import SparkTopology
from penstock.settings import Settings
from penstock.topology.definition import TopologyDefinition

Tell = Callable[[str], None]


def _silently(_: str) -> None:
    """Nobody waits to be told."""


@contextmanager
def launch(
    definition: TopologyDefinition,
    choice: ClusterChoice,
    settings: Settings,
    state: str | None = None,
    *,
    python_path: Sequence[str] = (),
    spark_conf: Mapping[str, str] | None = None,
    tell: Tell = _silently,
    forget: Collection[str] = (),
) -> Iterator[SparkTopology]:
    """Start a topology, and end it when the block is left. Without `state`, the topology gets a temporary state folder.
    `tell` is called with what is being started and stopped. `forget` names operators: Penstock gives up what they hold
    of an earlier run on the same state."""
    folder = StateFolder.hold(state)
    try:
        provider = choice.provider(len(definition.operators), settings, Path(folder.sub("cluster")))
        conf = {MOST_IDLE: str(idle_workers(definition, choice, settings)), **(spark_conf or {})}
        host = SparkHost(definition.name, provider, settings, Path(folder.sub("logs")), python_path, conf, tell=tell)
        tell(f"{'connecting to' if choice.kind == ATTACHED else 'starting'} {choice}")
        with host:
            tell(f"starting {len(definition.operators)} queries")
            with SparkTopology(definition, host, folder, settings, forget=forget) as run:
                yield run
            tell("stopping Spark")
    finally:
        folder.release()


def idle_workers(definition: TopologyDefinition, choice: ClusterChoice, settings: Settings) -> int:
    """How many idle Python workers an executor of this cluster keeps for this topology."""
    slots = (choice.slots or LOCAL_SLOTS) if choice.kind == LOCAL else 1
    # Executors that somebody else has started may have too few threads for bundles to stand.
    return most_idle(definition.operators, settings, slots=slots, may_stand=choice.kind != ATTACHED)
