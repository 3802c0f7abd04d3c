"""A trace as a table that a person can read: what was asked for, and how the topology was before and after."""

from __future__ import annotations

from scenario import HOUR, Scenario

from penstock.simulator import Moment, Trace

#: At most so many lines.
LINES = 40


def table(scenario: Scenario, trace: Trace, lines: int = LINES) -> str:
    """The moments around changes of the load and operations, and some in between."""
    end = scenario.hours * HOUR
    marks = {0.0, end, *scenario.changes, *(step * end / 8 for step in range(1, 8))}
    for one in trace.operations:
        marks |= {one.asked, one.ended, one.ended + 120.0}
    shown: dict[float, Moment] = {}
    for mark in sorted(mark for mark in marks if mark <= end):
        moment = trace.at(mark)
        shown[moment.at] = moment
    head = (
        f"{'hours':>8} {'offered':>9} {'through':>9} {'needed':>9} {'mach.':>6} {'few':>4} {'waiting':>10}  instances"
    )
    rows: list[tuple[float, str]] = [(one.at, _line(scenario, one)) for one in shown.values()]
    for one in trace.operations:
        what = f"{one.action} {one.machines:+d} {dict(one.instances) or ''}"
        rows.append((one.asked, f"{one.asked / HOUR:8.2f}   -> {one.id}. {what}: {one.state}; {one.why}"[:160]))
    texts = [text for _, text in sorted(rows, key=lambda row: row[0])]
    if len(texts) > lines:
        half = lines // 2
        texts = [*texts[:half], f"     ... {len(texts) - 2 * half} lines ...", *texts[-half:]]
    return "\n".join([head, *texts])


def _line(scenario: Scenario, one: Moment) -> str:
    offered = scenario.demand.rate(one.at)
    counts = " ".join(f"{name}={count}" for name, count in one.instances.items())
    counts += "".join(f" ({' - '.join(chain)})" for chain in one.chains)
    return (
        f"{one.at / HOUR:8.2f} {one.offered:9,.0f} {one.throughput:9,.0f} {scenario.required(offered):9,.0f} "
        f"{one.machines:6} {scenario.fewest(offered, one.at):4} {one.waiting:10,}  {counts}"
    )
