"""The reference pages say what the code says."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.cli.reference import pages

DOCS = Path(__file__).parents[3] / "docs"


@pytest.mark.parametrize("name", pages())
def test_the_page_is_not_stale(name):
    assert (DOCS / name).read_text() == pages()[name], "run: make docs"
