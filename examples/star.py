"""Stela's star topology: two sources, a centre, two ends (Stela, section IV.B).

    penstock run examples/star.py --cluster standalone --machines 2

Names, streams, instances and tasks are the published ones; the paper ran it on 4 machines and added a 5th. Every
operator takes one millisecond for a row, so the centre's 2 instances can do 2000 rows a second, and the two sources
give 2500.
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
