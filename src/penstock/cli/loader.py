"""A user's file as a module, and the topologies it declares. Spark is not needed to know what a file declares."""

from __future__ import annotations

import importlib.util
import sys
import traceback
from dataclasses import dataclass
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType

from penstock.autoscaler.guards import Guard
from penstock.errors import Location, PenstockError
from penstock.topology.declaration import Topology


@dataclass(frozen=True)
class Loaded:
    """One topology, and the module that declares it."""

    topology: Topology
    module: ModuleType
    folder: str

    def guards(self) -> tuple[Guard, ...]:
        """The guards that the file gives the controller of its topology, in the variable `guards`."""
        found = getattr(self.module, "guards", ())
        if isinstance(found, (list, tuple)) and all(callable(one) for one in found):
            return tuple(found)
        raise PenstockError(
            "BAD_GUARDS",
            f"the variable guards holds {type(found).__name__}, and not functions of a proposal and a view.",
            "Make it a list of functions, or give the variable another name.",
            Location(str(self.module.__file__), 1),
        )

    def ship_by_value(self) -> None:
        """Have functions of the user's file travel as code, so that no other machine needs the file.

        This imports pyspark; call it when something is going to run.
        """
        from pyspark import cloudpickle

        cloudpickle.register_pickle_by_value(self.module)  # type: ignore[no-untyped-call]


def load(target: str) -> Loaded:
    """The topology that FILE or FILE::NAME means; NAME is the variable or the topology's own name."""
    file, _, name = target.partition("::")
    path = Path(file).absolute()
    if not path.is_file():
        kind = "is a folder" if path.is_dir() else "does not exist"
        raise PenstockError("FILE_NOT_FOUND", f"{file} {kind}.", "Give a Python file that declares a topology.")
    module = _import(path)
    return Loaded(_choose(path, name, _topologies(module)), module, str(path.parent))


def _import(path: Path) -> ModuleType:
    folder = str(path.parent)
    if folder not in sys.path:
        sys.path.insert(0, folder)  # as `python FILE` does: the file may import what lies beside it
    # A file may be called like a module that is loaded already, which must stay what it is.
    name = path.stem if path.stem not in sys.modules else f"topology_{path.stem}"
    loader = SourceFileLoader(name, str(path))
    spec = importlib.util.spec_from_file_location(name, path, loader=loader)
    assert spec is not None  # only without a loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        loader.exec_module(module)
    except (Exception, SystemExit) as error:
        sys.modules.pop(name, None)
        raise _as_named_error(path, error) from None
    return module


def _as_named_error(path: Path, error: BaseException) -> PenstockError:
    """The error of the user's file with the line in it: the innermost one, if it was raised further down."""
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)]
    where = Location(str(path), (lines[-1] if lines else None) or 1)
    if isinstance(error, PenstockError):
        return PenstockError(error.name, error.message, error.hint, error.where or where)
    if isinstance(error, SyntaxError):
        where = Location(error.filename or str(path), error.lineno or 1)
        return PenstockError("FILE_NOT_PYTHON", f"{type(error).__name__}: {error.msg}.", "Correct this line.", where)
    what = f"{type(error).__name__}: {error}".rstrip(": ")
    return PenstockError(
        "FILE_NOT_PYTHON", f"loading the file raised {what}.", f"Try it with: python {path.name}", where
    )


def _topologies(module: ModuleType) -> dict[str, Topology]:
    """By the variable that holds them; one that several variables hold counts once."""
    found: dict[str, Topology] = {}
    for variable, value in vars(module).items():
        if isinstance(value, Topology) and not any(value is other for other in found.values()):
            found[variable] = value
    return found


def _choose(path: Path, name: str, found: dict[str, Topology]) -> Topology:
    start = Location(str(path), 1)
    if not found:
        raise PenstockError(
            "NO_TOPOLOGY",
            "no topology is declared here.",
            'Assign one to a variable: topology = Topology("name").',
            start,
        )
    variables = ", ".join(found)
    if name:
        matching = [one for variable, one in found.items() if name in (variable, one.name)]
        if not matching:
            raise PenstockError("NO_TOPOLOGY", f'there is no topology "{name}".', f"There is: {variables}.", start)
        return matching[0]
    if len(found) > 1:
        second = list(found.values())[1]
        raise PenstockError(
            "SEVERAL_TOPOLOGIES",
            f"there are {len(found)} topologies: {variables}.",
            f"Choose one: {path.name}::{next(iter(found))}",
            second.where,
        )
    return next(iter(found.values()))
