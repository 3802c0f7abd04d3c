"""What a machine has used so far of what it has: counters that only grow, read where a machine is really one."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class MachineReading:
    """Counters of one machine at one moment. The CPU is that of the operators' work, in all its Python workers."""

    #: In run time.
    at: float
    cpu_seconds: float
    #: For how long work of this machine was held back because the machine had used up its share of a core.
    throttled_seconds: float
    memory_bytes: int
    #: What came in and went out over its link, as its interface counted it.
    received_bytes: int
    sent_bytes: int
    #: What it has.
    cores: float
    memory_limit: int
    link_bytes_per_second: float


@dataclass(frozen=True)
class MachineUse:
    """What a machine used between two readings, as shares of what it has."""

    seconds: float
    cpu_cores: float
    #: Seconds a second in which its work was held back, of all its processes that were.
    throttled: float
    memory_bytes: int
    received_per_second: float
    sent_per_second: float
    cores: float
    memory_limit: int
    link_bytes_per_second: float

    @property
    def cpu(self) -> float:
        """Of its cores."""
        return self.cpu_cores / self.cores

    @property
    def memory(self) -> float:
        return self.memory_bytes / self.memory_limit

    @property
    def link(self) -> float:
        """Of the link, in the direction that is used more."""
        return max(self.received_per_second, self.sent_per_second) / self.link_bytes_per_second

    def as_json(self) -> dict[str, float]:
        return {
            "cpu": self.cpu,
            "memory": self.memory,
            "link": self.link,
            "throttled": self.throttled,
            "cpu_cores": self.cpu_cores,
            "cores": self.cores,
            "memory_bytes": self.memory_bytes,
            "memory_limit": self.memory_limit,
            "received_bytes_per_second": self.received_per_second,
            "sent_bytes_per_second": self.sent_per_second,
            "link_bytes_per_second": self.link_bytes_per_second,
        }


def use_between(earlier: MachineReading, later: MachineReading) -> MachineUse | None:
    """None if no time has passed, or the machine is not the same one any more: its counters began anew."""
    seconds = later.at - earlier.at
    grown = (
        later.cpu_seconds - earlier.cpu_seconds,
        later.throttled_seconds - earlier.throttled_seconds,
        later.received_bytes - earlier.received_bytes,
        later.sent_bytes - earlier.sent_bytes,
    )
    if seconds <= 0 or min(grown) < 0:
        return None
    cpu, throttled, received, sent = (one / seconds for one in grown)
    return MachineUse(
        seconds,
        cpu,
        throttled,
        later.memory_bytes,
        received,
        sent,
        later.cores,
        later.memory_limit,
        later.link_bytes_per_second,
    )
