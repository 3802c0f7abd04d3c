"""Where the bundles of one operator are to run in its next micro-batch, and which bundles Spark was asked to run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from penstock.clock import run_time
from penstock.cluster.model import Slot
from penstock.cluster.provider import Executor
from penstock.engine.message.shares import Bundle, Share
from penstock.engine.message.task_shares import task_bundles
from penstock.monitor.report import BundleReport

#: A descriptor for every partition, and the executor that is to run it; None lets Spark choose.
Partitions = list[tuple[bytes, Executor | None]]


@dataclass
class RequestedBundles:
    """The bundles that Spark was asked to run in one micro-batch, in the order of its partitions."""

    #: One list of bundles for every input.
    shares: list[list[Bundle]] = field(default_factory=list)
    #: When it was asked where the bundles are to run.
    at: float = 0.0
    #: Whether the bundles are those of the tasks: bundle n of every input is task n.
    by_task: bool = False

    @property
    def bundles(self) -> list[Bundle]:
        return [bundle for share in self.shares for bundle in share]


class Seats:
    """Where an operator's bundles are to run now. The answer may be another one at every micro-batch."""

    def __init__(
        self,
        bundles: Callable[[], Sequence[Bundle]],
        executor: Callable[[Slot], Executor | None],
        ran_on: Callable[[BundleReport], str] = lambda report: report.slot,
        task_slots: Callable[[], Sequence[Slot]] = tuple,
    ) -> None:
        self._bundles = bundles
        self.executor = executor
        #: The slot on which a bundle ran, where Spark has chosen the slot.
        self.ran_on = ran_on
        #: Of a keyed operator: the slot of each task.
        self._task_slots = task_slots
        self._requested = RequestedBundles()

    def bundles(self) -> Sequence[Bundle]:
        """The bundles as they are placed now. A feed asks once for every micro-batch, before it splits the rows."""
        if not self._requested.shares:
            self._requested.at = run_time()
        return self._bundles()

    def tasks(self, count: int) -> Sequence[Bundle]:
        """A bundle for each of the tasks of a keyed operator, where the task's state is now to be. A feed whose
        partitions are the tasks asks for this, and not for `bundles`."""
        bundles = self.bundles()
        self._requested.by_task = True
        return task_bundles(count, self._task_slots(), bundles)

    def instances(self) -> int:
        return max(sum(bundle.instances for bundle in self._bundles()), 1)

    def partitions(self, shares: Sequence[Share]) -> Partitions:
        self._requested.shares.append([share.bundle for share in shares])
        return [(share.as_descriptor(), self.executor(share.bundle.slot)) for share in shares]

    def take_requested(self) -> RequestedBundles:
        """What Spark was asked for since the last call of this method: the bundles of one micro-batch."""
        requested, self._requested = self._requested, RequestedBundles()
        return requested
