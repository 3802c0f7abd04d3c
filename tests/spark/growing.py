"""A small topology that others are to grow: `NAME=... penstock run growing.py`. Its name is that in the environment."""

import os

from penstock import Topology, sinks, sources
from penstock.workloads import service_time

topology = Topology(os.environ["NAME"])
numbers = topology.source("numbers", sources.rate(50, sources.numbers()))
work = topology.map("work", service_time(0.001), inputs=[numbers], schema="id long, value double")
topology.sink("out", sinks.noop(), inputs=[work])
