"""The network monitoring topology of Stela's evaluation (Stela, section IV.C): two branches that meet again.

    penstock run examples/network_monitoring.py --cluster standalone --machines 2

The names, streams, groupings, instances and tasks are those of the paper, which ran the topology on 8 machines and
added a 9th. Half of the lines tell of a success, half of a failure. "parseLines" has an output for each, so every line
takes one of the two branches. The paper gives no loads, so every operator takes one millisecond for a row. The 4
instances of "parseLines" can handle 4000 rows a second, but the source emits 5000.
"""

import numpy as np
import pyarrow as pa

from penstock import Topology, sources
from penstock.workloads import StandIns, split_by

INSTANCES, TASKS = 4, 8
LINE = "id long, count long, tag string"
TAGS = ("failure", "success")


def lines(first: int, count: int) -> pa.RecordBatch:
    """Rows that are failures and successes in turn."""
    row = np.arange(first, first + count)
    return pa.record_batch({"id": row, "count": row % 100, "tag": pa.array(TAGS).take(pa.array(row % 2))})


topology = Topology("network_monitoring")
bolts = StandIns(topology, schema=LINE, instances=INSTANCES, tasks=TASKS)
work, route = bolts.function("parseLines"), split_by("tag", TAGS)


def parse_lines(batch: pa.RecordBatch):
    return route(work(batch))


spout = topology.source("spout", sources.rate(5000, sources.generated(lines, schema=LINE)), instances=INSTANCES)
parsed = topology.map(
    "parseLines",
    parse_lines,
    inputs=spout,
    outputs=dict.fromkeys(TAGS, LINE),
    instances=INSTANCES,
    tasks=TASKS,
    chained=False,
)

failures = bolts.add("filterFailure", parsed["failure"])
parsed_failures = bolts.add("parseFailures", failures)
aggregated = bolts.add("aggregate", parsed_failures.by_key("id"))
filtered = bolts.add("filter", aggregated)
alerts = bolts.add("functor", filtered)

successes = bolts.add("filterSuccess", parsed["success"])
parsed_successes = bolts.add("parseSuccess", successes)

bolts.add_last("join_output_bolt", [parsed_successes.by_key("count"), alerts.by_key("count")])
