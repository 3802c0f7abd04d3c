"""Small loads for the tests of scaling: a graph in a line of text, and rates where they matter."""

from __future__ import annotations

from collections.abc import Mapping

from penstock.cluster.model import Cluster, Machine, Placement, Slot
from penstock.strategies.load import Load, OperatorLoad, StreamLoad
from penstock.strategies.mapping.round_robin import deal


def load(streams: str, processing: Mapping[str, float], **changes: Mapping[str, float]) -> Load:
    """`load("a-b:100 b-c:80", {"a": 100, ...})`; operators come in the order of `processing`.

    Changes are by field and operator: `external={"a": 200}`, `weight={"c": 2}`.
    """
    operators = tuple(
        OperatorLoad(name, rate, **{field: values[name] for field, values in changes.items() if name in values})
        for name, rate in processing.items()
    )
    edges = [(one.partition(":")[0].split("-"), float(one.partition(":")[2])) for one in streams.split()]
    return Load(operators, tuple(StreamLoad(producer, consumer, rate) for (producer, consumer), rate in edges))


#: Figure 2 of the Stela paper, with rates that make 1, 3, 4 and 6 congested at alpha 1.
FIGURE_2 = load(
    "1-2:3000 2-3:3000 2-4:3000 3-5:1500 3-6:1500 5-7:1000 5-8:1000 6-9:200 6-10:300",
    {
        "1": 3000, "2": 3000, "3": 1500, "4": 2000, "5": 1500, "6": 500, "7": 1000, "8": 1000, "9": 200, "10": 300,
    },
    external={"1": 5000},
)  # fmt: skip

CLUSTER = Cluster.of(["a", "b"], 2)


def machine(name: str, slots: int = 2) -> Machine:
    return Machine(name, tuple(Slot(name, index) for index in range(slots)))


def placed(
    one: Load, instances: int = 2, cluster: Cluster = CLUSTER, tasks: Mapping[str, int] | None = None
) -> Placement:
    return deal({operator.name: instances for operator in one.operators}, tasks or {}, cluster)
