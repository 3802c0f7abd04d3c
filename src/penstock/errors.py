"""Named errors: every mistake a user can make has a stable name, says what is wrong and what to do next.

Tests, scripts and the control interface rely on the name; the prose may change.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

#: Ends with the separator: a user's folder may be called penstock-something and lie beside the package.
PACKAGE_FOLDER = str(Path(__file__).parent) + os.sep


@dataclass(frozen=True)
class Location:
    """The line of the user's code that declared something."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"

    @staticmethod
    def of_caller() -> Location:
        """The innermost line on the stack that is not Penstock's own."""
        frame: FrameType | None = sys._getframe(1)
        while frame is not None and frame.f_code.co_filename.startswith(PACKAGE_FOLDER):
            frame = frame.f_back
        if frame is None:
            return Location("<unknown>", 0)
        return Location(frame.f_code.co_filename, frame.f_lineno)


@dataclass(frozen=True)
class Refusal:
    """A named error as a value: what whoever asks would be told."""

    name: str
    message: str
    hint: str

    def as_error(self) -> PenstockError:
        return PenstockError(self.name, self.message, self.hint)


class PenstockError(Exception):
    """An error a user can act on: a stable name, what is wrong, what to do, and where it was declared."""

    def __init__(self, name: str, message: str, hint: str, where: Location | None = None) -> None:
        if name not in ERRORS:
            raise ValueError(f"{name} is not in penstock.errors.ERRORS: add it there with its meaning")
        self.name = name
        self.message = message
        self.hint = hint
        self.where = where
        super().__init__(str(self))

    def __str__(self) -> str:
        place = f"{self.where}: " if self.where else ""
        return f"{place}{self.name}: {self.message} {self.hint}"

    def __reduce__(self) -> tuple[Any, ...]:
        return (PenstockError, (self.name, self.message, self.hint, self.where))

    def as_json(self) -> dict[str, Any]:
        """The one shape in which errors leave Penstock: the command line's --json."""
        where = {"file": self.where.file, "line": self.where.line} if self.where else None
        return {"error": self.name, "message": self.message, "hint": self.hint, "where": where}


