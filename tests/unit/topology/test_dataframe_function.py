"""How many DataFrames a function takes is read from its parameters."""

from __future__ import annotations

from functools import partial

import pytest

from penstock.topology import frames_taken


class Callable:
    def __call__(self, left, right): ...


class WithoutSignature:
    __signature__ = "none that can be read"

    def __call__(self, *anything): ...


def joined(left, right): ...


@pytest.mark.parametrize(
    ("function", "inputs", "frames"),
    [
        (lambda frame: frame, 1, 1),
        (lambda frame: frame, 3, 1),
        (joined, 2, 2),
        (joined, 1, None),
        (joined, 3, None),
        (lambda: None, 1, None),
        (lambda *frames: frames, 1, 1),
        (lambda *frames: frames, 3, 3),
        (lambda frame, limit=3: frame, 2, 1),
        (lambda left, right, limit=3: left, 2, 2),
        (lambda frame, *, option: frame, 1, None),
        (partial(joined, None), 1, 1),
        (Callable(), 2, 2),
        (WithoutSignature(), 2, 1),
    ],
)
def test_frames_taken(function, inputs, frames):
    assert frames_taken(function, inputs) == frames
