"""What the soak counts of files and memory."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import psutil

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

from soak_probe import MB, SERIES, Probe, _own_memory


def test_a_file_with_several_names_counts_once(tmp_path: Path) -> None:
    state, temporary = tmp_path / "state", tmp_path / "tmp"
    temporary.mkdir()
    files = {
        "checkpoints/count/1.changelog": 1,
        "segments/a/1.arrow": 2,
        "statistics.sqlite": 4,
        "cluster/scratch/127.0.0.2/000007.sst": 8,
        "cluster/127.0.0.2/app-1/0/stderr": 16,
        "cluster/master.log": 32,
        "logs/penstock.log": 64,
        "topology.json": 128,
    }
    for name, size in files.items():
        (state / name).parent.mkdir(parents=True, exist_ok=True)
        (state / name).write_bytes(b"x" * (size << 10))
    for number in range(3):
        os.link(state / "cluster/scratch/127.0.0.2/000007.sst", state / f"cluster/scratch/127.0.0.2/{number}.sst")
        os.link(state / "checkpoints/count/1.changelog", state / f"checkpoints/count/{number}.link")
    seen = Probe(os.getpid(), state, temporary)._files()
    assert seen.keys() <= SERIES.keys()
    in_kb = {name: value * MB / 1024 for name, value in seen.items() if name.endswith("MB")}
    assert in_kb == {
        "state without statistics, MB": 1 + 2 + 128,
        "statistics, MB": 4,
        "scratch files, MB": 8,
        "logs, MB": 16 + 32 + 64,
    }
    counts = {name: value for name, value in seen.items() if not name.endswith("MB")}
    assert counts == {
        "files of checkpoints": 1,
        "files of segments": 1,
        "other files of the state": 1,
        "temporary files": 0,
    }


def test_memory_of_processes_adds_up_to_what_they_take() -> None:
    me = psutil.Process()
    assert 0 < _own_memory(me) <= me.memory_info().rss / MB * 1.01
