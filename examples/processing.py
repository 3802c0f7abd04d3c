"""Yahoo's Processing topology, as Stela's evaluation used it (Stela, section IV.C).

    penstock run examples/processing.py --cluster standalone --machines 2

The names, streams, instances, tasks, loads and the selectivity of the filter are those of the paper, which ran the
topology on 8 machines and added a 9th. A load of 10 is a wait of one millisecond for a row. So the 4 instances of
"bolt_transform" (a load of 30) can handle 1333 rows a second, but the source emits 1600. The load of the source itself
(30) is left out: a rate source emits as many rows as it is told to.
"""

from penstock import Topology, sources
from penstock.workloads import StandIns

INSTANCES, TASKS = 4, 8
FILTERED = 0.8

topology = Topology("processing")
bolts = StandIns(topology, schema="id long, value double", instances=INSTANCES, tasks=TASKS)

head = topology.source("spout_head", sources.rate(1600, sources.numbers()), instances=INSTANCES)
transformed = bolts.add("bolt_transform", head, load=30)

filtered = bolts.add("bolt_filter", transformed, load=30, selectivity=FILTERED)
joined = bolts.add("bolt_join1", filtered, load=10)
bolts.add_last("bolt_output_1", joined, load=10)

enriched = bolts.add("bolt_join2", transformed, load=15)
normalized = bolts.add("bolt_normalize", enriched, load=10)
bolts.add_last("bolt_output_2", normalized, load=10)
