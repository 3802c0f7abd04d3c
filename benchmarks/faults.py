"""The fault campaign: `make faults`. Processes of a running, changing topology are killed by chance; it is verified
that nothing was lost, doubled or out of order, and reported how long the stream took to be back, by kind of fault.

    python benchmarks/faults.py [--seed N] [--kills 28]

The seed is printed: the same seed gives the same kinds of kills and changes in the same order, not at the same moments.
"""

from __future__ import annotations

import argparse
import random
import secrets
import sys
import tempfile
import time
from pathlib import Path

from results import Bar, finish, machine, write_results

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "spark"))

from fault_campaign import KINDS, Campaign, by_kind

#: Executors are lost most often in practice.
WEIGHTS = {"executor": 10, "worker": 8, "master": 4, "driver": 6}
RATE = 500.0
#: The driver's processes live for minutes, and many are started: Java's second compiler would take the two cores.
METHOD = """\
A topology (source, map, keyed operator with 4 tasks, two Parquet sinks) on a standalone cluster of two machines, at
{rate:g} rows/s, is changed all the time by chance: instances, tasks, machines in and out. SIGKILL goes to one process
at a time, half of them in the middle of a change; a killed driver is started again on its state. "Back" is the time
from the kill to the first window of 5 s whose throughput at the sink is at least 90% of that of the 5 s before it;
kills that were followed by the next one before that have no figure. With a killed driver, the time includes the start
of a new one with its cluster.

Changes: {outcomes}
"""


def kinds_of(seed: int, kills: int) -> list[str]:
    """All kinds in proportion, in an order by chance."""
    whole = sum(WEIGHTS.values())
    kinds = [kind for kind in KINDS for _ in range(round(kills * WEIGHTS[kind] / whole))]
    kinds += ["executor"] * (kills - len(kinds))
    random.Random(seed).shuffle(kinds)
    return kinds[:kills]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--kills", type=int, default=28)
    options = parser.parse_args()
    seed = secrets.randbelow(1_000_000) if options.seed is None else options.seed
    print(f"seed {seed}", flush=True)
    began = time.time()

    def tell(text: str) -> None:
        print(f"{time.time() - began:7.1f} s  {text}", file=sys.stderr, flush=True)

    temporary = set(Path(tempfile.gettempdir()).iterdir())
    with tempfile.TemporaryDirectory(prefix="penstock-faults-") as folder:
        campaign = Campaign(Path(folder), seed, RATE, kinds_of(seed, options.kills), tell=tell)
        verdict = ""
        try:
            campaign.run()
        except AssertionError as problem:
            verdict = str(problem)
            print(verdict, file=sys.stderr)
    left = [path.name for path in Path(tempfile.gettempdir()).iterdir() if path not in temporary]
    outcomes = ", ".join(f"{count} {outcome}" for outcome, count in campaign.outcomes.most_common())
    lines = [
        f"Seed {seed}, {time.time() - began:.0f} s, {campaign.emitted} rows emitted.",
        "",
        METHOD.format(rate=RATE, outcomes=outcomes),
        "| killed | times | in a change | with a figure | back after s, median | range |",
        "| --- | --- | --- | --- | --- | --- |",
        *by_kind(campaign.kills),
        "",
        f"Left in the temporary folder: {', '.join(left) or 'nothing'}. Processes left would have ended the campaign.",
        "",
    ]
    print("\n".join(lines))
    bars = [
        Bar("faults: kills", len(campaign.kills), 25, at_most=False),
        Bar("faults: files or folders left in the temporary folder", len(left), 0, at_most=True),
        Bar(
            "faults: rows lost, doubled, out of order or wrongly counted (0 = verified, 1 = not)",
            bool(verdict),
            0,
            True,
        ),
    ]
    write_results("faults", lines, bars, machine())
    return finish(bars)


if __name__ == "__main__":
    sys.exit(main())
