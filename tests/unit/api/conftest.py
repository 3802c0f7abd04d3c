from __future__ import annotations

import pytest
from control_fixtures import registry, running, steering

__all__ = ["registry", "running", "steering"]


@pytest.fixture(autouse=True)
def _own_registry(registry):
    """No test may find or disturb what the user runs."""
