"""Stela's star topology: two sources, one operator in the centre, two sinks (Stela, section IV.B).

    penstock run examples/star.py --cluster standalone --machines 2

The names, streams, instances and tasks are those of the paper, which ran the topology on 4 machines and added a 5th.
Every operator takes one millisecond for a row. So the 2 instances of the operator in the centre can handle 2000 rows a
second, but the two sources together emit 2500.
"""

from penstock import Topology, sources
from penstock.workloads import StandIns

INSTANCES, TASKS = 2, 4

topology = Topology("star")
bolts = StandIns(topology, schema="id long, value double", instances=INSTANCES, tasks=TASKS)

spouts = [
    topology.source(f"spout_{number}", sources.rate(1250, sources.numbers(seed=number)), instances=INSTANCES)
    for number in (0, 1)
]
center = bolts.add("center", spouts)
bolts.add_last("bolt_output_0", center)
bolts.add_last("bolt_output_1", center)
