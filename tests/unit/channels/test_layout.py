"""Which hashes a channel has beside its rows."""

from __future__ import annotations

import pyarrow as pa

from penstock import Topology, sinks, sources
from penstock.channels.layout import channels_of, why_not_hashed
from penstock.topology.definition import Keyed, TopologyDefinition


def counted(frame):
    return frame


def declared(schema: pa.Schema | str = "key string, n long") -> TopologyDefinition:
    topology = Topology("layout")
    made = topology.source("made", sources.rate(1, sources.events(keys=3)))
    shaped = topology.map_dataframe("shaped", counted, inputs=made, schema=schema)
    for name, key in (("by_key", ["key"]), ("too", ["key"]), ("by_both", ["n", "key"])):
        keyed = topology.keyed(name, counted, inputs=shaped, key=key, schema="n long")
        topology.sink(f"{name}s", sinks.noop(), inputs=keyed)
    topology.sink("out", sinks.noop(), inputs=shaped)
    return topology.definition()


def test_a_channel_has_each_hash_that_is_asked_for_once() -> None:
    asked = {"by_key": ("key",), "too": ("key",), "by_both": ("n", "key")}
    channels = channels_of(declared(), asked)
    assert channels["shaped.out"].hashed == (("key",), ("n", "key"))
    assert channels["made.out"].hashed == ()
    assert channels_of(declared())["shaped.out"].hashed == ()


def test_a_key_that_cannot_be_hashed_is_named() -> None:
    definition = declared(pa.schema([("key", pa.timestamp("ms")), ("n", pa.int64())]))
    operator = definition.operator("by_both")
    assert isinstance(operator, Keyed)
    assert why_not_hashed(definition, operator) == 'its key "key" is of type timestamp[ms]'
    assert why_not_hashed(declared(), operator) == ""
