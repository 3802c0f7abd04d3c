"""The control interface as a web application: every read and action of `Steering` under an address, behind a token."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Protocol

from fastapi import Depends, FastAPI, Path, Query, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from fastapi.security import HTTPBearer
from starlette.exceptions import HTTPException

from penstock.api import request_models as requests
from penstock.api.bounds import LAST_ID, LAST_TIME, MOST_ALPHA, MOST_LISTED, MOST_POINTS
from penstock.api.history_request import HistoryRequest
from penstock.api.prometheus import CONTENT_TYPE, exposition
from penstock.api.request_check import RequestCheck, refusal
from penstock.api.request_models import Problem
from penstock.errors import PenstockError
from penstock.monitor.history import POINTS
from penstock.monitor.series import By
from penstock.version import VERSION

Json = dict[str, Any]
#: The most seconds that one request waits for something to happen. A client that wants to wait longer asks again.
LONGEST_WAIT = 30.0

#: Error name -> HTTP status. Errors that are not listed mean that the topology cannot do this now: 409.
STATUS_OF = {
    "NOT_FOUND": 404,
    "UNKNOWN_OPERATOR": 404,
    "NO_SUCH_MACHINE": 404,
    "NO_SUCH_OPERATION": 404,
    "NO_SUCH_SLOT": 404,
    "NO_SUCH_TASK": 404,
    "TOO_LARGE": 413,
    "BAD_REQUEST": 422,
    "BAD_SETTING": 422,
    "UNKNOWN_METRIC": 422,
    "UNKNOWN_STRATEGY": 422,
    "INTERNAL": 500,
    "STATISTICS_UNREACHABLE": 503,
}
PROBLEMS: dict[int | str, dict[str, Any]] = {
    status: {"model": Problem, "description": text}
    for status, text in (
        (400, "The request cannot be read."),
        (401, "The request does not have the right token."),
        (404, "The request names something that does not exist."),
        (409, "The topology cannot do this now."),
        (413, "The request is too large."),
        (422, "A value of the request is wrong."),
        (503, "The statistics store does not answer."),
    )
}

#: For the OpenAPI description only: `RequestCheck` has checked the token already.
_BEARER = HTTPBearer(auto_error=False, description="The token of the running topology.")
Wait = Annotated[float, Query(ge=0, le=LONGEST_WAIT, description="How many seconds to wait for a change.")]
Number = Annotated[int, Path(ge=1, le=LAST_ID)]
Time = Annotated[float, Query(ge=0, le=LAST_TIME, description="Seconds since the epoch.")]


class Steerable(Protocol):
    """What the interface needs of a running topology: `Steering` has it, and so has a test double."""

    def topology(self) -> Json: ...
    def status(self) -> Json: ...
    def snapshot(self) -> Json: ...
    def placement(self) -> Json: ...
    def explain(self, alpha: float | None = None) -> Json: ...
    def history(self, request: HistoryRequest) -> Json: ...
    def events(self, after: int = 0, limit: int = 1000, wait: float = 0.0) -> Json: ...
    def decisions(self, after: int = 0, limit: int = 1000) -> Json: ...
    def migrations(self, after: int = 0, limit: int = 1000) -> Json: ...
    def all_operations(self) -> Json: ...
    def operation(self, number: int, wait: float = 0.0) -> Json: ...
    def scale_out(self, machines: int = 1, strategy: str | None = None, dry_run: bool = False) -> Json: ...
    def scale_in(
        self,
        machines: int | None = None,
        names: Sequence[str] = (),
        strategy: str | None = None,
        dry_run: bool = False,
    ) -> Json: ...
    def set_instances(
        self, operator: str, count: int | None = None, slots: Mapping[str, int] | None = None, dry_run: bool = False
    ) -> Json: ...
    def move_task(self, operator: str, task: int, slot: str, dry_run: bool = False) -> Json: ...
    def repartition(self, operator: str, tasks: int, dry_run: bool = False) -> Json: ...
    def cancel(self, number: int) -> Json: ...
    def pause(self, dry_run: bool = False) -> Json: ...
    def resume(self, dry_run: bool = False) -> Json: ...
    def stop(self, drain: bool = True, dry_run: bool = False) -> Json: ...


def interface(steering: Steerable, token: str) -> FastAPI:
    """The application. Only /healthz and the description of the interface itself can be read without the token."""
    app = FastAPI(
        title="Penstock control interface",
        version=VERSION,
        description="Reads and steers one running topology. Times are seconds since the epoch, rates rows a second.",
        responses=PROBLEMS,
        docs_url=None,  # these pages would load scripts from elsewhere
        redoc_url=None,
    )
    app.add_middleware(RequestCheck, token=token)
    app.add_exception_handler(PenstockError, _named)
    app.add_exception_handler(RequestValidationError, _unreadable)
    app.add_exception_handler(HTTPException, _turned_away)
    app.add_exception_handler(Exception, _bug)

    guarded = [Depends(_BEARER), Depends(_known_parameters)]
    _add_reads(app, steering, guarded)
    _add_actions(app, steering, guarded)
    return app


def _known_parameters(request: Request) -> None:
    """Refuse parameters that the route does not have: a caller would not notice that nobody reads them."""
    known = {parameter.alias for parameter in request.scope["route"].dependant.query_params}
    for name in request.query_params:
        if name not in known:
            there = f"There are: {', '.join(sorted(known))}." if known else "There are none here."
            raise PenstockError("BAD_REQUEST", f'there is no parameter "{name[:100]}".', there)


def _add_reads(app: FastAPI, steering: Steerable, guarded: list[Any]) -> None:
    @app.get("/healthz", tags=["reads"], dependencies=[Depends(_known_parameters)])
    async def healthz() -> Json:
        """Tell that the interface answers. This needs no thread, so it works even while all threads wait."""
        return {"ok": True}

    @app.get("/metrics", tags=["reads"], dependencies=guarded, response_class=Response)
    def metrics() -> Response:
        """All measurements, in the format of Prometheus."""
        return Response(exposition(steering.status()), media_type=CONTENT_TYPE)

    @app.get("/v1/topology", tags=["reads"], dependencies=guarded)
    def topology() -> Json:
        """Operators and streams as the user declared them."""
        return steering.topology()

    @app.get("/v1/status", tags=["reads"], dependencies=guarded)
    def status() -> Json:
        """What runs where, how fast each operator is, and how many rows wait."""
        return steering.status()

    @app.get("/v1/snapshot", tags=["reads"], dependencies=guarded)
    def snapshot() -> Json:
        """The snapshot that strategies decide on, with a list of what is not known."""
        return steering.snapshot()

    @app.get("/v1/placement", tags=["reads"], dependencies=guarded)
    def placement() -> Json:
        """The placement as planned, as requested of Spark, and as observed."""
        return steering.placement()

    @app.get("/v1/explain", tags=["reads"], dependencies=guarded)
    def explain(alpha: Annotated[float | None, Query(gt=0, le=MOST_ALPHA)] = None) -> Json:
        """The load as Stela sees it."""
        return steering.explain(alpha)

    @app.get("/v1/history", tags=["reads"], dependencies=guarded)
    def history(
        metric: Annotated[list[requests.Metric], Query(min_length=1, max_length=100)],
        since: Time,
        until: Annotated[float | None, Query(ge=0, le=LAST_TIME)] = None,
        by: By = "operator",
        operator: Annotated[str | None, Query(max_length=200)] = None,
        points: Annotated[int, Query(ge=1, le=MOST_POINTS)] = POINTS,
    ) -> Json:
        """What was measured over time, in intervals."""
        return steering.history(HistoryRequest(metric, since, until, by, operator, points))

    @app.get("/v1/events", tags=["reads"], dependencies=guarded)
    def events(
        after: Annotated[int, Query(ge=0, le=LAST_ID)] = 0,
        limit: Annotated[int, Query(ge=1, le=MOST_LISTED)] = 1000,
        wait: Wait = 0.0,
    ) -> Json:
        """The events after an id."""
        return steering.events(after, limit, wait)

    @app.get("/v1/decisions", tags=["reads"], dependencies=guarded)
    def decisions(
        after: Annotated[int, Query(ge=0, le=LAST_ID)] = 0,
        limit: Annotated[int, Query(ge=1, le=MOST_LISTED)] = 1000,
    ) -> Json:
        """The decisions after an id, each with what was expected, what was measured, and the verdict."""
        return steering.decisions(after, limit)

    @app.get("/v1/migrations", tags=["reads"], dependencies=guarded)
    def migrations(
        after: Annotated[int, Query(ge=0, le=LAST_ID)] = 0,
        limit: Annotated[int, Query(ge=1, le=MOST_LISTED)] = 1000,
    ) -> Json:
        """The changes after an id that moved state, with what was moved and how long each phase took."""
        return steering.migrations(after, limit)

    @app.get("/v1/operations", tags=["reads"], dependencies=guarded)
    def operations() -> Json:
        """The operations that were asked for lately, the oldest first."""
        return steering.all_operations()

    @app.get("/v1/operations/{number}", tags=["reads"], dependencies=guarded)
    def operation(number: Number, wait: Wait = 0.0) -> Json:
        """One operation. The request waits for its end, up to `wait` seconds."""
        return steering.operation(number, wait)


def _add_actions(app: FastAPI, steering: Steerable, guarded: list[Any]) -> None:
    @app.post("/v1/scale-out", tags=["actions"], dependencies=guarded)
    def scale_out(body: requests.ScaleOut) -> Json:
        """Add machines. The strategy decides which instances they get."""
        return steering.scale_out(body.machines, body.strategy, body.dry_run)

    @app.post("/v1/scale-in", tags=["actions"], dependencies=guarded)
    def scale_in(body: requests.ScaleIn) -> Json:
        """Remove machines: the named ones, or so many that the strategy chooses."""
        if isinstance(body, requests.ScaleInByName):
            return steering.scale_in(names=body.names, dry_run=body.dry_run)
        return steering.scale_in(body.machines, strategy=body.strategy, dry_run=body.dry_run)

    @app.post("/v1/set-instances", tags=["actions"], dependencies=guarded)
    def set_instances(body: requests.SetInstances) -> Json:
        """Give an operator so many instances in all, or so many on each slot."""
        if isinstance(body, requests.SetBySlot):
            return steering.set_instances(body.operator, slots=body.slots, dry_run=body.dry_run)
        return steering.set_instances(body.operator, body.count, dry_run=body.dry_run)

    @app.post("/v1/move-task", tags=["actions"], dependencies=guarded)
    def move_task(body: requests.MoveTask) -> Json:
        """Move one task of a keyed operator, with its state, to another slot."""
        return steering.move_task(body.operator, body.task, body.slot, body.dry_run)

    @app.post("/v1/repartition", tags=["actions"], dependencies=guarded)
    def repartition(body: requests.Repartition) -> Json:
        """Cut the state of a keyed operator into another number of tasks."""
        return steering.repartition(body.operator, body.tasks, body.dry_run)

    @app.post("/v1/operations/{number}/cancel", tags=["actions"], dependencies=guarded)
    def cancel(number: Number) -> Json:
        """Drop an operation that waits, or roll back the operation that is under way."""
        return steering.cancel(number)

    @app.post("/v1/pause", tags=["actions"], dependencies=guarded)
    def pause(body: requests.Pause) -> Json:
        """Let the sources emit nothing more. Rows that they have emitted go on."""
        return steering.pause(body.dry_run)

    @app.post("/v1/resume", tags=["actions"], dependencies=guarded)
    def resume(body: requests.Pause) -> Json:
        """Let the sources emit again."""
        return steering.resume(body.dry_run)

    @app.post("/v1/stop", tags=["actions"], dependencies=guarded)
    def stop(body: requests.Stop) -> Json:
        """Stop the topology. The answer comes at once, before the topology has ended."""
        return steering.stop(body.drain, body.dry_run)


# Mistakes, in one shape


def _answer(error: PenstockError, status: int | None = None) -> JSONResponse:
    return refusal(error, status or STATUS_OF.get(error.name, 409))


def _named(_: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, PenstockError)
    return _answer(error)


def _unreadable(_: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    place = ".".join(str(part) for part in first["loc"] if part != "body") or "the body"
    text = " ".join(str(first["msg"]).split())[:200]
    return _answer(PenstockError("BAD_REQUEST", f"{place[:200]}: {text}.", "See /openapi.json for what can be asked."))


def _turned_away(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)
    what = f"{request.method} {request.url.path[:200]}: {error.detail}"
    name = {404: "NOT_FOUND", 405: "NOT_FOUND", 413: "TOO_LARGE"}.get(error.status_code, "BAD_REQUEST")
    answer = _answer(PenstockError(name, f"{what}.", "See /openapi.json for what can be asked."), error.status_code)
    answer.headers.update(error.headers or {})
    return answer


def _bug(_: Request, error: Exception) -> JSONResponse:
    text = " ".join(f"{type(error).__name__}: {error}".split())[:300]
    return _answer(PenstockError("INTERNAL", f"{text}.", "This is a bug in Penstock; please report it."))
