"""The interface as an application: every address behind the token, every mistake in one shape, whatever is sent."""

from __future__ import annotations

from typing import Any

import pytest
from described_requests import try_everything
from fake_steering import FakeSteering
from fastapi import FastAPI
from fastapi.testclient import TestClient

from penstock.api.interface import STATUS_OF, interface
from penstock.errors import ERRORS

TOKEN = "the-token"
HEADERS = {"Authorization": f"Bearer {TOKEN}"}
PROBLEM = {"error", "message", "hint", "where"}


@pytest.fixture
def app(steering: FakeSteering) -> FastAPI:
    return interface(steering, TOKEN)


@pytest.fixture
def client(app: FastAPI) -> TestClient:
    return TestClient(app, raise_server_exceptions=False)


def addresses(app: FastAPI) -> list[tuple[str, str]]:
    return [(method.upper(), path) for path, methods in app.openapi()["paths"].items() for method in methods]


@pytest.mark.parametrize("header", [None, "", "Bearer", "Bearer wrong", f"Basic {TOKEN}", "Bearer \xff"])
def test_nothing_but_its_health_without_the_token(
    app: FastAPI, client: TestClient, steering: FakeSteering, header: str | None
) -> None:
    headers = {} if header is None else {"Authorization": header.encode("latin-1")}
    for method, path in addresses(app):
        answer = client.request(method, path.format(number=1), headers=headers, json={})  # type: ignore[arg-type]
        if path == "/healthz":
            assert answer.status_code == 200
        else:
            assert (answer.status_code, answer.json()["error"]) == (401, "NO_TOKEN"), path
    assert steering.called == []


def test_reads(client: TestClient) -> None:
    lists = ("events", "operations", "decisions", "migrations")
    for path in ("topology", "status", "snapshot", "placement", "explain", *lists):
        assert client.get(f"/v1/{path}", headers=HEADERS).status_code == 200, path
    answer = client.get("/v1/history", headers=HEADERS, params={"metric": ["rate"], "since": 1.0})
    assert answer.json()["series"][0]["values"] == {"rate": [1.0, None, 4.0]}


def test_decisions_come_with_their_verdicts(client: TestClient) -> None:
    answer = client.get("/v1/decisions", headers=HEADERS, params={"limit": 1}).json()
    assert [one["verdict"] for one in answer["decisions"]] == ["none"]
    assert answer["next"] == 1
    later = client.get("/v1/decisions", headers=HEADERS, params={"after": 1}).json()
    assert [one["id"] for one in later["decisions"]] == [2]


def test_migrations_come_in_pages(client: TestClient) -> None:
    answer = client.get("/v1/migrations", headers=HEADERS, params={"limit": 1}).json()
    assert [one["operators"][0]["resume_seconds"] for one in answer["migrations"]] == [1.25]
    assert answer["next"] == 1
    later = client.get("/v1/migrations", headers=HEADERS, params={"after": 1}).json()
    assert [one["id"] for one in later["migrations"]] == [2]
    assert client.get("/v1/migrations", headers=HEADERS, params={"limit": 0}).status_code == 422


