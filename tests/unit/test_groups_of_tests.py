"""Tests that share a Spark stay in one process when `make test` runs two of them: every Spark is then started once."""

from __future__ import annotations

import os

import pytest


@pytest.mark.skipif("PYTEST_XDIST_WORKER" not in os.environ, reason="there is one process only")
@pytest.mark.xdist_group("together")
def test_the_name_of_a_test_says_its_group(request: pytest.FixtureRequest) -> None:
    # This is what pytest-xdist goes by. With a version of pytest that it does not know it silently finds no group, and
    # the tests take half as long again.
    assert request.node.nodeid.endswith("@together")
