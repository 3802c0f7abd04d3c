"""How the failure of a user's function is written down on an executor, so that the driver finds it again.

The executor raises a plain exception whose text carries the error as JSON behind a mark. engine/spark/failures.py
finds the mark in what Spark makes of it.
"""

from __future__ import annotations

import json
import re
import sysconfig
import traceback
from typing import Protocol

from penstock.errors import ERRORS, PACKAGE_FOLDER, Location, PenstockError
from penstock.logs import traced

_MARK = "PENSTOCK-ERROR"
_MARKED = re.compile(rf"{_MARK} (\{{.*?\}}) {_MARK}", re.DOTALL)
#: Where code is that is not the user's own. The libraries may lie within the folder of the standard library.
_OTHERS = (PACKAGE_FOLDER, *(sysconfig.get_paths()[name] for name in ("stdlib", "purelib", "platlib")))
#: Cython's frames have the name of the source that they were compiled from.
_COMPILED = (".pyx", ".pxi", ".pxd")
_ROWS_MAY_FAIL = 'Correct it, or declare on_error="skip" or "dead_letter" if single rows may fail.'


class Failing(Protocol):
    """An operator on an executor: its name, and where it was declared."""

    @property
    def operator(self) -> str: ...

    @property
    def where(self) -> Location: ...


class OperatorFailure(RuntimeError):
    """An operator failed on an executor: the text carries the named error behind a mark."""


def failure(stage: Failing, error: Exception, hint: str = _ROWS_MAY_FAIL) -> OperatorFailure:
    """What to raise on the executor for an error in an operator's function."""
    if isinstance(error, PenstockError):
        named = {"name": error.name, "message": f'"{stage.operator}": {error.message}', "hint": error.hint}
    else:
        named = {
            "name": "OPERATOR_FAILED",
            "message": f'the function of "{stage.operator}" raised {type(error).__name__}: {error}{line_of(error)}.',
            "hint": hint,
        }
    where = {"file": stage.where.file, "line": stage.where.line}
    return OperatorFailure(f"{_MARK} {json.dumps(named | where)} {_MARK}")


def found_in(text: str) -> PenstockError | None:
    """The error that an executor has marked in a text; None if there is none, or Spark has cut it off."""
    marked = _MARKED.search(text)
    if marked is None:
        return None
    with traced("the error that an executor marked cannot be read", ValueError, KeyError):
        fields = json.loads(marked[1])
        if fields["name"] in ERRORS:
            where = Location(fields["file"], fields["line"])
            return PenstockError(fields["name"], fields["message"], fields["hint"], where)
    return None


def line_of(error: Exception) -> str:
    """The line of the user's own code that raised an error, or that called what raised it."""
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if not frame.filename.startswith(_OTHERS) and not frame.filename.endswith(_COMPILED)
    ]
    return f" (at {frames[-1].filename}:{frames[-1].lineno})" if frames else ""
