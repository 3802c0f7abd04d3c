"""A run that can be steered by whoever finds its control interface."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from penstock.control.server import served
from penstock.control.steering import Steering
from penstock.engine.runtime import Run


@contextmanager
def steered(run: Run, cluster_kind: str, request_stop: Callable[[bool], object]) -> Iterator[Steering]:
    """Until the block is left; what is being changed then is rolled back first."""
    steering = Steering(run, cluster_kind, request_stop)
    try:
        if run.settings.control == "on":
            with served(steering, run.definition.name, str(run.state.path), run.settings):
                yield steering
        else:
            yield steering
    finally:
        steering.close()
