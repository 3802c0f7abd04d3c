"""A proxy before a PostgreSQL server that stops to forward: it plays the server that does not answer a commit."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from pathlib import Path

_NAME = ".s.PGSQL.5432"


class SilentProxy:
    """Forwards what clients send, and what the server answers, until `swallow` says otherwise."""

    def __init__(self, server: str, folder: Path) -> None:
        self._server = f"{server}/{_NAME}"
        #: Where clients find it.
        self.folder = folder
        #: What is to be sent to the server and is held back: "nothing", "questions" from the next commit on, or the
        #: "answers" from then on.
        self._held = "nothing"
        #: Set when a commit was swallowed, or its answer is.
        self.silent = threading.Event()
        self._released = threading.Event()
        self._sockets: list[socket.socket] = []
        self._listening = socket.socket(socket.AF_UNIX)
        self._listening.bind(str(folder / _NAME))
        self._listening.listen()
        self._mute: set[socket.socket] = set()
        threading.Thread(target=self._accept, daemon=True).start()

    def swallow(self, what: str) -> None:
        self._held = what

    def release(self) -> None:
        """Forward the commit that was swallowed."""
        self._held = "nothing"
        self._released.set()

    def close(self) -> None:
        self._released.set()
        for one in (self._listening, *self._sockets):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listening.accept()
                server = socket.socket(socket.AF_UNIX)
                server.connect(self._server)
                self._sockets += [client, server]
                threading.Thread(target=self._ask, args=(client, server), daemon=True).start()
                threading.Thread(target=self._answer, args=(server, client), daemon=True).start()

    def _ask(self, client: socket.socket, server: socket.socket) -> None:
        with suppress(OSError):
            while data := client.recv(1 << 16):
                if b"COMMIT" in data and self._held == "answers":
                    self._mute.add(server)
                    self.silent.set()
                elif b"COMMIT" in data and self._held == "questions":
                    # The transaction stays open on the server, whatever becomes of the client.
                    self.silent.set()
                    self._released.wait()
                server.sendall(data)
            server.shutdown(socket.SHUT_RDWR)

    def _answer(self, server: socket.socket, client: socket.socket) -> None:
        with suppress(OSError):
            while data := server.recv(1 << 16):
                if server not in self._mute:
                    client.sendall(data)
            if server not in self._mute:
                client.shutdown(socket.SHUT_RDWR)
