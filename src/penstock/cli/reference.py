"""The reference pages, made from the code: `python -m penstock.cli.reference docs` writes them, a test compares."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import get_args

from penstock import PUBLIC, plans, settings
from penstock.api.handle import Handle
from penstock.api.reads import Reads
from penstock.api.steering import Steering
from penstock.errors import ERRORS
from penstock.extending import EXTENDING
from penstock.monitor.metric import METRICS

_MADE = "<!-- Made by `make docs` from the code. Do not edit. -->"
_PYTHON = f"""\
{_MADE}

# Penstock from Python

These names are the public interface. A program needs no other module of Penstock, and no other module is promised to
stay as it is.
"""
_PLANS = """\
The handle asks for a change by name, and waits in line. A program can also make plans and carry them out itself:

    from penstock import plans

    with penstock.run(topology, cluster="standalone", machines=2) as running:
        a, b = running.run.cluster.slots
        planned = running.run.placements.planned
        outcome = running.changes.carry_out(plans.set_instances(planned, "split", {a: 1, b: 3}))
        running.changes.carry_out(plans.move_tasks("count", {0: b, 4: b}))
        running.changes.carry_out(plans.add_machines(running.run.upcoming(1)))
        running.changes.carry_out(plans.set_tasks("count", 16))

`carry_out` returns when Spark was seen to run the plan, or when Penstock has rolled it back: `outcome.status` and
`outcome.reason` say which and why, `outcome.steps` how long each step took, and `outcome.placed.moves` from where to
where each task went, with how many bytes of state and how long its operator stood still. `outcome.placed.migrations`
has for each operator whose tasks moved how long every phase took ([control.md](control.md#what-a-move-of-state-cost)
explains the figures), and `changes.migrations.since()` those of earlier changes. Penstock refuses a plan that cannot be
carried out, with a named error, and changes nothing. While another change is under way, the error is `BUSY`.
`changes.leads_to(plan)` says where a plan leads and changes nothing. `changes.cheapest_tasks("count", a, b, 2)` says
which two tasks on slot `a` cost the least to move to `b`: tasks that have been there already, then the smallest.

`running.run` is a `RunningTopology`: definition, settings, cluster, snapshot, placements (planned, requested,
observed), events, statistics, changes, pause and stop. `penstock.testing.RecordingTopology` is one without Spark.
"""


_HANDLE = """\
`penstock.run` returns a `Handle`. These are its methods. Reads return plain dicts and lists, as the control interface
does ([control.md](control.md#http)). An action that changes the placement returns an operation, which `wait_for` takes.
`history` takes a request: `penstock.HistoryRequest(["rate"], since=time.time() - 600)`. `running.run` is the running
topology itself, and `running.changes` carries out plans: see the next section.
"""
#: The end of the steering alone, which leaves the topology running: a program calls `end`.
_NOT_FOR_PROGRAMS = ("close",)
_EXTENSIONS = """\
Policies, guards, mappings, sources and sinks are written with the names of `penstock.extending`:

    from penstock.extending import Answer, Nothing, View

    class Patient:
        def decide(self, view: View) -> Answer:
            return Nothing(f"patient for {len(view.history)} decisions")

[CONTRIBUTING.md](../CONTRIBUTING.md) has a recipe for each, and says how a package registers them.
"""


def settings_page() -> str:
    rows = ([f"`{row['name']}`", row["type"], row["default"], row["range"], row["meaning"]] for row in _settings())
    return _page(
        "Settings",
        "Give them as `penstock run FILE --set NAME=VALUE`, or in Python as `Settings(NAME=VALUE)`. "
        "`penstock settings` prints the same list. [The guide](guide.md#which-setting-to-turn) says which ones to turn "
        "for lower latency, more rows a second, less memory, or less work of the driver.",
        ("name", "type", "default", "range", "meaning"),
        rows,
    )


def errors_page() -> str:
    return _page(
        "Errors",
        "Every mistake has a name that does not change. The command line prints `file:line: NAME: what is wrong and "
        "what to do` to standard error and ends with exit code 2 (1 for `INTERNAL`); with `--json` it prints one "
        "object with `error`, `message`, `hint` and `where` to standard output instead.",
        ("name", "meaning"),
        ([f"`{name}`", meaning] for name, meaning in ERRORS.items()),
    )


def metrics_page() -> str:
    return _page(
        "Metrics",
        "Penstock measures these values of a running topology. They are in the snapshot that strategies read, and in "
        "the history of the statistics store. A value that was not measured is missing, and never 0. The column "
        '"over time" says how the values of short intervals become the value of a longer one.',
        ("name", "unit", "of", "over time", "meaning"),
        (
            [f"`{metric.name}`", metric.unit, ", ".join(metric.of), metric.fold, metric.meaning]
            for metric in METRICS.values()
        ),
    )


def python_page() -> str:
    names = _table(("name of `penstock`", "meaning"), ([f"`{name}`", meaning] for name, (_, meaning) in PUBLIC.items()))
    functions = {name: getattr(plans, name) for name in plans.__all__ if name.islower() and name != "diff"}
    rows = ([f"`plans.{name}{_arguments(made)}`", _first_sentence(made)] for name, made in functions.items())
    actions = ", ".join(f"`{action.__name__}`" for action in get_args(plans.Action))
    return "\n".join(
        [
            _PYTHON,
            *names,
            "",
            "## The handle",
            "",
            _HANDLE,
            *_table(("method", "meaning"), _methods_of_the_handle()),
            "",
            "## Plans of one's own",
            "",
            _PLANS,
            *_table(("plan", "meaning"), rows),
            "",
            f"A plan may also be put together from actions: `plans.Plan((...), reason)` with {actions}. Carrying a "
            "plan out twice is carrying it out once. `plans.diff(before, after)` gives the actions that lead from one "
            "placement to another.",
            "",
            "## Extensions of one's own",
            "",
            _EXTENSIONS,
            *_extensions(),
        ]
    )


def _methods_of_the_handle() -> list[list[str]]:
    """The reads, the actions, and what only the handle has."""
    return [
        [f"`{name}{_arguments(method, without='self')}`", _first_sentence(method)]
        for kind in (Reads, Steering, Handle)
        for name, method in vars(kind).items()
        if inspect.isfunction(method) and not name.startswith("_") and name not in _NOT_FOR_PROGRAMS
    ]


def _extensions() -> list[str]:
    """One table for each kind of extension."""
    lines = []
    for written, names in EXTENDING.items():
        rows = ([f"`{name}`", meaning] for name, (_, meaning) in names.items())
        lines += [f"### {written}", "", *_table(("name of `penstock.extending`", "meaning"), rows), ""]
    return lines


def _arguments(function: Callable[..., object], without: str = "") -> str:
    return f"({', '.join(name for name in inspect.signature(function).parameters if name != without)})"


def _first_sentence(documented: object) -> str:
    return " ".join((inspect.getdoc(documented) or "").split()).partition(". ")[0].rstrip(".") + "."


def pages() -> Mapping[str, str]:
    """File name -> content."""
    return {
        "settings.md": settings_page(),
        "errors.md": errors_page(),
        "metrics.md": metrics_page(),
        "python.md": python_page(),
    }


def _settings() -> list[dict[str, str]]:
    return settings.reference()


def _page(title: str, text: str, headings: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    return "\n".join([_MADE, "", f"# {title}", "", text, "", *_table(headings, rows), ""])


def _table(headings: Iterable[str], rows: Iterable[Iterable[str]]) -> list[str]:
    table = [list(headings), ["---" for _ in headings], *rows]
    return ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in table]


if __name__ == "__main__":
    for name, content in pages().items():
        (Path(sys.argv[1]) / name).write_text(content, encoding="utf-8")
