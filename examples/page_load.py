"""Yahoo's Page Load topology, as Stela's evaluation used it (Stela, section IV.C).

    penstock run examples/page_load.py --cluster standalone --machines 2

Names, streams, instances, tasks, loads and the filters' selectivity are the published ones; the paper ran it on 7
machines and added an 8th, and for scaling in ran it with 15 instances and 15 tasks on 8 machines, of which 4 were
removed. A load of 10 is a millisecond for a row, so 4 instances of "bolt_transform" can do 1000 rows a second, and the
source gives 1250. The source's own load (40) is left out: it makes the rows it is told to.
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
