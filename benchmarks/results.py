"""What all benchmarks share: the bars, and a results file that says on which commit and machine it was measured."""

from __future__ import annotations

import os
import platform
import statistics
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

RESULTS = Path(__file__).parent / "results"


@dataclass(frozen=True)
class Bar:
    name: str
    figure: float
    bar: float
    at_most: bool
    #: The lowest and the highest value, where the figure is the median of several.
    spread: tuple[float, float] | None = None

    @staticmethod
    def of(name: str, values: Sequence[float], bar: float, at_most: bool) -> Bar:
        """By the median of what was measured, with the spread. What was not measured is not met."""
        if not values:
            return Bar(name, float("nan"), bar, at_most)
        return Bar(name, statistics.median(values), bar, at_most, (min(values), max(values)))

    @property
    def met(self) -> bool:
        return self.figure <= self.bar if self.at_most else self.figure >= self.bar

    def __str__(self) -> str:
        limit = "at most" if self.at_most else "at least"
        spread = f" ({self.spread[0]:.2f} - {self.spread[1]:.2f})" if self.spread else ""
        verdict = "met" if self.met else "missed"
        return f"BAR {self.name}: {self.figure:.2f}{spread}, bar {limit} {self.bar:g}: {verdict}"


def machine() -> str:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") >> 30
    system = f"{platform.system()} {platform.machine()}, Python {platform.python_version()}"
    return f"{os.cpu_count()} cores, {memory} GB, {system}"


def commit() -> str:
    done = subprocess.run(["git", "describe", "--always", "--dirty"], capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"


def named(name: str, is_whole: bool) -> str:
    """A look, shorter than what the bars are for, does not overwrite the results of a whole benchmark."""
    return name if is_whole else f"{name}-look"


def write_results(name: str, lines: Sequence[str], bars: Sequence[Bar], on: str) -> Path:
    RESULTS.mkdir(exist_ok=True)
    file = RESULTS / f"{name}.md"
    head = [
        f"# {name}",
        "",
        f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC, commit {commit()}, {on}",
        "",
        f"Command: `python {' '.join(sys.argv)}`",
        "",
    ]
    file.write_text("\n".join([*head, *lines, *(str(bar) for bar in bars)]) + "\n")
    return file


def finish(bars: Sequence[Bar]) -> int:
    """The last lines of a benchmark: one a bar; the exit code says whether all were met."""
    for bar in bars:
        print(bar, flush=True)
    return 0 if all(bar.met for bar in bars) else 1
