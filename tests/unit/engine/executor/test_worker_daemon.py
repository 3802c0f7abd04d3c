"""The daemon that forks the Python workers: everything loaded, and no thread that a fork would lose."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

CHECK = """
import sys
from penstock.engine.executor.worker_daemon import prepare
prepare()
wanted = {"pandas", "pyarrow.compute", "pyarrow.parquet", "pyarrow.pandas_compat", "pyspark.worker"}
wanted |= {f"penstock.{name}" for name in ("engine.executor.bundle", "engine.executor.standing", "sources", "sinks")}
print(*sorted(wanted - set(sys.modules)))
print(*sorted(name for name in sys.modules if name in ("sqlalchemy", "rich", "click")))
"""


#: A worker looks for modules again at its first task, when PySpark has added a folder to the path.
LOOK_AGAIN = """
import importlib, zipimport
from penstock.engine.executor.worker_daemon import prepare
prepare()
read, original = [], zipimport._read_directory
zipimport._read_directory = lambda archive: (read.append(archive), original(archive))[1]
importlib.invalidate_caches()
import found_in_an_archive
print(len(read), found_in_an_archive.VALUE)
"""


def said(program: str, *path: str) -> str:
    environment = os.environ | {"OPENBLAS_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join([*path, *sys.path])}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment, check=True)
    # It would have said so if there were threads.
    assert done.stderr == ""
    return done.stdout.strip()


def test_it_loads_what_workers_need_and_nothing_of_the_driver() -> None:
    assert said(CHECK) == ""


def test_workers_read_no_archive_again(tmp_path: Path) -> None:
    archive = tmp_path / "some.zip"
    with ZipFile(archive, "w") as content:
        content.writestr("found_in_an_archive.py", "VALUE = 7")
    assert said(LOOK_AGAIN, str(archive)) == "0 7"
