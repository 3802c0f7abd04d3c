"""Refuses bodies that are larger than any request can be, before they are read into memory."""

from __future__ import annotations

from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from penstock.errors import PenstockError

MOST_BYTES = 1 << 20


class BodyLimit:
    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        declared = dict(scope["headers"]).get(b"content-length", b"0")
        if declared.isdigit() and int(declared) > MOST_BYTES:
            await _refusal()(scope, receive, send)
            return
        received = 0

        async def counted() -> Message:
            nonlocal received
            message = await receive()
            received += len(message.get("body", b""))
            if received > MOST_BYTES:  # it came in pieces, without saying how large it is
                raise too_large()
            return message

        await self._app(scope, counted, send)


def too_large() -> PenstockError:
    return PenstockError("TOO_LARGE", f"the body has more than {MOST_BYTES:,} bytes.", "No request needs so many.")


def _refusal() -> JSONResponse:
    return JSONResponse(too_large().as_json(), 413)
