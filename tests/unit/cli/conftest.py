"""Loading a user's file changes sys.path and sys.modules; a test leaves them as they were."""

from __future__ import annotations

import sys

import pytest


@pytest.fixture(autouse=True)
def as_before(tmp_path):
    path, modules = list(sys.path), set(sys.modules)
    yield
    sys.path[:] = path
    for name in set(sys.modules) - modules:
        if str(getattr(sys.modules[name], "__file__", None) or "").startswith(str(tmp_path)):
            del sys.modules[name]


@pytest.fixture
def write(tmp_path):
    """Write a file and give its path."""

    def write(text: str, name: str = "flow.py"):
        path = tmp_path / name
        path.write_text(text)
        return path

    return write
