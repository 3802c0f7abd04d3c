"""Where progress is shown: a terminal that is redrawn, or lines of text where there is none."""

from __future__ import annotations

import os
import sys
import time
from contextlib import ExitStack
from types import TracebackType
from typing import TextIO

from rich.console import Console
from rich.live import Live
from rich.status import Status

from penstock.cli.display import Display
from penstock.cli.live import live_table, plain_line

#: Seconds between two plain lines. A terminal is redrawn as often as it is asked to.
LINE_SECONDS = 5.0
PLAIN_WIDTH = 120


class Screen:
    """Says what is being done (`tell`), and shows a run while it goes on (`show`)."""

    def tell(self, text: str) -> None:
        raise NotImplementedError

    def show(self, display: Display) -> None:
        raise NotImplementedError

    def wants(self, stopping: str) -> bool:
        """Whether it would show anything now: what is to be shown takes time to find out."""
        return True

    def __enter__(self) -> Screen:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End the drawing, so that other text can be written."""


class Lines(Screen):
    def __init__(self, file: TextIO) -> None:
        self._file = file
        self._next: float | None = None
        self._stopping = ""

    def tell(self, text: str) -> None:
        self._file.write(f"{text}\n")
        self._file.flush()

    def wants(self, stopping: str) -> bool:
        return stopping != self._stopping or self._next is None or time.monotonic() >= self._next

    def show(self, display: Display) -> None:
        if display.stopping and not self._stopping:
            self.tell(display.stopping)
        self._stopping = display.stopping
        now = time.monotonic()
        if self._next is None:
            self._next = now + LINE_SECONDS
        elif now >= self._next:
            self._next += LINE_SECONDS
            self.tell(plain_line(display))


class Terminal(Screen):
    """A spinner with a text, or the live table: one at a time, and gone when what comes next is shown."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._drawn = ExitStack()
        self._status: Status | None = None
        self._live: Live | None = None

    def tell(self, text: str) -> None:
        if self._status is None:
            self._clear()
            self._status = self._drawn.enter_context(self._console.status(text))
        self._status.update(text)

    def show(self, display: Display) -> None:
        table = live_table(display)
        if self._live is None:
            self._clear()
            # Not refreshed by a thread of its own: the table changes only when it is shown anew.
            live = Live(table, console=self._console, auto_refresh=False, transient=True)
            self._live = self._drawn.enter_context(live)
        self._live.update(table, refresh=True)

    def _clear(self) -> None:
        self._drawn.close()
        self._status = self._live = None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._clear()


def open_console() -> Console:
    """Standard output for people. The engine points it to a log while Spark starts, so a terminal gets a line of its
    own that stays."""
    if sys.stdout.isatty():
        return Console(file=os.fdopen(os.dup(sys.stdout.fileno()), "w"), highlight=False, markup=False)
    return Console(highlight=False, markup=False, width=PLAIN_WIDTH)


def open_screen(console: Console, as_json: bool) -> Screen:
    """With --json, standard output is for the one object at the end."""
    if as_json:
        return Lines(sys.stderr)
    return Terminal(console) if console.is_terminal else Lines(sys.stdout)