def test_actions_and_their_dry_runs(client: TestClient, steering: FakeSteering) -> None:
    bodies: dict[str, dict[str, Any]] = {
        "scale-out": {"machines": 2},
        "scale-in": {"names": ["127.0.0.2"]},
        "set-instances": {"operator": "split", "count": 3},
        "move-task": {"operator": "count", "task": 1, "slot": "127.0.0.2/0"},
        "pause": {},
        "resume": {},
        "stop": {"drain": False},
    }
    for path, body in bodies.items():
        answer = client.post(f"/v1/{path}", headers=HEADERS, json=body | {"dry_run": True})
        assert answer.status_code == 200, answer.text
        assert answer.json()["dry_run"] is True
        assert "actions" in answer.json()["plan"]
    assert all(call[1] for call in steering.called)
    assert steering.stopped is None
    for path, body in bodies.items():
        assert client.post(f"/v1/{path}", headers=HEADERS, json=body).status_code == 200
    assert steering.stopped is False


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "error"),
    [
        ("GET", "/v1/nowhere", None, 404, "NOT_FOUND"),
        ("DELETE", "/v1/status", None, 405, "NOT_FOUND"),
        ("GET", "/v1/history?metric=nonsense&since=1", None, 422, "UNKNOWN_METRIC"),
        ("GET", "/v1/history?metric=rate&since=yesterday", None, 422, "BAD_REQUEST"),
        ("GET", "/v1/events?after=-1", None, 422, "BAD_REQUEST"),
        ("GET", "/v1/events?wait=1e9", None, 422, "BAD_REQUEST"),
        ("GET", "/v1/operations/99", None, 404, "NO_SUCH_OPERATION"),
        ("POST", "/v1/operations/99/cancel", None, 404, "NO_SUCH_OPERATION"),
        ("POST", "/v1/scale-out", {"machines": 0}, 422, "BAD_REQUEST"),
        ("POST", "/v1/scale-out", {"machines": "1"}, 422, "BAD_REQUEST"),
        ("POST", "/v1/scale-out", {"machine": 1}, 422, "BAD_REQUEST"),
        ("POST", "/v1/scale-out", {"strategy": "magic"}, 422, "UNKNOWN_STRATEGY"),
        ("POST", "/v1/scale-in", {"strategy": "magic", "machines": 2}, 422, "UNKNOWN_STRATEGY"),
        ("POST", "/v1/scale-out", [], 422, "BAD_REQUEST"),
        ("POST", "/v1/scale-in", {"machines": 1, "names": ["127.0.0.2"]}, 422, "BAD_REQUEST"),
        ("POST", "/v1/scale-in", {"names": ["nobody"]}, 404, "NO_SUCH_MACHINE"),
        ("POST", "/v1/set-instances", {"operator": "split"}, 422, "BAD_REQUEST"),
        ("POST", "/v1/set-instances", {"operator": "nobody", "count": 1}, 404, "UNKNOWN_OPERATOR"),
    ],
)
def test_mistakes_have_one_shape(
    client: TestClient, method: str, path: str, body: Any, status: int, error: str
) -> None:
    answer = client.request(method, path, headers=HEADERS, json=body)
    assert (answer.status_code, answer.json()["error"]) == (status, error), answer.text
    assert set(answer.json()) == PROBLEM


def test_a_body_that_is_no_json(client: TestClient) -> None:
    for content in (b"{", b"\xff\xfe", b""):
        answer = client.post("/v1/scale-out", headers=HEADERS | {"Content-Type": "application/json"}, content=content)
        assert (answer.status_code, answer.json()["error"]) == (422, "BAD_REQUEST"), answer.text


def test_a_bug_is_told_without_a_traceback(
    client: TestClient, steering: FakeSteering, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(steering, "status", lambda: 1 / 0)
    answer = client.get("/v1/status", headers=HEADERS)
    assert (answer.status_code, answer.json()["error"]) == (500, "INTERNAL")
    assert "Traceback" not in answer.text


def test_every_status_belongs_to_an_error_that_exists() -> None:
    assert set(STATUS_OF) <= set(ERRORS)


def test_prometheus_leaves_out_what_was_not_measured(client: TestClient) -> None:
    answer = client.get("/metrics", headers=HEADERS)
    assert answer.headers["content-type"].startswith("text/plain")
    lines = answer.text.splitlines()
    assert 'penstock_up{topology="word_count"} 1.0' in lines
    assert 'penstock_operator_backlog_rows{operator="split",topology="word_count"} 7.0' in lines
    assert 'penstock_operator_rows_in_total{operator="split",topology="word_count"} 1200.0' in lines
    assert 'penstock_sink_latency_seconds{quantile="0.50",sink="out",topology="word_count"} 0.3' in lines
    assert not any("0.99" in line for line in lines)
    assert not any(line.startswith("penstock_operator_utilisation_ratio{") for line in lines)


def test_whatever_its_own_description_allows_and_forbids(app: FastAPI) -> None:
    import schemathesis  # not above: see described_requests.py

    schema = schemathesis.openapi.from_asgi("/openapi.json", app)
    assert try_everything(schema, TOKEN, examples=8) > 300
