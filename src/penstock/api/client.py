"""A running topology as seen from another process: `Steering` over HTTP, mistakes as the same named errors."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any

import httpx2

from penstock.api.discovery import Running
from penstock.errors import ERRORS, PenstockError

#: How many seconds the client waits for an answer.
PATIENCE = 30.0
Json = dict[str, Any]


class Client:
    """A connection to one running topology. As a context manager it closes the connection when it is left."""

    def __init__(self, running: Running, transport: httpx2.BaseTransport | None = None) -> None:
        self.running = running
        self._http = httpx2.Client(
            base_url=running.url,
            headers={"Authorization": f"Bearer {running.token}"},
            timeout=PATIENCE,
            transport=transport,
            trust_env=False,  # a proxy has no business with this computer's own address
        )

    def get(self, path: str, **parameters: Any) -> Json:
        given = {name: value for name, value in parameters.items() if value is not None}
        return self._answer(lambda: self._http.get(f"/v1/{path}", params=given))

    def post(self, path: str, body: Mapping[str, Any] | None = None) -> Json:
        given = {name: value for name, value in (body or {}).items() if value is not None}
        return self._answer(lambda: self._http.post(f"/v1/{path}", json=given))

    def follow(self, operation: Json, told: Callable[[Json], None]) -> Json:
        """Wait for the end of an operation, and call `told` with its state meanwhile."""
        while operation["ended_at"] is None:
            told(operation)
            operation = self.get(f"operations/{operation['id']}", wait=1.0)
        return operation

    def _answer(self, ask: Callable[[], httpx2.Response]) -> Json:
        try:
            response = ask()
            answer = response.json()
        except (httpx2.HTTPError, ValueError) as error:
            raise PenstockError(
                "UNREACHABLE",
                f"{self.running.label} does not answer at {self.running.url}: {error or type(error).__name__}.",
                "The topology may be about to end; see: penstock ps",
            ) from None
        if response.is_success and isinstance(answer, dict):
            return answer
        known = answer if isinstance(answer, dict) else {}
        name, message, hint = (known.get(part) for part in ("error", "message", "hint"))
        if not all(isinstance(part, str) for part in (name, message, hint)) or name not in ERRORS:
            raise PenstockError(
                "UNREACHABLE",
                f"{self.running.url} answered {response.status_code}, and not as Penstock does.",
                "The topology may run with another version of Penstock.",
            )
        raise PenstockError(str(name), str(message), str(hint))

    def close(self) -> None:
        self._http.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
