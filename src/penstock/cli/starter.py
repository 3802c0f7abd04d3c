"""The topology that `penstock init` writes: small enough to read at a glance, and it runs."""

from __future__ import annotations

from pathlib import Path

from penstock.errors import PenstockError
from penstock.topology.graph_rules import NAME, NAME_HINT

STARTER = '''\
"""{name}: readings of sensors, the warm ones counted by sensor.

    penstock show {file}
    penstock run {file} --seconds 20
"""

import pyarrow as pa
import pyarrow.compute as pc

from penstock import Topology, sinks, sources


def warm(readings: pa.RecordBatch) -> pa.RecordBatch:
    """An Arrow function: a batch of rows in, a batch of rows out."""
    return readings.filter(pc.greater(readings.column("celsius"), 25.0))


def count(readings):
    """A DataFrame function over Spark's own stateful operators: here, one count a sensor."""
    return readings.groupBy("sensor").count()


def made_up(first: int, rows: int) -> pa.RecordBatch:
    """Rows number `first` and on. The same number must always give the same row: a batch may be made again."""
    number = pa.array(range(first, first + rows), pa.int64())
    sensor = pc.subtract(number, pc.multiply(pc.divide(number, 20), 20))
    celsius = pc.add(15.0, pc.multiply(15.0, pc.abs(pc.sin(pc.cast(number, pa.float64())))))
    return pa.record_batch({{"sensor": sensor, "celsius": celsius}})


topology = Topology("{name}")
readings = topology.source(
    "readings", sources.rate(500, sources.generated(made_up, "sensor long, celsius double"))
)
warm_ones = topology.map("warm", warm, inputs=readings, schema="sensor long, celsius double", instances=2)
counts = topology.keyed("count", count, inputs=warm_ones, key="sensor", schema="sensor long, count long", tasks=4)
topology.sink("out", sinks.console(rows=5, every=20), inputs=counts)
'''


def write_starter(target: str) -> Path:
    """Write TARGET.py; what is there stays as it is."""
    path = Path(target)
    path = path if path.suffix == ".py" else path.with_name(f"{path.name}.py")
    if not NAME.fullmatch(path.stem):
        raise PenstockError("BAD_NAME", f'a topology cannot be called "{path.stem}".', NAME_HINT)
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(STARTER.format(name=path.stem, file=path))
    except FileExistsError:
        raise PenstockError("FILE_EXISTS", f"{path} exists already.", "Choose another name.") from None
    except OSError as problem:
        raise PenstockError(
            "FILE_NOT_FOUND", f"{path} cannot be written: {problem.strerror}.", "Name a folder that exists."
        ) from None
    return path
