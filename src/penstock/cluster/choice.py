"""Which cluster a topology is to run on, in a user's words: checked at once, made when it is needed."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from penstock.cluster.attached import AttachedCluster
from penstock.cluster.ground import Loopback
from penstock.cluster.lab.ground import LabGround
from penstock.cluster.lab.sizes import LabShape
from penstock.cluster.local import LocalCluster
from penstock.cluster.provider import Provider, require_at_least_one
from penstock.cluster.standalone import StandaloneCluster
from penstock.errors import PenstockError
from penstock.settings import Settings

LOCAL, STANDALONE, ATTACHED, LAB = KINDS = ("local", "standalone", "attached", "lab")
LOCAL_SLOTS = 2
STANDALONE_MACHINES = 2
STANDALONE_SLOTS = 1
#: Bundles of all operators must be able to run side by side on a slot; a few threads more cost nothing.
LEAST_TASK_THREADS = 4


@dataclass(frozen=True)
class ClusterChoice:
    """A kind of cluster and its size; where a number is None, the kind's default counts."""

    kind: str = LOCAL
    machines: int | None = None
    slots: int | None = None
    master: str | None = None
    #: How large the machines of a lab are.
    lab: LabShape | None = None

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise _bad_cluster(f'there is no kind of cluster "{self.kind}".', f"Choose one of: {', '.join(KINDS)}.")
        given = {"machines": self.machines, "slots": self.slots}
        require_at_least_one(**{what: count for what, count in given.items() if count is not None})
        if self.kind == LOCAL and self.machines is not None:
            raise _bad_cluster("a local cluster is one machine.", "Leave machines out, or add --cluster standalone.")
        if self.kind != LAB and self.lab is not None:
            raise _bad_cluster(
                f"the machines of a {self.kind} cluster have no sizes of their own.",
                "Choose the cluster lab, or leave cores, memory and sizes of machines, link and latency out.",
            )
        if self.kind == ATTACHED and self.master is None:
            raise _bad_cluster("an attached cluster needs its master.", "Give its URL: --master spark://host:7077.")
        if self.kind == ATTACHED and (self.machines is not None or self.slots is not None):
            raise _bad_cluster(
                "machines and slots of an attached cluster are those of its executors.",
                "Leave machines and slots out.",
            )
        if self.kind != ATTACHED and self.master is not None:
            raise _bad_cluster(
                f"a {self.kind} cluster has no master to connect to.",
                f"Leave --cluster {self.kind} out to use that master, or leave the master out.",
            )

    @staticmethod
    def asked(  # noqa: PLR0913 - the options of `penstock run`
        cluster: str | None = None,
        machines: int | None = None,
        slots: int | None = None,
        master: str | None = None,
        *,
        machine_cores: float | None = None,
        machine_memory: str | None = None,
        machine_sizes: str | None = None,
        link: str | None = None,
        latency: str | None = None,
    ) -> ClusterChoice:
        """What a user asks for, on the command line or from a program: the names are those of the options."""
        sizes = (machine_cores, machine_memory, link, latency, machine_sizes)
        lab = LabShape.read(*sizes) if any(size is not None for size in sizes) else None
        return ClusterChoice(cluster or (ATTACHED if master else LOCAL), machines, slots, master, lab)

    def provider(self, operators: int, settings: Settings, work_dir: Path) -> Provider:
        """The cluster itself, not yet started, with room for so many operators on every slot."""
        cores = settings.slot_cores
        threads = 2 * max(LEAST_TASK_THREADS, operators) * cores
        if self.kind == ATTACHED:
            return AttachedCluster(self.master or "", cores)
        if self.kind in (STANDALONE, LAB):
            ground = LabGround(self.lab or LabShape()) if self.kind == LAB else Loopback()
            return StandaloneCluster(
                machines=self.machines or STANDALONE_MACHINES,
                slots=self.slots or STANDALONE_SLOTS,
                cores=cores,
                task_threads_per_slot=threads,
                work_dir=work_dir,
                executor_memory_mb=settings.slot_memory_mb,
                ground=ground,
            )
        slots = self.slots or LOCAL_SLOTS
        return LocalCluster(slots, cores, threads * slots)

    def __str__(self) -> str:
        """The processes that are started, or the master that is connected to, for a user who waits."""
        if self.kind in (STANDALONE, LAB):
            machines = self.machines or STANDALONE_MACHINES
            return f"a master and {machines} worker{'s' if machines > 1 else ''}"
        return f"the master {self.master}" if self.kind == ATTACHED else "one local Spark process"


def _bad_cluster(message: str, hint: str) -> PenstockError:
    return PenstockError("BAD_CLUSTER", message, hint)
