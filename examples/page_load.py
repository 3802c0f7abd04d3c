"""Yahoo's Page Load topology, as Stela's evaluation used it (Stela, section IV.C).

    penstock run examples/page_load.py --cluster standalone --machines 2

The names, streams, instances, tasks, loads and the selectivity of the filters are those of the paper. The paper ran
the topology on 7 machines and added an 8th. To scale in, the paper ran it with 15 instances and 15 tasks on 8
machines, of which 4 were removed. A load of 10 is a wait of one millisecond for a row. So the 4 instances of
"bolt_transform" (a load of 40) can handle 1000 rows a second, but the source emits 1250. The load of the source itself
(40) is left out: a rate source emits as many rows as it is told to.
"""

from penstock import Topology, sources
from penstock.workloads import StandIns

INSTANCES, TASKS = 4, 8
FILTERED = 0.8

topology = Topology("page_load")
bolts = StandIns(topology, schema="id long, value double", instances=INSTANCES, tasks=TASKS)

head = topology.source("spout_head", sources.rate(1250, sources.numbers()), instances=INSTANCES)
transformed = bolts.add("bolt_transform", head, load=40)
filtered = bolts.add("bolt_filter", transformed, load=40, selectivity=FILTERED)
joined = bolts.add("bolt_join", filtered, load=15)
filtered_again = bolts.add("bolt_filter_2", joined, load=20, selectivity=FILTERED)
aggregated = bolts.add("bolt_aggregate", filtered_again, load=20)
bolts.add_last("bolt_output_sink", aggregated, load=15)
