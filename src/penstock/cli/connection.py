"""The connection of a command to a running topology: which topology is meant, and a client of its interface."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from penstock.api.discovery import Phase, Running, find
from penstock.errors import PenstockError

if TYPE_CHECKING:
    from penstock.api.client import Client

TOPOLOGY = click.option(
    "-t", "--topology", "name", metavar="NAME", help="Which topology is meant, if several run: NAME or NAME:PID."
)


@contextmanager
def connected(name: str | None) -> Iterator[Client]:
    """A client of the topology that the user means. A topology that is being started or is ending is refused."""
    running = find(name)
    if running.phase is Phase.STARTING:
        raise PenstockError(
            "STARTING",
            f"{running.label} is being started.",
            "Repeat the command when the topology runs; `penstock stop` stops it now.",
        )
    if running.phase is Phase.ENDING:
        raise PenstockError("STOPPING", f"{running.label} is ending.", "Start it again to steer it.")
    with client_of(running) as client:
        yield client


def client_of(running: Running) -> Client:
    from penstock.api.client import Client

    return Client(running)
