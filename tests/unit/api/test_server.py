"""The interface on a real socket, and the client that the command line speaks through."""

from __future__ import annotations

import socket
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx2
import pytest
from fake_steering import STATUS, FakeSteering

from penstock.api.client import Client
from penstock.api.discovery import Running, all_running
from penstock.api.request_check import MOST_BYTES
from penstock.api.server import served
from penstock.errors import PenstockError
from penstock.settings import Settings


def test_it_listens_on_loopback_and_is_found(running: Running, steering: FakeSteering) -> None:
    assert running.url.startswith("http://127.0.0.1:")
    [found] = all_running()
    assert (found.url, found.token) == (running.url, running.token)
    with Client(found) as client:
        assert client.get("status") == STATUS | {"operation": None}
        operation = client.post("scale-out", {"machines": 2, "strategy": None})
        told: list[str] = []
        done = client.follow(operation, lambda one: told.append(one["state"]))
    assert (done["state"], done["outcome"]["status"]) == ("done", "done")
    assert steering.called == [("scale-out", False, 2, None)]


def test_it_is_over_when_the_block_is_left(steering: FakeSteering, registry: Path) -> None:
    with served(steering, "word_count", "/state", Settings()) as running:
        pass
    assert all_running() == []
    with Client(running) as client, pytest.raises(PenstockError) as error:
        client.get("status")
    assert error.value.name == "UNREACHABLE"


def test_the_wrong_token_is_a_named_error(running: Running) -> None:
    with Client(replace(running, token="wrong")) as client, pytest.raises(PenstockError) as error:
        client.post("scale-out", {})
    assert error.value.name == "NO_TOKEN"


def test_a_named_error_arrives_as_itself(running: Running) -> None:
    with Client(running) as client, pytest.raises(PenstockError) as error:
        client.post("scale-in", {"names": ["nobody"]})
    assert (error.value.name, error.value.hint) == ("NO_SUCH_MACHINE", "The machines are: 127.0.0.2.")


def test_a_bug_is_answered_and_leaves_a_trace(
    running: Running, steering: FakeSteering, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken() -> None:
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr(steering, "snapshot", broken)
    with Client(running) as client, pytest.raises(PenstockError, match="ZeroDivisionError: a bug") as error:
        client.get("snapshot")
    assert error.value.name == "INTERNAL"
    deadline = time.monotonic() + 10
    while not any(record.exc_info and "a bug" in str(record.exc_info[1]) for record in caplog.records):
        # The server answers first.
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_large_body_is_refused_also_if_it_comes_in_pieces(running: Running) -> None:
    headers = {"Authorization": f"Bearer {running.token}", "Content-Type": "application/json"}
    pieces = (b"x" * 100_000 for _ in range(MOST_BYTES // 100_000 + 2))
    with httpx2.Client(base_url=running.url, headers=headers, trust_env=False) as client:
        for content in (b"x" * (MOST_BYTES + 1), pieces):
            answer = client.post("/v1/scale-out", content=content)
            assert (answer.status_code, answer.json()["error"]) == (413, "TOO_LARGE")
        assert client.get("/healthz").status_code == 200


def test_a_port_that_is_taken_and_an_address_that_is_none(steering: FakeSteering, registry: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        settings = Settings(control_port=taken.getsockname()[1])
        with pytest.raises(PenstockError) as error, served(steering, "word_count", "/state", settings):
            pass
    assert error.value.name == "CONTROL_FAILED"
    with pytest.raises(PenstockError) as error, served(steering, "x", "/state", Settings(control_host="localhost")):
        pass
    assert error.value.name == "BAD_SETTING"


@pytest.mark.parametrize(
    ("status", "answer"),
    [
        (500, {"json": ["what"]}),
        (200, {"text": "<html>"}),
        (200, {"json": [1]}),
        (200, {"text": "null"}),
        (404, {"json": {"error": "NOT_FOUND"}}),
        (404, {"json": {"error": ["NOT_FOUND"], "message": "", "hint": ""}}),
        (404, {"json": {"error": "NOT_FOUND", "message": None, "hint": 3}}),
    ],
)
def test_something_else_that_answers_is_unreachable(status: int, answer: dict[str, Any]) -> None:
    running = Running("x", 1, "http://127.0.0.1:1", "t", 0.0, "/")
    with (
        Client(running, httpx2.MockTransport(lambda _: httpx2.Response(status, **answer))) as client,
        pytest.raises(PenstockError) as error,
    ):
        client.get("status")
    assert error.value.name == "UNREACHABLE"
