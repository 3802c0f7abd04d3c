"""Stela's diamond topology: four operators side by side that join again (Stela, section IV.B).

    penstock run examples/diamond.py --cluster standalone --machines 2

The names, streams, instances and tasks are those of the paper, which ran the topology on 6 machines and added a 7th.
Every operator takes one millisecond for a row. Each of the four operators gets every row of the source (1250 a second),
so the last operator gets four times as many, 5000 a second. Its 4 instances can handle 4000: it is congested.
"""

from penstock import Topology, sources
from penstock.workloads import StandIns

INSTANCES, TASKS = 4, 8

topology = Topology("diamond")
bolts = StandIns(topology, schema="id long, value double", instances=INSTANCES, tasks=TASKS)

head = topology.source("spout_head", sources.rate(1250, sources.numbers()), instances=INSTANCES)
middle = [bolts.add(f"bolt_{number}", head) for number in (1, 2, 3, 4)]
bolts.add_last("bolt_output_3", middle)
