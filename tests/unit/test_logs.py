"""A problem that is passed over leaves a trace in the state folder, and nothing on the terminal."""

from __future__ import annotations

import ast
import logging
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

import penstock
from penstock.engine.state.folder import StateFolder
from penstock.logs import FILE, LOGGER, LogFile, delete_folder, traced


def test_a_problem_is_written_down_with_its_traceback_while_the_folder_is_held(tmp_path: Path, capfd) -> None:
    folder = StateFolder.hold(str(tmp_path / "state"))
    log = tmp_path / "state" / "logs" / FILE
    try:
        with traced("the session could not be stopped", OSError):
            raise OSError("it is gone")
    finally:
        folder.release()
    text = log.read_text()
    assert "WARNING" in text
    assert "the session could not be stopped: OSError: it is gone" in text
    assert "Traceback" in text
    assert log.stat().st_mode & 0o077 == 0, "only the owner can read it"
    with traced("after the end", OSError):
        raise OSError
    assert log.read_text() == text
    assert capfd.readouterr() == ("", "")


def test_other_errors_pass_and_debug_is_not_kept(tmp_path: Path) -> None:
    folder = StateFolder.hold(str(tmp_path))
    try:
        with pytest.raises(ValueError, match="another"), traced("reading", OSError):
            raise ValueError("another")
        with traced("reading", OSError, level=logging.DEBUG):
            raise OSError
    finally:
        folder.release()
    assert (tmp_path / "logs" / FILE).read_text() == ""


def test_a_folder_is_released_whose_disk_is_full(tmp_path: Path, capfd) -> None:
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / FILE).symlink_to("/dev/full")
    folder = StateFolder.hold(str(tmp_path))
    LOGGER.warning("for this there is no room")
    folder.release()
    StateFolder.hold(str(tmp_path)).release()  # nobody holds it any more
    assert capfd.readouterr() == ("", "")


def test_no_handler_stays_behind(tmp_path: Path) -> None:
    before = list(LOGGER.handlers)
    StateFolder.hold(str(tmp_path)).release()
    StateFolder.hold(None).release()
    assert LOGGER.handlers == before


def test_a_log_whose_folder_is_gone_says_nothing_on_the_terminal(tmp_path: Path, capfd) -> None:
    folder = tmp_path / "logs"
    folder.mkdir()
    log = LogFile(folder)
    try:
        shutil.rmtree(folder)
        with traced("the session could not be stopped", OSError):
            raise OSError("it is gone")
    finally:
        log.close()
    assert capfd.readouterr() == ("", "")


def test_what_is_left_of_a_folder_leaves_a_trace_and_one_that_is_not_there_does_not(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "scratch"
    delete_folder(folder)
    folder.mkdir()
    (folder / "file").write_text("")
    delete_folder(folder)
    assert not folder.exists()
    assert not caplog.messages
    folder.mkdir()
    monkeypatch.setattr(shutil, "rmtree", lambda *_, **__: None)
    delete_folder(folder)
    assert f"{folder} could not be deleted" in "\n".join(caplog.messages)


_ANY = {"Exception", "BaseException"}
_SILENT = """
try:
    look()
except Exception:
    pass
with suppress(OSError, Exception):
    look()
try:
    look()
except (ValueError, BaseException) as error:
    return None
"""
_TOLD = """
try:
    look()
except Exception:
    LOGGER.info("this failed", exc_info=True)
try:
    look()
except Exception as error:
    fail(error)
try:
    look()
except BaseException:
    close()
    raise
try:
    look()
except OSError:
    pass
with suppress(OSError), traced("this", Exception):
    look()
"""


def _silent(text: str) -> Iterator[int]:
    """Lines that pass over whatever is raised: no log, no use of the error, and it is not raised again."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ExceptHandler):
            inside = [one for statement in node.body for one in ast.walk(statement)]
            names = {one.id for one in inside if isinstance(one, ast.Name)}
            is_told = "LOGGER" in names or node.name in names or any(isinstance(one, ast.Raise) for one in inside)
            if not is_told and (node.type is None or _ANY & _names(node.type)):
                yield node.lineno
        elif isinstance(node, ast.Call) and ast.unparse(node.func) in ("suppress", "contextlib.suppress"):
            yield from (node.lineno for argument in node.args if _ANY & _names(argument))


def _names(tree: ast.expr) -> set[str]:
    return {one.id for one in ast.walk(tree) if isinstance(one, ast.Name)}


def test_what_passes_over_any_error_leaves_a_trace() -> None:
    assert sorted(_silent(_SILENT)) == [4, 6, 10]
    assert not list(_silent(_TOLD))
    files = Path(penstock.__file__).parent.rglob("*.py")
    found = [f"{path}:{line}" for path in files for line in _silent(path.read_text(encoding="utf-8"))]
    assert not found, "use `penstock.logs.traced`, or name the errors that are expected"
