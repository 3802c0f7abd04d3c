"""A topology that needs a second instance of "slow": 400 rows a second are offered, and one instance does 250."""

from penstock import Topology, sinks, sources
from penstock.workloads import service_time

topology = Topology("slow_middle")
numbers = topology.source("numbers", sources.rate(400, sources.numbers()))
slow = topology.map("slow", service_time(0.004), inputs=[numbers], schema="id long, value double")
topology.sink("out", sinks.noop(), inputs=[slow])
