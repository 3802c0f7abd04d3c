"""Three topologies to draw: a line of four, one with everything, and one whose names are awkward.

Their JSON holds line numbers of this file and of topology_fakes.py: refresh the golden files after a change there.
"""

from __future__ import annotations

from functools import partial

from topology_fakes import FakeSink, rows, same

from penstock.topology import Topology


class Scale:
    """An object that can be called is a function too."""

    def __init__(self, factor):
        self.factor = factor

    def __call__(self, batch):
        return batch


def join(orders, users):
    return orders


def word_count():
    topology = Topology("word-count")
    lines = topology.source("lines", rows("line string"))
    words = topology.map("split", same, inputs=[lines], schema="line string", instances=2)
    counts = topology.keyed("count", same, inputs=[words], key="line", schema="line string, n long", tasks=16)
    topology.sink("out", FakeSink("console"), inputs=[counts])
    return topology


def orders():
    schema = "id long, user long, price decimal(10,2), tags array<string>, at timestamp"
    topology = Topology("orders")
    orders = topology.source("orders", rows(schema), instances=2, on_error="dead_letter")
    users = topology.source("users", rows("user long, name string"))
    rules = topology.source("rules", rows(schema))
    checked = topology.map(
        "check",
        lambda batch: {"good": batch},
        inputs=[orders.by_key("user"), rules.broadcast()],
        outputs={"good": schema, "fraud": schema},
        instances=4,
        min_instances=2,
        on_error="dead_letter",
    )
    known = topology.keyed(
        "join", join, inputs=[checked, users], key=["user"], schema=schema, output_mode="append", instances=3
    )
    topology.map_dataframe("report", partial(same), inputs=[known, checked["fraud"]], schema="n long")
    topology.sink("table", FakeSink("parquet"), inputs=["report"], instances=2)
    topology.sink("bad", FakeSink("files"), inputs=[orders.dead_letter, checked.dead_letter])
    return topology


def awkward():
    topology = Topology("end")
    start = topology.source("graph", rows('`say "hi"` string, `<b>#1` int'))
    scaled = topology.map(
        "a--b", Scale(2), inputs=[start.by_key('say "hi"', "<b>#1")], schema='`say "hi"` string, `<b>#1` int'
    )
    topology.sink("end", FakeSink(), inputs=[scaled])
    return topology
