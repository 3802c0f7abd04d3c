"""The wall clock is set back or forward by an hour: no duration and no order of things depends on it."""

from __future__ import annotations

import ast
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
from monitor_fakes import CLUSTER, DEFINITION

import penstock
from penstock.api.history_request import HistoryRequest
from penstock.api.steering import Steering
from penstock.clock import Clock, meant, run_time, shown
from penstock.cluster.model import Cluster, Placement
from penstock.engine.message.shares import Bundle
from penstock.engine.query.seats import Seats
from penstock.engine.run.arrangement import Arrangement
from penstock.monitor.history import HistoryQuery, SeriesHistory
from penstock.monitor.series import SeriesKey
from penstock.testing import RecordingTopology

HOUR = 3600.0
JUMPS = pytest.mark.parametrize("jump", [HOUR, -HOUR], ids=["forward", "back"])
SOURCES = Path(penstock.__file__).parent
#: The wall clock, by all its names.
THE_WALL = {
    "time.time",
    "time.time_ns",
    "datetime.datetime.now",
    "datetime.datetime.utcnow",
    "datetime.datetime.today",
    "datetime.date.today",
    "penstock.clock.wall_time",
}
#: The only modules that may ask for the wall clock, and why.
ON_THE_WALL = {
    "clock.py": "it is the clock",
    "channels/catalog.py": "when a batch was published, for people who look into the database",
    "channels/fence.py": "since when a driver has had the catalog, for people",
    "channels/kept_pieces.py": "the times of files are the wall's; a wrong one costs a fetch, and loses nothing",
    "cli/reads.py": "the command line is another process than the run: for how long it has run, what is asked for",
    "cluster/class_archive.py": "it is compared with a file's time",
    "cluster/pages.py": "until when a token is good, which another process reads",
    "api/discovery.py": "when a run was started, for other processes",
    "api/reads.py": "a history is asked for, and answered, by the clock on the wall",
    "engine/run/run.py": "when an event happened, for people",
    "engine/state/folder.py": "it is compared with a file's time",
    "testing/recording_topology.py": "when an event happened, for people",
}

Set = Callable[[float], None]


@pytest.fixture
def set_wall(monkeypatch: pytest.MonkeyPatch) -> Set:
    """Sets the wall clock of this process by so many seconds."""
    real = time.time
    return lambda seconds: monkeypatch.setattr(time, "time", lambda: real() + seconds)


def asks_the_wall(code: str) -> bool:
    """Whether it names the wall clock, under whatever name it has imported it."""
    tree = ast.parse(code)
    origins: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            origins |= {one.asname: one.name for one in node.names if one.asname}
        elif isinstance(node, ast.ImportFrom):
            origins |= {one.asname or one.name: f"{node.module}.{one.name}" for one in node.names}
    names = {ast.unparse(node) for node in ast.walk(tree) if isinstance(node, ast.Attribute | ast.Name)}
    heads = [name.partition(".") for name in names]
    return not THE_WALL.isdisjoint({origins.get(head, head) + dot + rest for head, dot, rest in heads})


@pytest.mark.parametrize(
    "code",
    [
        "import time; time.time()",
        "import time; ask = time.time_ns",
        "import time as t; t.time()",
        "from time import time; time()",
        "from time import time_ns as now; now()",
        "import datetime; datetime.datetime.now()",
        "import datetime as dt; dt.datetime.utcnow()",
        "from datetime import datetime; datetime.now(UTC)",
        "from datetime import datetime; datetime.utcnow()",
        "from datetime import datetime as moment; moment.today()",
        "from datetime import date; date.today()",
        "def f():\n    from penstock.clock import wall_time\n    return wall_time",
        "from penstock import clock; clock.wall_time()",
    ],
)
def test_the_wall_clock_is_known_by_all_its_names(code: str) -> None:
    assert asks_the_wall(code)


@pytest.mark.parametrize(
    "code",
    [
        "import time; time.monotonic(); time.localtime(7)",
        "from datetime import UTC, datetime; datetime(2026, 1, 1, tzinfo=UTC); datetime.fromisoformat(text)",
        "def f(time): return event.time",
    ],
)
def test_other_times_are_not_taken_for_it(code: str) -> None:
    assert not asks_the_wall(code)


