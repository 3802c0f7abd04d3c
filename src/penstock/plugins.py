"""Policies, mappings, sources and sinks by name: those of Penstock, and those of packages that are installed beside it.

A package registers what it brings as entry points in its pyproject.toml:

    [project.entry-points."penstock.policies"]
    steady = "acme.steady:Steady"

An entry point names a class (or a function without arguments) that gives the policy or mapping, or the kind of a source
or sink. Nothing is imported before somebody asks for it by its name; the names alone are known without any import.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from penstock.errors import PenstockError
from penstock.logs import LOGGER

POLICIES = "penstock.policies"
MAPPINGS = "penstock.mappings"
SOURCES = "penstock.sources"
SINKS = "penstock.sinks"


@dataclass(frozen=True)
class EntryPointGroup:
    """What a group is called in messages, and the name of the error about a name that the group does not have."""

    what: str
    unknown: str


GROUPS: Mapping[str, EntryPointGroup] = {
    POLICIES: EntryPointGroup("scaling strategy", "UNKNOWN_STRATEGY"),
    MAPPINGS: EntryPointGroup("mapping", "UNKNOWN_MAPPING"),
    SOURCES: EntryPointGroup("kind of source", "UNKNOWN_SOURCE"),
    SINKS: EntryPointGroup("kind of sink", "UNKNOWN_SINK"),
}

#: What Penstock itself brings, written as entry points are: group -> name -> where it is.
BUILT_IN: Mapping[str, Mapping[str, str]] = {
    POLICIES: {
        name: f"penstock.autoscaler.policies:{name}"
        for name in (
            "gain",
            "stela",
            "stela_capacity",
            "storm",
            "nearest_to_source",
            "nearest_to_sink",
            "most_descendants",
            "centrality",
            "least_link_load",
            "most_link_load",
        )
    }
    | {"threshold": "penstock.autoscaler.threshold:Threshold"},
    MAPPINGS: {
        "chained": "penstock.strategies.mapping.chained:Chained",
        "round_robin": "penstock.strategies.mapping.round_robin:RoundRobin",
        "fewest_moves": "penstock.strategies.mapping.fewest_moves:FewestMoves",
        "traffic_aware": "penstock.strategies.mapping.traffic_aware:TrafficAware",
        "storm_default": "penstock.strategies.mapping.storm_default:StormDefault",
    },
    SOURCES: {
        "rate": "penstock.sources.rate_source:rate",
        "files": "penstock.sources.file_source:files",
        "kafka": "penstock.sources.kafka_source:kafka",
        "redis": "penstock.sources.redis_source:redis",
        "dataframe": "penstock.sources.dataframe_source:dataframe",
        "socket": "penstock.sources.dataframe_source:socket",
    },
    SINKS: {
        "parquet": "penstock.sinks.parquet_sink:parquet",
        "jdbc": "penstock.sinks.jdbc_sink:jdbc",
        "kafka": "penstock.sinks.kafka_sink:kafka",
        "console": "penstock.sinks.console_sink:console",
        "noop": "penstock.sinks.noop_sink:noop",
        "arrow": "penstock.sinks.arrow_sink:arrow",
        "function": "penstock.sinks.function_sink:function",
    },
}
#: The package that brings what is in BUILT_IN.
OWN = "penstock"


def names(group: str) -> tuple[str, ...]:
    """Every name of a group, Penstock's own first."""
    return tuple(_entries(group))


def require(group: str, name: str) -> None:
    """Refuse a name that nobody has registered. Nothing is imported."""
    if name in BUILT_IN[group]:
        return
    if name not in (known := _entries(group)):
        kind = GROUPS[group]
        raise PenstockError(kind.unknown, f'there is no {kind.what} "{name}".', f"There are: {', '.join(known)}.")


def find(group: str, name: str) -> Any:
    """What is registered under a name, imported."""
    require(group, name)
    found = _entries(group)[name]
    if len({package for package, _ in found}) > 1:
        packages = sorted({package for package, _ in found})
        hint = "Uninstall all of them but one."
        if OWN in packages:
            hint = "Penstock has one of that name itself: uninstall the other package, or choose another name there."
        raise PenstockError(
            "DUPLICATE_PLUGIN",
            f'the {GROUPS[group].what} "{name}" is registered by several packages: {", ".join(packages)}.',
            hint,
        )
    _, entry = found[0]
    try:
        return entry.load()
    except Exception as problem:  # a stranger's module may raise whatever it likes
        raise failed(group, name, problem) from problem


def check_loadable(strategy: str, mapping: str) -> None:
    """Refuse a strategy or mapping that cannot be loaded, before anything is started with it."""
    for group, name in ((POLICIES, strategy), (MAPPINGS, mapping)):
        find(group, name)


def build(group: str, name: str) -> Any:
    """Call the class or function that is registered under a name, without arguments, and return the result."""
    maker: Callable[[], Any] = find(group, name)
    try:
        return maker()
    except Exception as problem:
        raise failed(group, name, problem) from problem


def package_of(group: str, name: str) -> str:
    """The package that registered a name."""
    require(group, name)
    return _entries(group)[name][0][0]


def _entries(group: str) -> dict[str, list[tuple[str, EntryPoint]]]:
    """Name -> who registers it (one package, if all is well) and where it is."""
    found = {name: [(OWN, EntryPoint(name, value, group))] for name, value in BUILT_IN[group].items()}
    for entry in sorted(entry_points(group=group), key=lambda entry: entry.name):
        package = entry.dist.name if entry.dist is not None else "unknown"
        if package != OWN:
            found.setdefault(entry.name, []).append((package, entry))
    return found


def failed(group: str, name: str, problem: Exception | str) -> PenstockError:
    """The error about a policy, mapping, source or sink that failed; `problem` is what it raised, or says it in
    words."""
    package = package_of(group, name)
    if isinstance(problem, str):
        text = problem
    else:
        text = f"{type(problem).__name__}: {problem}"
        LOGGER.error('the %s "%s" of the package %s failed', GROUPS[group].what, name, package, exc_info=problem)
    return PenstockError(
        "PLUGIN_FAILED",
        f'the {GROUPS[group].what} "{name}" of the package {package} failed: {" ".join(text.split())[:300]}.',
        f"Install another version of {package}, or choose another {GROUPS[group].what}.",
    )
