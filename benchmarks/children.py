"""Processes that a benchmark starts for a measurement of its own: they tell how far they are, answer with JSON, and end
with the benchmark, in whatever way it ends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import Any

#: How lines begin: what a child tells, and what it answers.
TOLD, ANSWERED = "# ", "= "


def tell(text: str) -> None:
    """In the child: how far it is."""
    print(f"{TOLD}{text}", flush=True)


def answer(found: Mapping[str, Any]) -> None:
    """In the child: what it has measured."""
    print(f"{ANSWERED}{json.dumps(found)}", flush=True)


def end_with_parent() -> None:
    """In the child: leave in order on SIGTERM, and when the process that started this one is gone, in whatever way."""

    def leave(number: int, frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    def watch() -> None:
        while os.read(0, 1024):  # not through sys.stdin, whose lock would be held when Python ends
            pass
        os.kill(os.getpid(), signal.SIGTERM)

    signal.signal(signal.SIGTERM, leave)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a Ctrl-C in the terminal is for the parent, which then ends this
    threading.Thread(target=watch, daemon=True).start()


def answer_of(
    who: str, command: Sequence[str], folder: Path, say: Callable[[str], None], **environment: str
) -> dict[str, Any]:
    """What a child answers. It has a folder of its own, with its log."""
    folder.mkdir()
    log = folder / "log"
    given = os.environ | {"TMPDIR": str(folder), "SPARK_LOCAL_DIRS": str(folder / "scratch")} | environment
    found = None
    with log.open("wb") as errors:
        pipe = subprocess.PIPE
        child = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=errors, env=given, text=True)
    assert child.stdin is not None
    assert child.stdout is not None
    try:
        for line in child.stdout:
            if line.startswith(TOLD):
                say(line.removeprefix(TOLD).rstrip())
            elif line.startswith(ANSWERED):
                found = json.loads(line.removeprefix(ANSWERED))
        code = child.wait()
    finally:
        child.terminate()  # does nothing if it has ended
        try:
            child.wait(60)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()
        child.stdin.close()
        child.stdout.close()
    if code or found is None:
        raise RuntimeError(f"{who} failed ({code}):\n{log.read_text(errors='replace')[-6000:]}")
    return dict(found)
