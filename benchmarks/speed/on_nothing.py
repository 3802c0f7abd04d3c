"""The limit: the same functions in two bare processes over the same files, without any engine.

python on_nothing.py WORKLOAD FOLDER
"""

from __future__ import annotations

import json
import sys
import time
from multiprocessing import get_context
from multiprocessing.synchronize import Barrier

from functions import CHAIN, ArrowFunction, batches_of, files_of, steps

PROCESSES = 2
WORKLOADS: dict[str, list[ArrowFunction]] = {"chain": list(CHAIN), "linear": steps(10)}


def work(workload: str, files: list[str], ready: Barrier) -> None:
    functions = WORKLOADS[workload]
    ready.wait()
    for file in files:
        for batch in batches_of(file):
            for function in functions:
                batch = function(batch)  # noqa: PLW2901 - what comes out of one goes into the next
    ready.wait()


def main() -> None:
    workload, folder = sys.argv[1:3]
    files = files_of(folder)
    context = get_context("spawn")
    ready = context.Barrier(PROCESSES + 1)
    processes = [
        context.Process(target=work, args=(workload, files[index::PROCESSES], ready)) for index in range(PROCESSES)
    ]
    for process in processes:
        process.start()
    ready.wait()
    started = time.perf_counter()
    ready.wait()
    print(json.dumps({"seconds": time.perf_counter() - started}))
    for process in processes:
        process.join()


if __name__ == "__main__":
    main()
