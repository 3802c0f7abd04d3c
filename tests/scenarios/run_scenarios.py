"""Runs the scenarios and prints a table; with --plots, draws each of them. `make scenarios` calls it."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from catalogue import SCENARIOS
from scenario import HOUR, Scenario
from tables import table

from penstock.simulator import Trace


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="names of scenarios, with commas between them")
    parser.add_argument("--strategy", default="", help="only with this strategy")
    parser.add_argument("--plots", type=Path, help="a folder for one plot a scenario")
    parser.add_argument("--trace", action="store_true", help="print what happened, also where the scenario holds")
    arguments = parser.parse_args()
    names = [name for name in arguments.only.split(",") if name]
    if unknown := set(names) - {one.name for one in SCENARIOS}:
        parser.error(f"there is no scenario {', '.join(sorted(unknown))}")
    chosen = [one for one in SCENARIOS if not names or one.name in names]
    chosen = [one for one in chosen if arguments.strategy in ("", one.strategy)]
    failed, began = 0, time.process_time()
    print(f"{'scenario':48} {'strategy':9} {'hours':>6} {'operations':>10} {'CPU':>6}  verdict")
    for scenario in chosen:
        start = time.process_time()
        trace = scenario.run()
        outcome = scenario.judge(trace)
        failed += bool(outcome.surprises)
        seconds = time.process_time() - start
        print(
            f"{scenario.name:48} {scenario.strategy:9} {scenario.hours:6g} {len(trace.operations):10} "
            f"{seconds:5.1f}s  {outcome}",
            flush=True,
        )
        if arguments.trace:
            print(table(scenario, trace))
            print(
                "\n".join(f"{at / HOUR:8.2f} {kind}: {text}"[:220] for at, kind, text in trace.told[-60:]), end="\n\n"
            )
        if arguments.plots is not None:
            draw(scenario, trace, arguments.plots)
    print(f"{len(chosen)} scenarios, {failed} not as expected, {time.process_time() - began:.0f} s of CPU")
    return 1 if failed else 0


def draw(scenario: Scenario, trace: Trace, folder: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    folder.mkdir(parents=True, exist_ok=True)
    hours = [one.at / HOUR for one in trace.moments]
    figure, (above, below) = pyplot.subplots(2, 1, sharex=True, figsize=(10, 6))
    above.plot(hours, [one.offered for one in trace.moments], label="offered", color="lightgrey")
    above.plot(hours, [one.throughput for one in trace.moments], label="throughput")
    above.plot(hours, [scenario.required(scenario.demand.rate(one.at)) for one in trace.moments], "--", label="needed")
    above.set_ylabel("rows a second")
    above.legend()
    below.step(hours, [one.machines for one in trace.moments], where="post", label="machines")
    fewest = [scenario.fewest(scenario.demand.rate(one.at), one.at) for one in trace.moments]
    below.step(hours, fewest, "--", where="post", label="fewest machines")
    below.step(hours, [sum(one.instances.values()) for one in trace.moments], where="post", label="instances")
    below.set_xlabel("hours")
    below.legend()
    figure.suptitle(scenario.title)
    figure.savefig(folder / f"{scenario.title}.png", dpi=80)
    pyplot.close(figure)


if __name__ == "__main__":
    sys.exit(main())
