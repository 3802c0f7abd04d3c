"""A control interface on a real socket with a double behind it, for the tests of both its sides."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from fake_steering import FakeSteering

from penstock.api.discovery import FOLDER_VARIABLE, Running
from penstock.api.server import served
from penstock.settings import Settings


@pytest.fixture
def registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Tests neither find nor disturb what the user runs."""
    folder = tmp_path / "running"
    monkeypatch.setenv(FOLDER_VARIABLE, str(folder))
    return folder


@pytest.fixture
def steering() -> Iterator[FakeSteering]:
    fake = FakeSteering()
    yield fake
    fake.close()


@pytest.fixture
def running(steering: FakeSteering, registry: Path) -> Iterator[Running]:
    """A control interface on a real socket, with nothing but a double behind it."""
    with served(steering, "word_count", "/state", Settings()) as running:
        yield running
