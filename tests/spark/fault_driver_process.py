"""One life of a driver process of the fault campaign, and what it says."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fault_campaign import Campaign


#: How long a driver may take from "finished" to its end.
EXIT_SECONDS = 60.0


class DriverProcess:
    """`faulty_driver.py`, from its start to `end` or `kill`."""

    def __init__(self, campaign: Campaign, log: str, config: Mapping[str, Any]) -> None:
        self.campaign = campaign
        self.config = config
        self.log = campaign.folder / f"{log}.log"
        script = Path(__file__).parent / "faulty_driver.py"
        with self.log.open("wb") as output:
            self.process = subprocess.Popen(
                [sys.executable, str(script), json.dumps(config)],
                env=campaign.environment(),
                stdout=subprocess.PIPE,
                stderr=output,
                text=True,
            )
        self.words: dict[str, dict[str, Any]] = {}
        self.lines: deque[str] = deque(maxlen=60)
        #: Batches that its sinks have published.
        self.batches = 0
        #: The change that is under way, in words.
        self.changing = ""
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        with (self.log.with_suffix(".said")).open("w") as said_file:
            for line in self.process.stdout:
                said_file.write(line)
                self.lines.append(line.strip())
                try:
                    said = json.loads(line)
                except ValueError:
                    continue  # it was killed in the middle of a line
                self._hear(said.pop("what"), said)
        self.process.stdout.close()

    def _hear(self, what: str, said: dict[str, Any]) -> None:
        campaign = self.campaign
        self.words[what] = said
        if what == "published":
            self.batches += 1
            # Not its own time: its clock is set forward and back.
            if said["sink"] == "rows" and self.config["name"] == "faulty":
                campaign.published.append((time.monotonic(), said["rows"]))
        elif what == "change":
            self.changing = "; ".join(said["plan"])
        elif what in ("changed", "refused"):
            self.changing = ""
            campaign.outcomes[said.get("status") or said["error"]] += 1

    def check(self) -> None:
        name, code = self.config["name"], self.process.poll()
        assert code is None, f'the driver of "{name}" ended with {code}\n{self.tail()}'

    def await_word(self, word: str, seconds: float) -> dict[str, Any]:
        deadline = time.monotonic() + seconds
        while word not in self.words:
            if word != "finished":
                self.check()
            assert time.monotonic() < deadline, f'it never said "{word}"\n{self.tail()}'
            assert self.process.poll() in (None, 0), f"it ended with {self.process.returncode}\n{self.tail()}"
            time.sleep(0.05)
        return self.words[word]

    def end(self, seconds: float) -> dict[str, int]:
        """Let it drain and end; what each source has emitted."""
        stop = Path(self.config["stop"])
        stop.touch()
        finished = self.await_word("finished", seconds)
        try:
            code = self.process.wait(EXIT_SECONDS)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"it did not exit within {EXIT_SECONDS:g} s\n{self.tail()}") from None
        assert code == 0, f"it ended with {code}\n{self.tail()}"
        stop.unlink()
        assert finished["drained"], f"it did not drain\n{self.tail()}"
        return dict(finished["emitted"])

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def tail(self) -> str:
        return "\n".join([*self.lines, self.log.read_text()[-4000:]])
