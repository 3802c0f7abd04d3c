"""Stela's diamond topology: four operators side by side that join again (Stela, section IV.B).

    penstock run examples/diamond.py --cluster standalone --machines 2

Names, streams, instances and tasks are the published ones; the paper ran it on 6 machines and added a 7th. Every
operator takes one millisecond for a row. Each of the four sees every row, so the last one gets four times as many: its
4 instances can do 4000 rows a second, and the source makes 5000 for it.
"""

from penstock import Topology, sources
from penstock.workloads import StandIns

INSTANCES, TASKS = 4, 8

topology = Topology("diamond")
bolts = StandIns(topology, schema="id long, value double", instances=INSTANCES, tasks=TASKS)

head = topology.source("spout_head", sources.rate(1250, sources.numbers()), instances=INSTANCES)
middle = [bolts.add(f"bolt_{number}", head) for number in (1, 2, 3, 4)]
bolts.add_last("bolt_output_3", middle)
