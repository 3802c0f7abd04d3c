"""The connections over which threads of Java call Python, and their end.

Every thread of Java that has ever called Python has a connection of its own, with a thread and an open file in Python
and another open file in Java. Py4J keeps all of them until the JVM ends, also those of threads that are gone: each
query that is started and stopped would leave one behind. So the last call of a query's thread says that it is the last,
and a while later its connection is closed. Py4J's own cleaner is switched off for connections of threads, because it
cannot know which threads are gone.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from py4j.clientserver import JavaClient
from py4j.java_gateway import JavaObject
from pyspark import SparkContext

#: The last call must have been answered before its connection is closed.
GRACE_SECONDS = 2.0


class CallbackConnections:
    """Of the driver's JVM. Any thread may call it."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        #: When a last call came, and the port at Java's end of its connection; the oldest first.
        self._ended: deque[tuple[float, int]] = deque()

    def this_call_is_the_last(self) -> None:
        """The thread of Java that has called is about to end."""
        client = getattr(SparkContext._gateway, "_gateway_client", None)
        # If the user has set PYSPARK_PIN_THREAD=false, threads have no connections of their own.
        connection = client.get_thread_connection() if isinstance(client, JavaClient) else None
        # A call that came as part of an answer to Python came over a connection of Python's own.
        if connection is None or connection.initiated_from_client or connection.socket is None:
            return
        with suppress(OSError):  # Java has closed it already
            port = connection.socket.getpeername()[1]
            with self._lock:
                self._ended.append((self._clock(), port))

    def close_ended(self) -> int:
        """Close the connections of threads that have ended; returns how many there were."""
        before, ports = self._clock() - GRACE_SECONDS, set[int]()
        with self._lock:
            while self._ended and self._ended[0][0] <= before:
                ports.add(self._ended.popleft()[1])
        gateway: Any = SparkContext._gateway
        if not ports or gateway is None:
            return 0
        client: Any = JavaObject("GATEWAY_SERVER", gateway._gateway_client).getCallbackClient()
        lock, connections = (_field(client, name) for name in ("lock", "connections"))
        lock.lock()
        try:
            open_ones = [one for one in connections.toArray() if one.getSocket() is not None]
            found = [one for one in open_ones if one.getSocket().getLocalPort() in ports]
            for one in found:
                connections.remove(one)
        finally:
            lock.unlock()
        for one in found:
            one.shutdown()
        return len(found)


def _field(client: Any, name: str) -> Any:
    field = client.getClass().getSuperclass().getDeclaredField(name)
    field.setAccessible(True)
    return field.get(client)
