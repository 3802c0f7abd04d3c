"""How the failure of a user's function is written down on an executor, so that the driver finds it again.

The executor raises a plain exception whose text carries the error as JSON behind a mark. engine/spark/failures.py
finds the mark in what Spark makes of it. The mark also says whether the failure may pass, and whether it is about a
row: only the executor has the exception itself.
"""

from __future__ import annotations

import errno
import json
import re
import sysconfig
import traceback
from typing import Any, Protocol

from penstock.errors import ERRORS, PACKAGE_FOLDER, Location, PenstockError
from penstock.logs import traced
from penstock.printable import printable

_MARK = "PENSTOCK-ERROR"
_MARKED = re.compile(rf"{_MARK} (\{{.*?\}}) {_MARK}", re.DOTALL)
#: Where code is that is not the user's own. The libraries may lie within the folder of the standard library.
_OTHERS = (PACKAGE_FOLDER, *(sysconfig.get_paths()[name] for name in ("stdlib", "purelib", "platlib")))
#: Cython's frames have the name of the source that they were compiled from.
_COMPILED = (".pyx", ".pxi", ".pxd")
#: What a machine can lack for a moment (memory, threads, open files, room on a disk), and how storage over a network
#: says that it is away.
_LACKING = frozenset(
    {
        errno.ENOMEM,
        errno.EAGAIN,
        errno.EMFILE,
        errno.ENFILE,
        errno.ENOSPC,
        errno.EDQUOT,
        errno.ESTALE,
        errno.EIO,
    }
)
#: Penstock's names for what cannot be read or opened: their cause says whether it is away, or wrong.
_OF_STORAGE = ("SEGMENT_UNREADABLE", "BAD_SETTING")
#: Penstock's names for what is in a row or a file, also in its first line where a header should be.
_OF_CONTENT = ("BAD_ROW", "BAD_SOURCE")
#: What Python and pyarrow raise about a value. The text often quotes that value.
_ABOUT_VALUES = (ValueError, TypeError, LookupError, ArithmeticError)
_NO_THREAD = "can't start new thread"
_ROWS_MAY_FAIL = 'Correct it, or declare on_error="skip" or "dead_letter" if single rows may fail.'
_MACHINE_LACKS = (
    "The machine lacked memory, threads, open files or room, or storage was away. Give the machine more of it, or the "
    "operator fewer instances or fewer rows at once (the settings rows_at_once and rows_at_once_mb)."
)


class Failing(Protocol):
    """An operator on an executor: its name, and where it was declared."""

    @property
    def operator(self) -> str: ...

    @property
    def where(self) -> Location: ...


class OperatorFailure(RuntimeError):
    """An operator failed on an executor: the text carries the named error behind a mark."""


def may_pass(error: BaseException) -> bool:
    """Whether an exception tells of the machine or of storage, and not of rows, functions or declarations. Such an
    exception is never a bad row, and is worth another attempt, also if a user's function has raised it."""
    if isinstance(error, PenstockError):
        away = error.name in _OF_STORAGE and isinstance(error.__cause__, OSError | MemoryError)
        return error.name == "FILE_UNREADABLE" or away
    if isinstance(error, OSError):
        return error.errno in _LACKING
    return isinstance(error, MemoryError) or (isinstance(error, RuntimeError) and _NO_THREAD in str(error))


def failure(stage: Failing, error: Exception, hint: str = _ROWS_MAY_FAIL) -> OperatorFailure:
    """What to raise on the executor for an error in an operator's function."""
    passing = may_pass(error)
    named: dict[str, Any]
    if isinstance(error, PenstockError):
        named = {"name": error.name, "message": f'"{stage.operator}": {error.message}', "hint": error.hint}
    else:
        named = {
            "name": "OPERATOR_FAILED",
            "message": f'the function of "{stage.operator}" raised {type(error).__name__}: {error}{line_of(error)}.',
            "hint": _MACHINE_LACKS if passing else hint,
        }
    named["message"] = printable(named["message"])
    about_row = named["name"] in _OF_CONTENT or isinstance(error, _ABOUT_VALUES)
    more = {"file": stage.where.file, "line": stage.where.line, "may_pass": passing, "about_row": about_row}
    return OperatorFailure(f"{_MARK} {json.dumps(named | more)} {_MARK}")


def found_in(text: str) -> PenstockError | None:
    """The error that an executor has marked in a text; None if there is none, or Spark has cut it off."""
    with traced("the error that an executor marked cannot be read", ValueError, KeyError):
        fields = _fields_in(text)
        if fields and fields["name"] in ERRORS:
            where = Location(fields["file"], fields["line"])
            return PenstockError(fields["name"], fields["message"], fields["hint"], where)
    return None


def passing_in(text: str) -> bool:
    """Whether the error that an executor has marked in a text may pass."""
    return _is_said("may_pass", text)


def row_in(text: str) -> bool:
    """Whether the error that an executor has marked in a text is about a row, whose words the text may quote."""
    return _is_said("about_row", text)


def _is_said(field: str, text: str) -> bool:
    with traced("the error that an executor marked cannot be read", ValueError):
        return bool(_fields_in(text).get(field))
    return False


def _fields_in(text: str) -> dict[str, Any]:
    marked = _MARKED.search(text)
    return dict(json.loads(marked[1])) if marked else {}


def line_of(error: Exception) -> str:
    """The line of the user's own code that raised an error, or that called what raised it."""
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if not frame.filename.startswith(_OTHERS) and not frame.filename.endswith(_COMPILED)
    ]
    return f" (at {frames[-1].filename}:{frames[-1].lineno})" if frames else ""
