"""What Py4J writes to the log. This module loads no Spark: it is called before Spark starts."""

from __future__ import annotations

import logging

_FILES = ("py4j/java_gateway.py", "py4j/clientserver.py")


def quiet() -> None:
    """Keep Py4J from logging that a session ends while it is still connected; real failures come as exceptions. Py4J
    writes most of that to a logger of its own, and some to the root. This is for a process of Penstock's own."""
    logging.getLogger("py4j").addHandler(logging.NullHandler())
    logging.getLogger().addFilter(_is_of_somebody_else)


def _is_of_somebody_else(record: logging.LogRecord) -> bool:
    return not record.pathname.endswith(_FILES)
