"""`penstock.run`: starts a topology in this process and returns its handle, to read it and to steer it.

with penstock.run(topology, cluster="standalone", machines=2) as running:
    running.scale_out(machines=1)
    running.wait(60)
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType

from penstock import plugins
from penstock.api.discovery import Entry
from penstock.api.neighbourhood import leases_of, neighbours_of
from penstock.api.reads import Json
from penstock.api.starting import started
from penstock.api.steered_topology import found_from_the_start, open_to_others
from penstock.api.steering import Steering
from penstock.autoscaler.autonomy import check_forgetting, check_goal
from penstock.autoscaler.goals import Goal
from penstock.autoscaler.guards import Guard
from penstock.autoscaler.neighbours import ALONE, Neighbours
from penstock.cluster.choice import ClusterChoice
from penstock.running import Changes, RunningTopology
from penstock.settings import Settings
from penstock.topology.declaration import Topology

POLL = 0.1


class Handle(Steering):
    """A running topology. `stop`, or leaving it as a context manager, ends everything that was started for it."""

    def __init__(self, run: RunningTopology, cluster_kind: str, neighbours: Neighbours = ALONE) -> None:
        super().__init__(run, cluster_kind, self._stop_in_background, neighbours)
        #: The running topology, for reads that the handle has no method for.
        self.run = run
        #: Everything that was started for the topology and ends with it.
        self.started = ExitStack()
        #: The entry under which other processes find the topology; None if the setting `control` is off.
        self.entry: Entry | None = None
        #: Held by a thread that starts, checks or ends the topology.
        self.ending = threading.Lock()
        self._over = threading.Event()
        self._drained = False

    @property
    def changes(self) -> Changes:
        """What carries out plans that a program has made itself. Such a plan does not wait in line with the actions of
        this handle: it is carried out at once, or refused with BUSY. An action whose turn comes meanwhile is refused
        with BUSY too, so do not use both at the same time."""
        return self.run.changes

    def wait(self, seconds: float | None = None) -> bool:
        """Wait until all sources have ended and all rows have reached the sinks, or until the topology was stopped.
        False if `seconds` are over before that. Raises the named error of an operator that fails."""
        deadline = None if seconds is None else time.monotonic() + seconds
        while deadline is None or time.monotonic() < deadline:
            with self.ending:  # a run that is being stopped must not be checked
                if self._over.is_set() or self._finished():
                    return True
            self._over.wait(POLL)
        return False

    def _finished(self) -> bool:
        self.run.check()
        return self.run.finished

    def wait_for(self, operation: Json, seconds: float | None = None) -> Json:
        """Wait for the end of the operation that an action returned, and return the operation as it is then."""
        self.operations.wait(self.operations.get(operation["id"]), seconds)
        return self.operation(operation["id"])

    def end(self, drain: bool = True) -> bool:
        """Stop the topology and wait for its end; True if all rows that the sources emitted have reached the sinks."""
        with self.ending:
            if not self._over.is_set():
                with self.started:  # also if the rollback is interrupted: nobody could end the topology after that
                    self._over.set()
                    self.run.expect_end()  # an operation that is rolled back may wait for the catalog
                    self.close()
                    self._drained = self.run.stop(drain)
                    if self.entry is not None:
                        self.entry.ending(f"{self.run.how_it_ended}.")
        return self._drained

    def _stop_in_background(self, drain: bool) -> None:
        threading.Thread(target=self.end, args=(drain,), name="penstock-stop").start()

    def __enter__(self) -> Handle:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end(drain=error is None)


def run(  # noqa: PLR0913 - the options of the command line
    topology: Topology,
    cluster: str | None = None,
    *,
    machines: int | None = None,
    slots: int | None = None,
    master: str | None = None,
    machine_cores: float | None = None,
    machine_memory: str | None = None,
    machine_sizes: str | None = None,
    link: str | None = None,
    latency: str | None = None,
    settings: Settings | None = None,
    state: str | None = None,
    python_path: Sequence[str] | None = None,
    spark_conf: Mapping[str, str] | None = None,
    goal: Goal | None = None,
    guards: Sequence[Guard] = (),
    forget: Collection[str] = (),
    forget_decisions: bool = False,
) -> Handle:
    """Start a topology and return its handle at once. The arguments have the names and meanings of the options of
    `penstock run`. The functions of the topology find the modules that this program finds, or those in `python_path`.
    With a goal the topology scales by itself, and each of the `guards` may veto a proposal. Penstock deletes what the
    state folder holds of the operators in `forget`. With `forget_decisions`, a topology that scales by itself knows
    nothing of the decisions that it made before the restart."""
    choice = ClusterChoice.asked(
        cluster,
        machines,
        slots,
        master,
        machine_cores=machine_cores,
        machine_memory=machine_memory,
        machine_sizes=machine_sizes,
        link=link,
        latency=latency,
    )
    wanted, definition = settings or Settings(), topology.definition()
    plugins.check_loadable(wanted.strategy, wanted.mapping)
    check_goal(wanted.strategy, goal, wanted)
    if forget_decisions:
        check_forgetting(wanted.strategy, goal)
    with ExitStack() as starting:
        entry = starting.enter_context(found_from_the_start(definition.name, wanted, own_process=False))
        leases = starting.enter_context(leases_of(choice, definition.name, wanted))
        launched = starting.enter_context(
            started(
                definition,
                choice,
                wanted,
                state,
                python_path=_own_folders() if python_path is None else python_path,
                spark_conf=spark_conf,
                forget=forget,
            )
        )
        neighbours = starting.enter_context(neighbours_of(launched, leases))
        handle = Handle(launched, choice.kind, neighbours)
        starting.callback(handle.close)
        handle.entry = entry
        with handle.ending:  # a stop that others ask for from now on waits until everything to end is known
            open_to_others(handle, launched, starting, goal, entry, guards, forget_decisions)
            handle.started = starting.pop_all()
    return handle


def _own_folders() -> list[str]:
    """The folders where Python looks for modules, without those of installed packages."""
    installed = (sys.prefix, sys.base_prefix)
    folders = [str(Path(entry).absolute()) for entry in sys.path if Path(entry).is_dir()]
    return [folder for folder in folders if not folder.startswith(installed)]
