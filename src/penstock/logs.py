"""Penstock's log: a problem that is passed over leaves a trace here, in the state folder and never on the terminal.

Everything that users are to know is an event or a named error. The log is for whoever looks for the cause of something
strange: `traced` takes the place of `contextlib.suppress` wherever what is passed over is a problem, and not one of the
expected ends of a call.
"""

from __future__ import annotations

import logging
import logging.handlers
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

#: The logger of the whole package. Programs that want its records elsewhere add a handler of their own.
LOGGER = logging.getLogger("penstock")
#: Without a handler, Python would print warnings to standard error.
LOGGER.addHandler(logging.NullHandler())
FILE = "penstock.log"
#: What may fail may fail again every moment: the log and the one before it are never larger than this.
MOST_BYTES = 4 << 20
_FORMAT = "%(asctime)s %(levelname)s %(threadName)s %(message)s"


@contextmanager
def traced(what: str, *errors: type[BaseException], level: int = logging.WARNING) -> Iterator[None]:
    """Pass over these errors, as `contextlib.suppress` does, and write down what failed, with its traceback."""
    try:
        yield
    except errors as error:
        LOGGER.log(level, "%s: %s: %s", what, type(error).__name__, error, exc_info=True)


def delete_folder(folder: Path) -> None:
    """Delete all that can be deleted of a folder, which need not be there; what is left of it leaves a trace."""
    shutil.rmtree(folder, ignore_errors=True)
    if os.path.lexists(folder):
        LOGGER.warning("%s could not be deleted, or not all of it", folder)


def set_aside(log: Path) -> None:
    """Make room for a new log: the one that is there, if any, gets the name NAME.before.log and takes the place of an
    older one."""
    with suppress(FileNotFoundError):
        log.replace(log.with_name(f"{log.stem}.before{log.suffix}"))


class _QuietFile(logging.handlers.RotatingFileHandler):
    """A log that cannot be written, on a full disk or in a folder that is gone, is nothing to print about."""

    def handleError(self, record: logging.LogRecord) -> None:
        """Python would print a traceback to standard error."""


class LogFile:
    """The log in a folder while it is open, from INFO on; only its owner can read it."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / FILE
        os.close(os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600))
        self._handler = _QuietFile(self.path, maxBytes=MOST_BYTES, backupCount=1, encoding="utf-8", delay=True)
        self._handler.setFormatter(logging.Formatter(_FORMAT))
        self._handler.setLevel(logging.INFO)
        LOGGER.addHandler(self._handler)
        if LOGGER.level == logging.NOTSET:
            LOGGER.setLevel(logging.INFO)

    def close(self) -> None:
        LOGGER.removeHandler(self._handler)
        with suppress(OSError):  # its last lines find no room on a full disk; whoever ends has more to do
            self._handler.close()
