"""Where a topology's state is: catalog, segments, checkpoints. For one process at a time, and the topology it fits."""

from __future__ import annotations

import fcntl
import json
import os
import secrets
import shutil
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from penstock.channels.catalog import Catalog
from penstock.clock import wall_time
from penstock.errors import PenstockError
from penstock.topology.definition import ByKey, Keyed, Map, Source, TopologyDefinition
from penstock.topology.schema import schema_text

_SHAPE = "shape"
_IDENTITY = "identity"
_PREFIX = "penstock-state-"
#: A temporary folder without a lock that is younger than this may be about to be locked.
_ABANDONED_SECONDS = 60.0


@dataclass
class StateFolder:
    """A folder that is held by this process until it is released; a temporary one is deleted then."""

    path: Path
    temporary: bool
    _lock: IO[str]

    @staticmethod
    def hold(path: str | None) -> StateFolder:
        if path is None:
            _clear_abandoned()
        folder = Path(tempfile.mkdtemp(prefix=_PREFIX)) if path is None else Path(path).absolute()
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            # Nobody else: whoever can open it can also hold it.
            lock = os.fdopen(
                os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600), "a+", encoding="utf-8"
            )
        except OSError as error:
            raise PenstockError(
                "STATE_IN_USE", f"the state folder {folder} cannot be used: {error}.", "Give another one with --state."
            ) from None
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            lock.seek(0)
            holder = lock.read().strip() or "unknown"
            lock.close()
            raise PenstockError(
                "STATE_IN_USE",
                f"process {holder} runs on the state folder {folder}.",
                "Stop it first, or give another folder with --state.",
            ) from None
        lock.truncate(0)
        lock.write(str(os.getpid()))
        lock.flush()
        return StateFolder(folder, path is None, lock)

    def release(self) -> None:
        self._lock.close()
        if self.temporary:
            shutil.rmtree(self.path, ignore_errors=True)

    def sub(self, name: str) -> str:
        folder = self.path / name
        folder.mkdir(mode=0o700, exist_ok=True)
        return str(folder)


def _clear_abandoned() -> None:
    """Delete the temporary state of drivers that were killed: nobody can go on from it."""
    for folder in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        with suppress(OSError), (folder / "lock").open(encoding="utf-8") as lock:
            found = os.fstat(lock.fileno())
            if found.st_uid == os.getuid() and found.st_mtime < wall_time() - _ABANDONED_SECONDS:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)


def check_fit(definition: TopologyDefinition, catalog: Catalog) -> None:
    """Refuse state that another topology wrote: Spark would go on with the old number of tasks, or fail on old rows."""
    shape = _shape(definition)
    recorded = catalog.get_meta(_SHAPE)
    if recorded is not None:
        for operator, old in json.loads(recorded).items():
            new = shape.get(operator)
            # What an older Penstock did not record is not compared.
            changed = ", ".join(key for key, value in old.items() if new is not None and new.get(key) != value)
            if changed:
                raise PenstockError(
                    "STATE_DOES_NOT_FIT",
                    f'"{operator}" has changed ({changed}) since the state was written.',
                    "Undo the change, or start with a new state folder.",
                    definition.operator(operator).where,
                )
    catalog.set_meta(_SHAPE, json.dumps(shape))


def identity_of(catalog: Catalog) -> str:
    """A few letters that no other state has; the same at every start on this one."""
    identity = catalog.get_meta(_IDENTITY)
    if identity is None:
        identity = secrets.token_hex(4)
        catalog.set_meta(_IDENTITY, identity)
    return identity


def _shape(definition: TopologyDefinition) -> dict[str, dict[str, Any]]:
    """What must not change between two runs on the same state."""
    shape: dict[str, dict[str, Any]] = {}
    for operator in definition.operators:
        inputs = [f"{stream.producer}.{stream.output}" for stream in definition.inputs_of(operator.name)]
        facts: dict[str, Any] = {
            "kind": operator.kind,
            "inputs": inputs,
            "outputs": {name: schema_text(schema) for name, schema in operator.outputs.items()},
        }
        if isinstance(operator, Keyed):
            facts |= {"key": list(operator.key), "tasks": operator.tasks, "output_mode": operator.output_mode}
        groupings = [stream.grouping for stream in definition.inputs_of(operator.name)]
        facts |= {"groupings": [str(one) for one in groupings]}
        if isinstance(operator, Map) and any(isinstance(one, ByKey) for one in groupings):
            facts["tasks"] = operator.tasks  # the groups that its rows are split into
        if isinstance(operator, Source):
            facts["source"] = operator.spec.kind
        shape[operator.name] = facts
    return shape
