"""How large the machines of a lab are, in a user's words: cores, memory, link, latency."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from penstock.errors import PenstockError

DEFAULT_CORES, DEFAULT_MEMORY, DEFAULT_LINK = 0.25, "600m", "100mbit"
LEAST_CORES = 0.01
#: A Python worker with pyarrow and PySpark loaded needs about this much before it has a row.
LEAST_MEMORY_MB = 128
_MEMORY = {"m": 1, "g": 1024}
_LINK = {"kbit": 1e3, "mbit": 1e6, "gbit": 1e9}
_LATENCY = {"us": 1e-6, "ms": 1e-3, "s": 1.0}


@dataclass(frozen=True)
class MachineSize:
    """What one machine has. The operators' work, in all its Python workers together, gets these cores and this memory;
    Spark's own JVMs do not count, so that many machines fit on one computer."""

    cores: float = DEFAULT_CORES
    memory_mb: int = 600
    link_bits_per_second: float = 100e6

    def __post_init__(self) -> None:
        if not (math.isfinite(self.cores) and self.cores >= LEAST_CORES):
            raise _bad(f"a machine cannot have {self.cores:g} cores.", f"Give at least {LEAST_CORES:g}.")
        if self.memory_mb < LEAST_MEMORY_MB:
            raise _bad(
                f"a machine cannot have {self.memory_mb} MB of memory.",
                f"Give at least {LEAST_MEMORY_MB}m: a Python worker needs that much without any row.",
            )
        if not 1e5 <= self.link_bits_per_second <= 1e11:
            raise _bad(
                f"a link cannot carry {self.link_bits_per_second:g} bit/s.", "Give 100kbit to 100gbit: --link 100mbit."
            )

    def __str__(self) -> str:
        return f"{self.cores:g} cores, {self.memory_mb} MB, {self.link_bits_per_second / 1e6:g} Mbit/s"


@dataclass(frozen=True)
class LabShape:
    """The sizes of all machines: the first ones have those of the list, the others are all alike."""

    size: MachineSize = MachineSize()
    sizes: tuple[MachineSize, ...] = ()
    #: Seconds from a machine to another, one way.
    latency: float = 0.0

    def of(self, index: int) -> MachineSize:
        """The size of the machine number `index`, counted from 0."""
        return self.sizes[index] if index < len(self.sizes) else self.size

    @staticmethod
    def read(
        cores: float | None = None,
        memory: str | None = None,
        link: str | None = None,
        latency: str | None = None,
        sizes: str | None = None,
    ) -> LabShape:
        """From the words of a command line or of a program."""
        size = MachineSize(
            DEFAULT_CORES if cores is None else _number_of_cores(cores),
            _megabytes(DEFAULT_MEMORY if memory is None else memory),
            _bits(DEFAULT_LINK if link is None else link),
        )
        return LabShape(size, _sizes(sizes, size), _seconds("none" if latency is None else latency))


def _sizes(text: str | None, usual: MachineSize) -> tuple[MachineSize, ...]:
    """`CORES[/MEMORY[/LINK]]`, separated by commas; what is left out is as usual."""
    if text is not None and not isinstance(text, str):
        raise _bad(f"the sizes of machines are {text!r}.", "Write them as one text: 0.5/600m/100mbit,0.25.")
    return tuple(_size(one.strip().split("/"), usual) for one in text.split(",")) if text else ()


def _size(words: Sequence[str], usual: MachineSize) -> MachineSize:
    readers: tuple[tuple[str, Callable[[str], float | int]], ...] = (
        ("cores", _number_of_cores),
        ("memory_mb", _megabytes),
        ("link_bits_per_second", _bits),
    )
    if len(words) > len(readers):
        raise _bad(
            f'"{"/".join(words)}" is not the size of a machine.', "Write CORES[/MEMORY[/LINK]]: 0.5/600m/100mbit."
        )
    found = {name: read(word) for (name, read), word in zip(readers, words, strict=False) if word}
    return replace(usual, **found)  # type: ignore[arg-type]  # each reader gives the type of its field


#: Somebody who gives another word may mean the setting of the same name.
_OF_LINKS = "none, or 5ms; the latency that Penstock aims at is a setting: --set latency=0.05"


def _number_of_cores(word: str | float) -> float:
    try:
        return float(word)
    except (TypeError, ValueError):
        raise _bad(f'"{word}" is not a number of cores.', "Write a number: 0.25.") from None


def _megabytes(word: str) -> int:
    return int(_measured(word, _MEMORY, "an amount of memory", "600m or 2g"))


def _bits(word: str) -> float:
    return _measured(word, _LINK, "the rate of a link", "100mbit")


def _seconds(word: str) -> float:
    seconds = 0.0 if word == "none" else _measured(word, _LATENCY, "a latency of a lab's links", _OF_LINKS)
    if seconds > 10:
        raise _bad(f"a latency of {seconds:g} s is too long.", "Give at most 10s.")
    return seconds


def _measured(word: str, units: dict[str, float] | dict[str, int], what: str, example: str) -> float:
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([a-z]+)", str(word).strip().lower())
    if found is None or found[2] not in units:
        raise _bad(f'"{word}" is not {what}.', f"Write {example}.")
    return float(found[1]) * units[found[2]]


def _bad(message: str, hint: str) -> PenstockError:
    return PenstockError("BAD_CLUSTER", message, hint)
