"""The way into the command line and out of it: every mistake ends as one named error, never as a traceback."""

from __future__ import annotations

import json
import os
import sys
import tempfile
import traceback
from collections.abc import Sequence
from contextlib import nullcontext, redirect_stdout

import click

from penstock.cli import actions as _actions  # noqa: F401 - it adds its commands to the others
from penstock.cli import reads as _reads  # noqa: F401 - it adds its commands to the others
from penstock.cli.commands import CommandResult, penstock
from penstock.cli.stopping import INTERRUPTED
from penstock.errors import PenstockError
from penstock.printable import printable

MISTAKE = 2
BUG = 1


def main(words: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code."""
    words = sys.argv[1:] if words is None else list(words)
    as_json = "--json" in words
    try:
        # With --json, standard output holds one object; what a user's file or sink prints goes elsewhere.
        with redirect_stdout(sys.stderr) if as_json else nullcontext():
            result = _invoke(words)
        if result.answer is not None:
            _print_json(result.answer)
        for one in result.stream or ():
            sys.stdout.write(json.dumps(one) + "\n")
            sys.stdout.flush()
        sys.stdout.flush()
        return result.code
    except PenstockError as error:
        _report(error, as_json)
        return MISTAKE
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # The program that read our output has ended (`penstock show ... | head`): nobody would see a message.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return BUG
    except Exception as error:
        _report(_internal(error), as_json)
        return BUG


def _invoke(words: list[str]) -> CommandResult:
    try:
        result = penstock.main(words, "penstock", standalone_mode=False)
    except click.Abort:
        raise KeyboardInterrupt from None
    except click.UsageError as error:
        command = error.ctx.command_path if error.ctx else "penstock"
        text = error.format_message().rstrip(".")
        raise PenstockError("BAD_COMMAND", f"{text}.", f"See: {command} --help") from None
    except click.ClickException as error:
        raise PenstockError("BAD_COMMAND", error.format_message(), "See: penstock --help") from None
    # --help and --version end with a number instead.
    return result if isinstance(result, CommandResult) else CommandResult(int(result or 0))


def _report(error: PenstockError, as_json: bool) -> None:
    if as_json:
        _print_json(error.as_json())
    else:
        sys.stderr.write(f"{error}\n")


def _print_json(answer: object) -> None:
    sys.stdout.write(json.dumps(answer, indent=2) + "\n")
    sys.stdout.flush()


def _internal(error: Exception) -> PenstockError:
    """An error that is a bug in Penstock. Its traceback goes to a file, because it does not help a user."""
    text = printable(" ".join(f"{type(error).__name__}: {error}".split())[:300])
    return PenstockError("INTERNAL", f"{text}.", f"This is a bug in Penstock; please report it{_traceback_of(error)}")


def _traceback_of(error: Exception) -> str:
    """Where the traceback is, or why it is nowhere, as the end of a hint."""
    try:
        with tempfile.NamedTemporaryFile(
            "w", prefix="penstock-internal-", suffix=".log", delete=False, encoding="utf-8", errors="backslashreplace"
        ) as log:
            traceback.print_exception(error, file=log)
    except OSError as problem:
        return f" (its traceback could not be written to a file: {problem.strerror or problem})"
    return f" with {log.name}"


if __name__ == "__main__":
    sys.exit(main())