#: Every name and its meaning. docs/errors.md is generated from this list.
ERRORS: Mapping[str, str] = {
    # what a user declares
    "BAD_NAME": "The name of a topology, an operator or an output has characters that it may not have, or is reserved.",
    "DUPLICATE_NAME": "Two operators of one topology have the same name.",
    "UNKNOWN_OPERATOR": "An operator is named that the topology does not have.",
    "UNKNOWN_OUTPUT": "An operator reads an output that the other operator does not declare.",
    "UNUSED_OPERATOR": "No operator reads an output of this operator, so its rows would be lost.",
    "NO_SOURCE": "The topology has no source.",
    "NO_SINK": "The topology has no sink.",
    "NO_INPUT": "A map, keyed operator or sink has no input.",
    "CYCLE": "The streams form a cycle. Rows can never flow back to an operator that they have passed.",
    "DUPLICATE_STREAM": "The same output is given twice as input of one operator.",
    "BAD_SCHEMA": "A schema cannot be read, has a column twice, or does not fit its operator.",
    "SCHEMA_MISMATCH": "The inputs of an operator have different schemas, but the operator gets all their rows as one.",
    "UNKNOWN_KEY": "A column of the key is not in the schema of the stream.",
    "BAD_KEY": "A column of the key has a type that cannot be a key, such as a floating-point number or a list.",
    "BAD_INSTANCES": "A number of instances or tasks, or `min_instances`, is out of range.",
    "MORE_INSTANCES_THAN_TASKS": "An operator has more instances than tasks, so some instances would never get a row.",
    "BAD_FUNCTION": "An operator's function cannot be called the way Penstock calls it, or does not return rows.",
    "FUNCTION_SCHEMA": "An operator's function returns another schema than the operator declares.",
    "BAD_GROUPING": "An operator cannot read a stream with this grouping (by key, broadcast).",
    "BAD_ON_ERROR": "The value of `on_error` is unknown, or the operator cannot have it.",
    "BAD_CHAINING": "An operator's flag `chained`, `gather` or `takes_updates` is neither True nor False.",
    "BAD_OUTPUT_MODE": "A keyed operator's output mode is unknown, or does not fit its function.",
    "UPDATES_AS_ROWS": "A keyed operator reads updates, which replace earlier rows, and would count each as a new row.",
    "BAD_SOURCE": "A source is declared with a value that it cannot have, or cannot read what it finds.",
    "BAD_AGGREGATE": "An aggregate names a column that does not exist, or that cannot be aggregated that way.",
    "BAD_PROCESSOR": "A stateful operator has a processor, an event time or a lateness that it cannot have.",
    "BAD_STATE": "A state is declared with columns, a name or a time to live that it cannot have, or is used wrongly.",
    "BAD_SINK": "A sink is declared with a value that it cannot have, or cannot write to its place.",
    # the command line and settings
    "BAD_COMMAND": "The command line has a word or an option that does not fit the command.",
    "FILE_NOT_FOUND": "A file or folder does not exist, or cannot be written.",
    "FILE_NOT_PYTHON": "Python cannot load the topology file, because the file has an error.",
    "NO_TOPOLOGY": "The file declares no topology.",
    "SEVERAL_TOPOLOGIES": "The file declares several topologies, and the command does not say which one is meant.",
    "FILE_EXISTS": "A file that the command would write exists already.",
    "UNKNOWN_METRIC": "There is no metric of this name, or Penstock keeps no history of it.",
    "UNKNOWN_SETTING": "There is no setting of this name.",
    "BAD_SETTING": "A setting has the wrong type or is out of its range.",
    "BAD_THRESHOLDS": "`threshold_out` is not above twice `threshold_in` plus `threshold_gap`.",
    # what is found by name
    "UNKNOWN_MAPPING": "There is no mapping of this name.",
    "UNKNOWN_SOURCE": "There is no kind of source of this name.",
    "UNKNOWN_SINK": "There is no kind of sink of this name.",
    "PLUGIN_FAILED": "A policy, mapping, source or sink of another package cannot be loaded, or fails.",
    "DUPLICATE_PLUGIN": "Two packages register the same name for a policy, mapping, source or sink.",
    # what it runs on
    "JAVA_MISSING": "There is no Java, or it is too old for Spark.",
    "PYTHON_TOO_OLD": "This Python is too old.",
    "CLUSTER_FAILED": "The cluster could not be started, or it lost a process that it needs.",
    "BAD_CLUSTER": "Penstock cannot make or use the cluster that was asked for.",
    "LAB_NOT_ALLOWED": "This computer does not let Penstock make the machines of a lab: networks, links or groups.",
    "NO_CLASS_ARCHIVE": "`penstock prepare` could not make the archive of Spark's classes.",
    # state
    "STATE_IN_USE": "Another process runs on the same state folder or catalog, or the folder cannot be used.",
    "STATE_DOES_NOT_FIT": "The state belongs to another topology, another declaration or another moment.",
    "STATE_TAKEN_OVER": "Another process runs this topology on the same catalog now: this process writes nothing more.",
    "CATALOG_WENT_BACK": "The catalog lacks published batches: it was replaced by an older copy or a lagging replica.",
    "SINK_NOT_EMPTY": "The folder of a sink holds files that this state did not write.",
    "CATALOG_UNREACHABLE": "The catalog's database cannot be opened.",
    "STATISTICS_UNREACHABLE": "The statistics store's database cannot be opened.",
    "NEIGHBOURS_UNREACHABLE": "The database that topologies on one cluster share cannot be opened, or does not answer.",
    "SEGMENT_UNREADABLE": "A segment of a channel is missing or cannot be read.",
    # what Penstock finds out with Spark before rows flow
    "NEEDS_ROCKSDB": "An operator keeps state of its own, which Spark keeps only with the setting state_store=rocksdb.",
    "STATE_OUTSIDE_KEYED": "The DataFrame function of a map or a source keeps state, which only a keyed operator may.",
    "NOT_ON_A_STREAM": "An operator's DataFrame function does something that Spark cannot do on a stream.",
    # while it runs
    "OPERATOR_FAILED": "An operator's function raised an exception, or Spark could not run the operator.",
    "BAD_ROW": 'A row cannot be read or handled, and the operator has on_error="fail".',
    "ROWS_TOO_LARGE": "A function takes all rows of a batch at once, and they do not fit into one Arrow batch.",
    "FILE_UNREADABLE": "The bytes of a source's file cannot be fetched: the file is gone, or its file system failed.",
    "KAFKA_MISSING": "A topology uses Kafka, and the package confluent-kafka is not installed.",
    "KAFKA_UNREACHABLE": "The brokers of a Kafka cluster cannot be reached, or do not answer.",
    "KAFKA_UNKNOWN_TOPIC": "A Kafka cluster has no topic of this name.",
    "KAFKA_BAD_START": "The `start` of a Kafka source names offsets that the topic does not have.",
    "KAFKA_DATA_LOST": "Messages that a Kafka source has not read yet are gone, most often because of retention.",
    "KAFKA_NOT_WRITTEN": "A Kafka cluster did not accept a message of a sink.",
    "REDIS_MISSING": "A topology reads from Redis, and the package redis is not installed.",
    "REDIS_UNREACHABLE": "A Redis server cannot be reached, or does not answer.",
    "REDIS_DATA_LOST": "Entries of a Redis stream were deleted before a source had read them.",
    "SINK_NOT_SHARED": "The driver cannot see a file that a sink's bundle has written: they do not share the folder.",
    "SINK_FILE_LOST": "A file that a sink has written is gone: it has neither its staging name nor its final name.",
    "HOUSEKEEPING_FAILED": "Penstock could not delete segments that are no longer needed, several times in a row.",
    # changes while it runs
    "BAD_PLACEMENT": "A placement does not fit the topology or the cluster.",
    "NO_SUCH_TASK": "A plan moves a task that its operator does not have.",
    "NO_SUCH_MACHINE": "A plan removes a machine that the cluster does not have.",
    "LAST_MACHINE": "The last machine cannot be removed: nothing would be left to run on.",
    "SLOT_FULL": "A slot would have more instances than the setting `slot_instances` allows.",
    "FIXED_MACHINES": "The machines of this kind of cluster cannot be changed.",
    "BUSY": "Another change of the same topology is being carried out, or too many requests wait.",
    "NOT_OBSERVED": "A change was rolled back, because Spark was not seen to run it within `change_seconds`.",
    "LEASE_LOST": "A topology may not go on with a change on a cluster that it shares: it was not heard of in time.",
    "CANCELLED": "A change was cancelled. What it had done until then was rolled back.",
    "REPARTITION_FAILED": "The state of a keyed operator could not be cut into another number of tasks.",
    # steering
    "BAD_REQUEST": "A request to the control interface, or to the handle, has a value that it cannot have.",
    "NO_TOKEN": "A request to the control interface does not have the right token.",
    "NOT_FOUND": "The control interface has nothing at this address.",
    "TOO_LARGE": "A request to the control interface is too large.",
    "NOTHING_RUNS": "No topology of this user runs, or none with this name.",
    "SEVERAL_RUN": "Several topologies run, and the command does not say which one is meant.",
    "UNREACHABLE": "A topology runs, but its control interface does not answer.",
    "CONTROL_FAILED": "The control interface of a topology cannot be opened.",
    "NO_SUCH_OPERATION": "There is no operation with this number.",
    "NO_SUCH_SLOT": "There is no slot of this name.",
    "NOT_CANCELLABLE": "The operation cannot be cancelled, because it has ended.",
    "STARTING": "The topology is starting and cannot be steered yet.",
    "STOPPING": "The topology is stopping, and cannot be changed any more.",
    "NO_HISTORY": "The run keeps no history, because the setting `monitoring` is off.",
    # what decides about scaling
    "INCOMPLETE_SNAPSHOT": "A strategy cannot decide yet, because too little has been measured.",
    "UNKNOWN_STRATEGY": "There is no scaling strategy (policy) of this name.",
    "STRATEGY_WITHOUT_MACHINES": "Machines were to come or go by a strategy that changes only instances.",
    "POLICY_FAILED": "A policy raised an error, or answered with something that is neither a proposal nor `Nothing`.",
    "GUARD_FAILED": "A guard raised an error, or answered with something that is neither a text nor a proposal.",
    "DECISIONS_UNREADABLE": "What a controller remembers from before a restart is damaged, or of a newer Penstock.",
    "PLACEMENT_CHANGED": "A plan was not carried out, because the placement has changed since the plan was decided.",
    "BAD_GUARDS": "The variable `guards` of a topology's file is no list of functions.",
    "BAD_GOAL": "The goal of a topology that scales by itself is empty or out of range, its strategy takes no goal, "
    "or there is none and one is needed.",
    "BAD_LOAD": "A strategy cannot decide on the measured rates, because they contradict each other or the topology.",
    # tests of users
    "TEST_ROWS": "What a test gives to penstock.testing does not fit the topology: rows, a state, a key.",
    # a bug of Penstock
    "INTERNAL": "Penstock itself has a bug; please report it.",
}
