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

#: An archive of a user is replaced while the executor runs, and a worker comes after that.
REPLACED = """
import importlib, os, sys, warnings
from penstock.engine.executor.worker_daemon import prepare
prepare()
warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12 warns of forks beside the allocator's thread
os.replace(sys.path[1] + ".new", sys.path[1])
if not os.fork():
    importlib.invalidate_caches()
    import found_in_an_archive
    print(found_in_an_archive.VALUE, flush=True)
    os._exit(0)
os.wait()
"""


def archive_of(file: Path, **modules: str) -> str:
    with ZipFile(file, "w") as content:
        for name, text in modules.items():
            content.writestr(f"{name}.py", text)
    return str(file)


def said(program: str, *path: str) -> str:
    environment = os.environ | {"OPENBLAS_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join([*path, *sys.path])}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment, check=True)
    # It would have said so if there were threads.
    assert done.stderr == ""
    return done.stdout.strip()


def test_it_loads_what_workers_need_and_nothing_of_the_driver() -> None:
    assert said(CHECK) == ""


def test_workers_read_no_archive_again(tmp_path: Path) -> None:
    archive = archive_of(tmp_path / "some.zip", found_in_an_archive="VALUE = 7")
    assert said(LOOK_AGAIN, archive) == "0 7"


def test_workers_read_an_archive_again_that_was_replaced(tmp_path: Path) -> None:
    archive_of(tmp_path / "some.zip.new", another="#" * 5000, found_in_an_archive="VALUE = 8")
    assert said(REPLACED, archive_of(tmp_path / "some.zip", found_in_an_archive="VALUE = 7")) == "8"
