"""Stela's linear topology: four operators in a row (Stela, section IV.B).

    penstock run examples/linear.py --cluster standalone --machines 2

The names, streams, instances and tasks are those of the paper, which ran the topology on 6 machines and added a 7th.
Every operator takes one millisecond for a row. So the 6 instances of an operator can handle 6000 rows a second, but the
source emits 7500: the operators are congested.
"""

from penstock import Topology, sources
from penstock.workloads import StandIns

INSTANCES, TASKS = 6, 12

topology = Topology("linear")
bolts = StandIns(topology, schema="id long, value double", instances=INSTANCES, tasks=TASKS)

word = topology.source("word", sources.rate(7500, sources.numbers()), instances=INSTANCES)
exclaim1 = bolts.add("exclaim1", word)
exclaim2 = bolts.add("exclaim2", exclaim1)
bolts.add_last("exclaim_output_3", exclaim2)
