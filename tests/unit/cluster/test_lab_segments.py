"""Segments over the real links of a lab, without Spark: the parent of an executor's Python workers starts the server of
its machine and joins the machine's group; a reader on another machine fetches."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from lab_here import ONE, TWO, needs_a_lab, two_machines

import penstock
from penstock.channels.origins import Origins
from penstock.channels.segments import SegmentStore
from penstock.cluster.lab.ground import GROUPS_VARIABLE, LabGround
from penstock.cluster.lab.sizes import LabShape, MachineSize

pytestmark = needs_a_lab()
LINK = 20e6
ROWS, PAYLOAD = 4000, 1000
DAEMON = """
import os, time
from pathlib import Path
from penstock.engine.executor import worker_daemon
worker_daemon.serve_segments()
worker_daemon.join_groups()
print(Path("/proc/self/cgroup").read_text().replace("\\n", " "), flush=True)
time.sleep(300)
"""
READER = """
import json, os, sys, time
from penstock.channels.origins import Origins
from penstock.channels.segments import SegmentStore
from penstock.engine.executor import fetching
from penstock.engine.message.shares import Piece, Spread
from penstock.monitor.read_counts import ReadCounts
root, paths, rows, host = sys.argv[1], sys.argv[2].split(","), int(sys.argv[3]), sys.argv[4]
store = SegmentStore(root, origins=Origins.of_environment(os.environ))
pieces = [Piece(path, 0, rows, Spread.SHUFFLE, 0.0, 0.0, f"{host}/0") for path in paths]
counts = ReadCounts()
began = time.perf_counter()
fetched = fetching.FetchedRows(store, pieces, counts)
batches = [batch for piece in pieces for batch in fetched.of(piece, 0, rows)]
seconds = time.perf_counter() - began
numbers = [n for batch in batches for n in batch.column("n").to_pylist()]
right = numbers == list(range(rows * len(paths)))
size = sum(batch.nbytes for batch in batches)
told = {"right": right, "bytes": size, "seconds": seconds, "away": list(fetching._AWAY), "links": counts.links}
print(json.dumps(told), flush=True)
"""


@pytest.fixture
def ground() -> Iterator[LabGround]:
    with two_machines(LabShape(MachineSize(1.0, 400, LINK))) as ground:
        yield ground


@pytest.fixture
def segment(tmp_path: Path) -> tuple[str, str]:
    """The root and the path of a segment."""
    root = str(tmp_path / "segments")
    rows = pa.record_batch({"n": pa.array(range(ROWS), pa.int64()), "text": pa.repeat(pa.scalar("x" * PAYLOAD), ROWS)})
    return root, SegmentStore(root).write("a.out", "one", [rows], rows.schema).path


def started(ground: LabGround, origins: Origins, host: str, tmp_path: Path, script: str, *words: str):
    own = tmp_path / f"tmp-{host}"
    own.mkdir(exist_ok=True)
    environment = {
        **os.environ,
        **origins.as_variable(),
        **ground.environment(host),
        "PYTHONPATH": str(Path(penstock.__file__).parents[1]),
        "SPARK_LOCAL_IP": host,
        "TMPDIR": str(own),
    }
    with ground.within(host):
        return subprocess.Popen(
            [sys.executable, "-c", script, *words], env=environment, stdout=subprocess.PIPE, text=True
        )


def read(
    ground: LabGround, origins: Origins, tmp_path: Path, segment: tuple[str, str], rows: int = ROWS
) -> dict[str, object]:
    with started(ground, origins, TWO, tmp_path, READER, *segment, str(rows), ONE) as reader:
        answer, _ = reader.communicate(timeout=120)
    assert reader.returncode == 0
    found: dict[str, object] = json.loads(answer)
    return found


def test_rows_come_over_the_link_and_from_the_store_when_the_machine_is_gone(ground, segment, tmp_path):
    origins = Origins.with_new_token(7447, 1 << 20)
    with started(ground, origins, ONE, tmp_path, DAEMON) as daemon:
        assert daemon.stdout is not None
        joined = daemon.stdout.readline()
        for folder in ground.environment(ONE)[GROUPS_VARIABLE].split(":"):
            assert Path(folder).name in joined, "the parent of the workers is in the group of its machine"
        [server] = servers_of(daemon.pid)
        assert Path(ground.environment(ONE)[GROUPS_VARIABLE].split(":")[0]).name not in groups_of(server)
        deadline = time.monotonic() + 60
        while True:  # the server needs a moment to come up
            before = ground.readings()
            found = read(ground, origins, tmp_path, segment)
            after = ground.readings()
            assert found["right"]
            if not found["away"]:
                break
            assert time.monotonic() < deadline, "the server of the machine never answered"
        size = ROWS * PAYLOAD
        came = after[TWO].received_bytes - before[TWO].received_bytes
        assert came == pytest.approx(size, rel=0.05), "the link carried the rows, and little more"
        assert after[ONE].sent_bytes - before[ONE].sent_bytes == pytest.approx(size, rel=0.05)
        # Never faster than the link, but for what its bucket holds.
        assert size * 8 / float(str(found["seconds"])) < LINK * 1.15
        daemon.send_signal(signal.SIGKILL)
    deadline = time.monotonic() + 10
    while Path(f"/proc/{server}").exists():
        assert time.monotonic() < deadline, "the server ends with its parent"
        time.sleep(0.05)
    before = ground.readings()
    found = read(ground, origins, tmp_path, segment)
    assert (found["right"], found["away"]) == (True, [ONE])
    assert ground.readings()[TWO].received_bytes - before[TWO].received_bytes < size / 10


@pytest.mark.parametrize(
    ("segments", "rows", "payload", "least"), [(1, 4000, 1000, 0.95), (20, 1000, 20, 0.95), (300, 20, 10, 0.6)]
)
def test_what_is_counted_is_what_the_interfaces_carried(ground, tmp_path, segments, rows, payload, least):
    """Of many small pieces the frames around each are more than of a few large ones."""
    origins, root = Origins.with_new_token(7447, 1 << 20), str(tmp_path / "segments")
    store, paths = SegmentStore(root), []
    for number in range(segments):
        numbers = pa.array(range(number * rows, (number + 1) * rows), pa.int64())
        batch = pa.record_batch({"n": numbers, "text": pa.repeat(pa.scalar("x" * payload), rows)})
        paths.append(store.write("a.out", f"{number}", [batch], batch.schema).path)
    with started(ground, origins, ONE, tmp_path, DAEMON) as daemon:
        assert daemon.stdout is not None
        daemon.stdout.readline()
        deadline = time.monotonic() + 60
        while True:  # the server needs a moment to come up
            before = ground.readings()
            found = read(ground, origins, tmp_path, (root, ",".join(paths)), rows)
            after = ground.readings()
            if not found["away"]:
                break
            assert time.monotonic() < deadline, "the server of the machine never answered"
        daemon.send_signal(signal.SIGKILL)
    assert found["right"]
    [(machine, counted)] = dict(found["links"]).items()  # type: ignore[call-overload]
    assert machine == ONE
    received = after[TWO].received_bytes - before[TWO].received_bytes
    sent = after[ONE].sent_bytes - before[ONE].sent_bytes
    print(f"{segments} of {rows}: {counted:,} counted, {received:,} received, {found['bytes']:,} of rows")
    assert least * received < counted < received
    assert least * sent < counted < sent


def servers_of(daemon: int) -> list[int]:
    children = Path(f"/proc/{daemon}/task/{daemon}/children").read_text().split()
    return [int(child) for child in children]


def groups_of(process: int) -> str:
    return Path(f"/proc/{process}/cgroup").read_text()
