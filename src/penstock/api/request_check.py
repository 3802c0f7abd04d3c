"""The check that every request passes first: the request has the token, and it is not too large."""

from __future__ import annotations

import secrets

from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from penstock.errors import PenstockError

MOST_BYTES = 1 << 20
#: Everybody may read whether the interface answers, and the description of the interface.
OPEN = frozenset({"/healthz", "/openapi.json"})


class RequestCheck:
    def __init__(self, app: ASGIApp, token: str) -> None:
        self._app = app
        self._header = f"Bearer {token}".encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return  # the interface speaks HTTP only
        headers = dict(scope["headers"])
        declared = headers.get(b"content-length", b"0")
        if scope["path"] not in OPEN and not secrets.compare_digest(headers.get(b"authorization", b""), self._header):
            await refusal(_no_token(), 401)(scope, receive, send)
        elif declared.isdigit() and int(declared) > MOST_BYTES:
            await refusal(_too_large(), 413)(scope, receive, send)
        else:
            await self._app(scope, _counted(receive), send)


def _counted(receive: Receive) -> Receive:
    """Count the bytes of a body that comes in pieces, and refuse the body once it is too large."""
    received = 0

    async def counted() -> Message:
        nonlocal received
        message = await receive()
        received += len(message.get("body", b""))
        if received > MOST_BYTES:
            raise HTTPException(413, _too_large().message)  # any other error would be taken for one in the body
        return message

    return counted


def refusal(error: PenstockError, status: int) -> JSONResponse:
    headers = {"WWW-Authenticate": "Bearer"} if status == 401 else None
    return JSONResponse(error.as_json(), status, headers)


def _too_large() -> PenstockError:
    return PenstockError(
        "TOO_LARGE",
        f"the body has more than {MOST_BYTES:,} bytes.",
        "Send a smaller body: no request needs that many bytes.",
    )


def _no_token() -> PenstockError:
    return PenstockError(
        "NO_TOKEN",
        "the request does not have the right token.",
        "Send it in the header `Authorization: Bearer TOKEN`; see docs/control.md for where it is.",
    )