def test_the_wall_clock_is_asked_where_a_reason_is_given_and_nowhere_else() -> None:
    files = {str(file.relative_to(SOURCES)): file for file in SOURCES.rglob("*.py")}
    asked = {name for name, file in files.items() if asks_the_wall(file.read_text())}
    assert asked <= ON_THE_WALL.keys(), "a duration is measured by run_time() or time.monotonic()"


def test_the_time_of_a_run_starts_with_the_wall_clock_and_does_not_follow_it() -> None:
    wall, steady = SimpleNamespace(now=1_000.0), SimpleNamespace(now=5.0)
    clock = Clock(lambda: wall.now, lambda: steady.now)
    assert clock.run_time() == 1_000
    steady.now, wall.now = 15.0, 1_010.0 + HOUR
    assert clock.run_time() == 1_010
    # What was ten seconds ago is shown, and asked for, as ten seconds ago.
    assert clock.shown(1_000) == 1_000 + HOUR
    assert clock.meant(1_000 + HOUR) == 1_000
    wall.now = 1_010.2
    assert clock.shown(1_000) == 1_000, "nobody sees less than a second"


@JUMPS
def test_the_time_of_this_process_does_not_jump(set_wall: Set, jump: float) -> None:
    before = run_time()
    set_wall(jump)
    assert 0 <= run_time() - before < 60
    assert shown(before) == pytest.approx(before + jump, abs=60)
    assert meant(shown(before)) == pytest.approx(before)


@JUMPS
def test_a_rate_source_goes_on_at_its_rate(jump: float) -> None:
    """In a process of its own, whose wall clock can be set before anything is imported."""
    script = f"""
import time
real, ahead = time.time, [0.0]
time.time = lambda: real() + ahead[0]
from types import SimpleNamespace
from penstock import sources
from penstock.cluster.model import Slot
from penstock.clock import run_time
from penstock.kinds import SourcePlace
from penstock.engine.message.shares import Bundle
from penstock.monitor.history import HistoryQuery, SeriesHistory
from penstock.monitor.series import SeriesKey
feed = sources.rate(1).offsets(SourcePlace("rows", None, run_time))
assert feed.available() == 0
ahead[0] = {jump}
time.sleep(1.1)
assert 1 <= feed.available() < 60, feed.available()
feed.position = feed.available()
assert feed.due_in() <= 1, feed.due_in()
ahead[0] = 0.0
assert feed.available() < 60, feed.available()
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr


@JUMPS
def test_what_is_asked_for_after_a_change_is_seen_as_after_it(set_wall: Set, jump: float) -> None:
    """A change is done when a batch that was asked for later ran by it: a healthy one was rolled back otherwise."""
    slots = Cluster.of(["a", "b"], 1, cores=1).slots
    arrangement = Arrangement(Placement({"work": {slots[0]: 1}}), lambda: frozenset(slots))
    seats = Seats(lambda: [Bundle(slots[0], 1)], lambda slot: None)
    seats.bundles()
    asked_before = seats.take_requested().at
    arrangement.plan(Placement({"work": {slots[1]: 1}}))
    set_wall(jump)
    seats.bundles()
    asked_after = seats.take_requested().at
    assert asked_before <= arrangement.changed_at <= asked_after < arrangement.changed_at + 60


@JUMPS
def test_a_history_is_asked_for_and_shown_by_the_clock_on_the_wall(set_wall: Set, jump: float) -> None:
    started = run_time() - 600
    written = [started - 50, started + 100, started + 590]
    asked: list[HistoryQuery] = []

    class WithHistory(RecordingTopology):
        def history(self, query: HistoryQuery) -> list[SeriesHistory]:
            asked.append(query)
            times = [at for at in written if query.since <= at < query.until]
            return [SeriesHistory(SeriesKey("work"), times, [10.0] * len(times), {"rows": [1.0] * len(times)})]

    topology = WithHistory(DEFINITION, CLUSTER)
    topology.started_at = started
    steering = Steering(topology, "local", lambda drain: None)
    set_wall(jump)
    on_the_wall = time.time()
    # The last five minutes, as somebody means it who looks at the clock now.
    answer = steering.history(HistoryRequest(["rows"], on_the_wall - 300))
    assert answer["series"][0]["times"] == pytest.approx([on_the_wall - 10], abs=5)
    # Since before this run began: what an earlier run wrote down stays as it was written.
    answer = steering.history(HistoryRequest(["rows"], min(on_the_wall, started) - 3000))
    assert answer["series"][0]["times"] == pytest.approx([started - 50, on_the_wall - 500, on_the_wall - 10], abs=5)
    steering.close()
