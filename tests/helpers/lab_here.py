"""A real lab, where the tests run, if one can be had there."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from penstock.cluster.lab.ground import LabGround
from penstock.cluster.lab.owners import Owner
from penstock.cluster.lab.permission import require_lab
from penstock.cluster.lab.sizes import LabShape
from penstock.errors import PenstockError

#: The machines of `two_machines`.
ONE, TWO = "10.77.0.2", "10.77.0.3"


@contextmanager
def two_machines(shape: LabShape) -> Iterator[LabGround]:
    """The ground of a lab with two machines on it, until the block is left."""
    ground = LabGround(shape)
    ground.open(2)
    try:
        ground.settle(ONE)
        ground.settle(TWO)
        yield ground
    finally:
        ground.close()


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
