"""A `penstock run` in a process of its own, and the commands that steer it, as a user types them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from penstock.api.discovery import FOLDER_VARIABLE

#: The longest time that a command, or something that is waited for, may take.
WAIT = 240.0


class PenstockProcess:
    """A topology that runs, found only by the commands of this object."""

    def __init__(self, folder: Path, topology: Path, options: list[str], settings: Mapping[str, object]) -> None:
        self._environment = os.environ | {FOLDER_VARIABLE: str(folder / "running")}
        self._log = folder / "log"
        run = [sys.executable, "-m", "penstock", "run", str(topology), *options, "--json"]
        for name, value in settings.items():
            run += ["--set", f"{name}={value}"]
        with self._log.open("w") as log:
            self._process = subprocess.Popen(run, env=self._environment, stdout=subprocess.PIPE, stderr=log, text=True)

    def command(self, *words: str) -> Any:
        """The answer of a command, as JSON."""
        line = [sys.executable, "-m", "penstock", *words, "--json"]
        done = subprocess.run(line, capture_output=True, text=True, env=self._environment, timeout=WAIT, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return json.loads(done.stdout)

    def wait_until(self, what: str, true: Callable[[], bool]) -> None:
        deadline = time.monotonic() + WAIT
        while not true():
            assert self._process.poll() is None, self._log.read_text()
            assert time.monotonic() < deadline, f"{what}: {self.command('events')}"
            time.sleep(2)

    def story(self) -> list[dict[str, Any]]:
        """All events."""
        found: list[dict[str, Any]] = self.command("events")["events"]
        return found

    def stop(self) -> None:
        """Stop it as a user does; it ends without an error."""
        assert self.command("stop")["ended"]
        assert self._process.wait(WAIT) == 0

    def end(self) -> None:
        """Nothing of it is left, however the test went."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            try:
                self._process.wait(60)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()


def throughput(status: Mapping[str, Any]) -> float:
    """Rows a second at all sinks, by `penstock status`."""
    return sum(sink["throughput"] or 0.0 for sink in status["sinks"])


@contextmanager
def penstock_process(
    folder: Path, topology: Path, *options: str, settings: Mapping[str, object]
) -> Iterator[PenstockProcess]:
    """Runs on a standalone cluster that begins with one machine, until the block is left."""
    cluster = ["--cluster", "standalone", "--machines", "1"]
    process = PenstockProcess(folder, topology, [*cluster, *options], settings)
    try:
        process.wait_until(
            "it runs", lambda: any(one["phase"] == "running" for one in process.command("ps")["running"])
        )
        yield process
    finally:
        process.end()
