"""What a user declares, a topology of operators and streams, checked, frozen and drawn. Nothing here imports Spark."""

from penstock.schema import Schema, parse_schema, same_schema, schema_text
from penstock.topology.arrow_function import outputs_of_call
from penstock.topology.dataframe_function import frames_taken
from penstock.topology.declaration import Topology
from penstock.topology.definition import (
    DEAD_LETTER,
    DEAD_LETTER_SCHEMA,
    DEFAULT_TASKS,
    MAIN_OUTPUT,
    Broadcast,
    ByKey,
    Grouping,
    Keyed,
    Map,
    OnError,
    Operator,
    Shuffle,
    Sink,
    Source,
    Stream,
    TopologyDefinition,
)
from penstock.topology.drawing import as_json, as_mermaid, as_text
from penstock.topology.output import Input, Output

__all__ = [
    "DEAD_LETTER",
    "DEAD_LETTER_SCHEMA",
    "DEFAULT_TASKS",
    "MAIN_OUTPUT",
    "Broadcast",
    "ByKey",
    "Grouping",
    "Input",
    "Keyed",
    "Map",
    "OnError",
    "Operator",
    "Output",
    "Schema",
    "Shuffle",
    "Sink",
    "Source",
    "Stream",
    "Topology",
    "TopologyDefinition",
    "as_json",
    "as_mermaid",
    "as_text",
    "frames_taken",
    "outputs_of_call",
    "parse_schema",
    "same_schema",
    "schema_text",
]
