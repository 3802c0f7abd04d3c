"""The one place outside the engine that starts the engine. All other code gets a `RunningTopology`.

Spark is loaded when a topology is started, and not before.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager

from penstock.cluster.choice import ClusterChoice
from penstock.running import RunningTopology
from penstock.settings import Settings
from penstock.topology.definition import TopologyDefinition


def _silently(_: str) -> None:
    """Used where nobody shows the progress of the start."""


def quiet_java() -> None:
    """Keep what only developers of Spark's Java gateway want to know out of this process's log."""
    from penstock.engine.spark.java_log import quiet

    quiet()


@contextmanager
def started(
    definition: TopologyDefinition,
    choice: ClusterChoice,
    settings: Settings,
    state: str | None = None,
    *,
    python_path: Sequence[str] = (),
    spark_conf: Mapping[str, str] | None = None,
    tell: Callable[[str], None] = _silently,
    forget: Collection[str] = (),
) -> Iterator[RunningTopology]:
    """A topology that runs on Spark until the block is left: see `penstock.engine.launching.launch`."""
    from penstock.engine.launching import launch

    with launch(
        definition,
        choice,
        settings,
        state,
        python_path=python_path,
        spark_conf=spark_conf,
        tell=tell,
        forget=forget,
    ) as running:
        yield running
