"""The daemon that forks the Python workers: everything loaded, and no thread that a fork would lose."""

from __future__ import annotations

import os
import subprocess
import sys

CHECK = """
import sys
from penstock.engine.executor.worker_daemon import prepare
prepare()
wanted = {"pandas", "pyarrow.compute", "pyarrow.parquet", "pyspark.worker", "penstock.engine.executor.bundle"}
print(*sorted(wanted - set(sys.modules)))
print(*sorted(name for name in sys.modules if name in ("sqlalchemy", "rich", "click")))
"""


def test_it_loads_what_workers_need_and_nothing_of_the_driver() -> None:
    environment = os.environ | {"OPENBLAS_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", CHECK], capture_output=True, text=True, env=environment, check=True)
    assert done.stdout.split() == []
    # It would have said so if there were threads.
    assert done.stderr == ""
