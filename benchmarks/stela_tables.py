"""Tables and plots of what benchmarks/stela.py measured."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence

from results import RESULTS, Bar
from stela_oracle import ORACLE, judged
from stela_runs import Result

Say = Callable[[str], None]


def at_zero(found: Result) -> float:
    return found.measured.time_at_zero


def after_of(found: Result) -> float:
    return found.measured.after


def oracle_bars(name: str, results: Mapping[str, Sequence[Result]], least: Mapping[str, float]) -> list[Bar]:
    """What these strategies reached, over what the best assignment reached when it was carried out; medians."""
    if ORACLE not in results:
        return []
    top = middle(results[ORACLE], after_of)
    return [
        Bar(f"{name}, {chosen}: after / oracle, both measured", middle(results[chosen], after_of) / top, bound, False)
        for chosen, bound in least.items()
        if chosen in results
    ]


def prediction_bars(results: Iterable[Result], say: Say) -> list[Bar]:
    """Predicted throughput against what was measured, over all operations of the campaign. The bars are on what a
    controller expects; the strategies' own projections stand beside it. Records that were kept without an expectation
    are left out of the figures, and the bars say so; bars for which too few are left are missed."""
    operations = list(results)
    if len(operations) < 2:
        return []
    found = judged([(one.expected, one.measured.after) for one in operations if one.expected is not None])
    own = judged([(one.predicted, one.measured.after) for one in operations])
    say("| throughput after an operation | expected, as in `penstock decisions` | the strategy's own projection |")
    say("| --- | --- | --- |")
    say(f"| operations with this figure, of {len(operations)} | {found.operations} | {own.operations} |")
    say(f"| median error, of what was measured | {found.median_error:.1%} | {own.median_error:.1%} |")
    say(f"| R2 | {found.r2:.3f} | {own.r2:.3f} |\n")
    over = "all" if found.operations == len(operations) else f"{found.operations} of {len(operations)}"
    return [
        Bar(f"expected throughput: median error over {over} operations", found.median_error, 0.1, at_most=True),
        Bar(f"expected throughput: R2 over {over} operations", found.r2, 0.95, at_most=False),
    ]


def middle(results: Sequence[Result], get: Callable[[Result], float | None]) -> float:
    values = [value for one in results if (value := get(one)) is not None]
    return statistics.median(values) if values else float("nan")


def table(results: Mapping[str, Sequence[Result]], say: Say) -> None:
    say(
        "| strategy | before, rows/s | after, rows/s (from - to) | gain | of the oracle's | new instances "
        "| corrections | expected | own projection | best | duty | converged, s (paper / thesis / settled) | s at zero "
        "| s below 90% | operation, s |"
    )
    say("| --- |" + " --- |" * 14)
    oracle = middle(results.get(ORACLE, ()), after_of)
    for name, found in results.items():
        after = sorted(one.measured.after for one in found)
        converged = [
            middle(found, lambda one: one.measured.convergence),
            middle(found, lambda one: one.measured.convergence_sigma),
            middle(found, lambda one: one.measured.settled),
        ]
        say(
            f"| {name} | {middle(found, lambda one: one.measured.before):,.0f} "
            f"| {statistics.median(after):,.0f} ({after[0]:,.0f} - {after[-1]:,.0f}) "
            f"| {middle(found, lambda one: one.measured.after / one.measured.before - 1):+.0%} "
            f"| {middle(found, after_of) / oracle:.2f} | {len(found[0].new)} "
            f"| {middle(found, lambda one: one.corrections):.0f} | {middle(found, lambda one: one.expected):,.0f} "
            f"| {middle(found, lambda one: one.predicted):,.0f} "
            f"| {middle(found, lambda one: one.best):,.0f} | {middle(found, lambda one: one.duty):.2f} "
            f"| {' / '.join(f'{one:.0f}' for one in converged)} | {middle(found, at_zero):.0f} "
            f"| {middle(found, lambda one: one.measured.time_below):.0f} "
            f"| {middle(found, lambda one: one.seconds):.1f} |"
        )


def plot(name: str, title: str, results: Mapping[str, Sequence[Result]]) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(9, 4))
    for number, (chosen, found) in enumerate(results.items()):
        for index, one in enumerate(found):
            axes.plot(
                [sample.at - one.began for sample in one.timeline],
                [sample.throughput for sample in one.timeline],
                color=f"C{number}",
                alpha=1.0 if index == 0 else 0.35,
                label=chosen if index == 0 else None,
            )
    axes.axvline(0, color="grey", linestyle="--", label="operation begins")
    axes.set(xlabel="s", ylabel="rows/s at the sinks", title=title, ylim=(0, None))
    axes.legend()
    figure.tight_layout()
    RESULTS.mkdir(exist_ok=True)
    figure.savefig(RESULTS / f"{name}.png", dpi=100)
    pyplot.close(figure)
