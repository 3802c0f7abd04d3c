"""A topology whose load steps up and down over ten minutes. One instance of "slow" does 250 rows a second."""

from penstock import Topology, sinks, sources
from penstock.workloads import service_time

#: Seconds, and rows a second.
STEPS = ((150, 200), (300, 600), (150, 200))

topology = Topology("stepped_load")
numbers = topology.source("numbers", sources.rate(sources.stepped(STEPS), sources.numbers()))
slow = topology.map("slow", service_time(0.004), inputs=[numbers], schema="id long, value double")
topology.sink("out", sinks.noop(), inputs=[slow])
