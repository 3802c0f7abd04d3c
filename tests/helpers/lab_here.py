"""Whether a real lab can be had where the tests run."""

from __future__ import annotations

import functools

import pytest

from penstock.cluster.lab.allowed import require_lab
from penstock.cluster.lab.owners import Owner
from penstock.cluster.lab.sizes import LabShape
from penstock.errors import PenstockError


@functools.cache
def _why_not() -> str:
    try:
        require_lab(LabShape(), 1, Owner.this_process())
    except PenstockError as error:
        return str(error)
    return ""


def needs_a_lab() -> pytest.MarkDecorator:
    """Skips a test by name where the system allows no lab."""
    return pytest.mark.skipif(bool(_why_not()), reason=f"no lab here: {_why_not()}")
