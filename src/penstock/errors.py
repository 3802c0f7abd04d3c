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
    "BAD_NAME": "A topology, operator or output has a name that cannot be used in file names and tables.",
    "DUPLICATE_NAME": "Two operators of one topology have the same name.",
    "UNKNOWN_OPERATOR": "A stream starts at an operator that the topology does not have.",
    "UNKNOWN_OUTPUT": "A stream starts at an output that its operator does not declare.",
    "UNUSED_OPERATOR": "Nothing reads an output of this operator, so what it does would be lost.",
    "NO_SOURCE": "The topology has no source.",
    "NO_SINK": "The topology has no sink.",
    "NO_INPUT": "A map, keyed operator or sink has no input.",
    "CYCLE": "The streams form a cycle.",
    "DUPLICATE_STREAM": "The same output is given twice as input of one operator.",
    "BAD_SCHEMA": "A schema cannot be read.",
    "SCHEMA_MISMATCH": "Inputs that are interleaved have different schemas.",
    "UNKNOWN_KEY": "A key column is not in the schema of the stream.",
    "BAD_KEY": "A key column has a type that rows cannot be grouped by.",
    "BAD_INSTANCES": "A number of instances, tasks or minimum instances is out of range.",
    "MORE_INSTANCES_THAN_TASKS": "A keyed operator has more instances than tasks, so some would never get a row.",
    "BAD_FUNCTION": "An operator's function cannot be called the way Penstock calls it.",
    "FUNCTION_SCHEMA": "An operator's function returns another schema than the operator declares.",
    "BAD_GROUPING": "A grouping does not fit the operator that reads the stream.",
    "BAD_ON_ERROR": "The policy for rows that a function cannot handle is unknown, or does not fit the operator.",
    "BAD_CHAINING": "An operator's flag `chained`, `gather` or `takes_updates` is neither True nor False.",
    "BAD_OUTPUT_MODE": "A keyed operator's output mode is unknown, or does not fit its function.",
    "UPDATES_AS_ROWS": "A keyed operator reads rows that take the place of earlier ones, and would count each of them.",
    "BAD_SOURCE": "A source is declared with values that make no sense.",
    "BAD_AGGREGATE": "An aggregation names a column that is not there, or cannot be aggregated that way.",
    "BAD_SINK": "A sink is declared with values that make no sense.",
    # the command line and settings
    "BAD_COMMAND": "The command line has a word or an option that does not fit.",
    "FILE_NOT_FOUND": "A file or folder does not exist.",
    "FILE_NOT_PYTHON": "The topology file cannot be loaded: it has an error of its own.",
    "NO_TOPOLOGY": "The file declares no topology.",
    "SEVERAL_TOPOLOGIES": "The file declares several topologies, and none was chosen.",
    "FILE_EXISTS": "A file to be written exists already.",
    "UNKNOWN_METRIC": "There is no metric of this name, or no history of it.",
    "UNKNOWN_SETTING": "There is no setting of this name.",
    "BAD_SETTING": "A setting has the wrong type or is out of its range.",
    # what is found by name
    "UNKNOWN_MAPPING": "There is no mapping of this name.",
    "UNKNOWN_SOURCE": "There is no kind of source of this name.",
    "UNKNOWN_SINK": "There is no kind of sink of this name.",
    "PLUGIN_FAILED": "What a package registers as a policy, mapping, source or sink cannot be loaded, or fails.",
    "DUPLICATE_PLUGIN": "Two packages register the same name for a policy, mapping, source or sink.",
    # what it runs on
    "JAVA_MISSING": "There is no Java, or it is too old for Spark.",
    "PYTHON_TOO_OLD": "This Python is too old.",
    "CLUSTER_FAILED": "The cluster could not be started, or it lost a process that it needs.",
    "BAD_CLUSTER": "There cannot be a cluster as it was asked for.",
    # state
    "STATE_IN_USE": "Another process runs on the same state folder.",
    "STATE_DOES_NOT_FIT": "The state belongs to another topology, or to one that differs in what cannot change.",
    "STATE_TAKEN_OVER": "Another process has taken over this topology's catalog; this one writes nothing more.",
    "CATALOG_WENT_BACK": "The catalog lacks published batches: an older copy or a lagging replica has taken its place.",
    "SINK_NOT_EMPTY": "A sink's folder has rows of another run.",
    "CATALOG_UNREACHABLE": "The catalog's database cannot be opened.",
    "STATISTICS_UNREACHABLE": "The statistics store's database cannot be opened.",
    "SEGMENT_UNREADABLE": "A segment that the catalog names cannot be read.",
    # what Spark is asked before anything runs
    "STATE_OUTSIDE_KEYED": "The DataFrame function of a map or a source keeps state, which only a keyed operator may.",
    "NOT_ON_A_STREAM": "An operator's DataFrame function does something that Spark cannot do on a stream.",
    # while it runs
    "OPERATOR_FAILED": "An operator's function raised an exception, or Spark could not run the operator.",
    "BAD_ROW": "A row cannot be read or handled, and the operator's on_error is fail.",
    "ROWS_TOO_LARGE": "A function wants more rows at once than one Arrow batch can hold.",
    "FILE_UNREADABLE": "The bytes of a source's file could not be fetched: it is gone, or its file system failed.",
    "KAFKA_MISSING": "A topology speaks to Kafka, and the package confluent-kafka is not installed.",
    "KAFKA_UNREACHABLE": "The brokers of a Kafka cluster cannot be reached, or do not answer.",
    "KAFKA_UNKNOWN_TOPIC": "A Kafka cluster has no topic of this name.",
    "KAFKA_BAD_START": "A Kafka source is to start at offsets that its topic does not have.",
    "KAFKA_DATA_LOST": "Messages that a Kafka source was still to read are gone, most often by retention.",
    "KAFKA_NOT_WRITTEN": "A Kafka cluster did not take a message of a sink.",
    "SINK_NOT_SHARED": "The driver cannot see a file that a sink's bundle has written: they do not share its folder.",
    "SINK_FILE_LOST": "A file that a sink has written is neither where it was staged nor where it belongs.",
    "HOUSEKEEPING_FAILED": "Segments that every reader has committed could not be deleted several times in a row.",
    # changes while it runs
    "BAD_PLACEMENT": "A placement does not fit the topology or the cluster.",
    "NO_SUCH_TASK": "A plan moves a task that its operator does not have.",
    "NO_SUCH_MACHINE": "A plan removes a machine that the cluster does not have.",
    "LAST_MACHINE": "The last machine cannot be removed: nothing would be left to run on.",
    "SLOT_FULL": "A slot would have more instances than the setting slot_instances allows.",
    "FIXED_MACHINES": "The machines of this kind of cluster cannot be changed.",
    "BUSY": "Another change is being carried out.",
    "NOT_OBSERVED": "Spark was not seen to run a change of placement in time.",
    "CANCELLED": "A change was cancelled while it was being carried out.",
    "REPARTITION_FAILED": "The state of a keyed operator could not be cut into another number of tasks.",
    # steering
    "BAD_REQUEST": "A request to the control interface, or to a run, makes no sense.",
    "NO_TOKEN": "A request to the control interface does not have the right token.",
    "NOT_FOUND": "The control interface has nothing at this address.",
    "TOO_LARGE": "A request to the control interface is too large.",
    "NOTHING_RUNS": "No topology of this user runs, or none of this name.",
    "SEVERAL_RUN": "Several topologies run, and none was chosen.",
    "UNREACHABLE": "A running topology does not answer.",
    "CONTROL_FAILED": "The control interface cannot be opened.",
    "NO_SUCH_OPERATION": "There is no operation of this number.",
    "NO_SUCH_SLOT": "There is no slot of this name.",
    "NOT_CANCELLABLE": "An operation that is over cannot be cancelled.",
    "STARTING": "The topology is being started and cannot be steered yet.",
    "STOPPING": "The topology is being stopped, and nothing can be changed any more.",
    "NO_HISTORY": "This run keeps no history, because monitoring is off.",
    # what decides about scaling
    "INCOMPLETE_SNAPSHOT": "Too little has been measured for a decision.",
    "UNKNOWN_STRATEGY": "There is no scaling strategy (policy) of this name.",
    "POLICY_FAILED": "A policy raised an error, or answered with something that is no answer of a policy.",
    "PLACEMENT_CHANGED": "The placement that a plan was decided on is no longer the placement there is.",
    "BAD_GOAL": "The goal of a topology that scales by itself makes no sense.",
    "BAD_LOAD": "The measured rates describe no graph that a strategy can decide on.",
    # tests of users
    "TEST_ROWS": "The rows given to penstock.testing.run do not fit the topology's sources.",
    "INTERNAL": "Penstock itself has a bug; please report it.",
}
