"""A double of `penstock.api.steering.Steering`: answers of the right shape, without a run behind them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from penstock.api.history_request import HistoryRequest
from penstock.autoscaler.operations import Operation, Operations
from penstock.autoscaler.proposals import Proposal
from penstock.autoscaler.shapes import proposal_as_json
from penstock.cluster.model import Machine, Slot
from penstock.errors import PenstockError
from penstock.monitor.history import HistoryQuery
from penstock.plans.enacting import Outcome, Status
from penstock.plans.plan import AddMachine, Plan, SetInstances
from penstock.plugins import POLICIES, require

Json = dict[str, Any]
NEW = Slot("127.0.0.4", 0)
PROPOSAL = Proposal(
    Plan((AddMachine(Machine("127.0.0.4", (NEW,))), SetInstances("split", {NEW: 1})), "stela: one new instance"),
    ("one machine more was asked for",),
    strategy="stela",
    decision={"steps": [{"step": 1, "operator": "split", "to": NEW.name, "reason": "congested"}]},
)


def operator(name: str, kind: str, **values: Any) -> Json:
    nothing = dict.fromkeys(
        ["tasks", "rows_in_per_second", "rows_out_per_second", "rows_in", "rows_out", "capacity_per_instance"]
    )
    known: Json = {
        "utilisation": None,
        "waiting_input": None,
        "waiting_room": None,
        "batch_seconds": 0.2,
        "backlog": 7,
        "bad_rows": 0,
        "throttled": False,
    }
    known |= {"late_rows": None, "state": None}
    placed = {"instances": 1, "placement": {"127.0.0.2/0": 1}}
    return {"name": name, "kind": kind, **nothing, **known, **placed, **values}


STATUS: Json = {
    "topology": "word_count",
    "state": "running",
    "pid": 1,
    "cluster": "standalone",
    "started_at": 1000.0,
    "seconds": 12.0,
    "machines": [
        {
            "name": "127.0.0.2",
            "slots": [
                {
                    "name": "127.0.0.2/0",
                    "cores": 1,
                    "usable": True,
                    "instances": 2,
                    "utilisation": 0.5,
                    "cpu_utilisation": None,
                }
            ],
        }
    ],
    "operators": [
        operator("lines", "source", rows_out_per_second=100.0, rows_out=1200),
        operator("split", "map", rows_in_per_second=100.0, rows_out_per_second=500.0, rows_in=1200, rows_out=6000),
        operator("out", "sink", rows_in_per_second=500.0, rows_in=6000),
    ],
    "sinks": [{"name": "out", "throughput": 500.0, "latency_p50": 0.3, "latency_p99": None}],
    "complete": True,
    "as_planned": True,
    "unplaced": None,
}


def figures(throughput: float, machines: int) -> Json:
    known = {"throughput": throughput, "offered": 900.0, "backlog": 7, "trend": 0.0, "machines": machines}
    return {**known, "utilisation": {"split": 0.9}, "instances": {"split": machines}}


DECISIONS: list[Json] = [
    {
        "id": 1,
        "time": 1000.0,
        "action": "scale-out",
        "change": "1 machine more",
        "strategy": "stela",
        "operation": 4,
        "reasons": ["the throughput of 500 rows/s is below the goal of 900"],
        "reverts": [],
        "before": figures(500.0, 1),
        "expected": [{"metric": "throughput", "value": 900.0, "subject": ""}],
        "measured": figures(480.0, 2),
        "verdict": "none",
        "why": "500 rows/s before, 480 after, 900 expected",
    },
    {
        "id": 2,
        "time": 1200.0,
        "action": "scale-in",
        "change": "1 machine fewer",
        "strategy": "stela",
        "operation": 5,
        "reasons": [],
        "reverts": [4],
        "before": figures(480.0, 2),
        "expected": [],
        "measured": None,
        "verdict": "pending",
        "why": "",
    },
]


def flow(operator: str, gap: float | None, during: float | None, behind: bool = False) -> Json:
    gaps = {"gap_seconds": gap, "usual_gap_seconds": 0.2}
    rates = {"rows_per_second_before": 500.0, "rows_per_second_during": during}
    return {"operator": operator, **gaps, **rates, "behind": behind}


def migration(number: int, **measured: Any) -> Json:
    nothing = dict.fromkeys([f"{phase}_seconds" for phase in ("pause", "save", "load", "resume")])
    moved = {"operator": "count", "tasks": [0, 3], "tasks_of_operator": 8, "moved_bytes": 2_500_000}
    barriers = {"first_barrier": {"batch": 17, "time": 1000.4}, "second_barrier": None}
    known = {**moved, "state_bytes": 10_000_000, "share": 0.25, "asked_at": 1000.0, "own": None, "others": []}
    operators = [{**known, **nothing, **barriers, **measured}]
    return {"id": number, "time": 1000.0, "change": "place 2 tasks", "reason": "", "operators": operators}


MIGRATIONS: list[Json] = [
    migration(
        1,
        pause_seconds=0.35,
        load_seconds=0.8,
        resume_seconds=1.25,
        second_barrier={"batch": 18, "time": 1001.6},
        own=flow("count", 1.4, 410.0),
        others=[flow("split", 0.21, 499.0), flow("out", 1.5, 0.0, behind=True), flow("lines", None, None)],
    ),
    migration(2, share=None),
]


class FakeSteering:
    """Refuses what a real one would refuse by looking at names; everything else is carried out at once."""

    def __init__(self) -> None:
        self.called: list[tuple[Any, ...]] = []
        self.stopped: bool | None = None
        self.operations = Operations(self._carry_out, lambda: True, lambda: "placing")

    def _carry_out(self, operation: Operation) -> Outcome:
        return Outcome(PROPOSAL.plan, Status.DONE, "as planned", seconds=1.5)

    def close(self) -> None:
        self.operations.close()

    def topology(self) -> Json:
        return {"name": "word_count", "operators": [], "streams": []}

    def status(self) -> Json:
        current = self.operations.current
        return STATUS | {"operation": None if current is None else current.as_json("placing")}

    def snapshot(self) -> Json:
        return {"topology": "word_count", "complete": False}

    def placement(self) -> Json:
        return {"planned": {}, "requested": {}, "observed": {}}

    def explain(self, alpha: float | None = None) -> Json:
        one = {"name": "split", "instances": 2, "input": 120.0, "processing": 80.0, "ratio": 1.5, "congested": True}
        machine = {"name": "127.0.0.2", "instances": 3, "etp_sum": 0.75}
        operators = [{**one, "sinks": ["out"], "etp": 0.5}]
        streams = [
            {"name": "lines->split", "chained": True, "reason": ""},
            {"name": "split->count", "chained": False, "reason": "count is keyed"},
        ]
        figures = {"alpha": alpha or 1.2, "throughput": 500.0}
        shuffles = [
            {"operator": "count", "shuffled": False, "reason": ""},
            {
                "operator": "late",
                "shuffled": True,
                "reason": "Spark needs its rows by hashpartitioning(window, word, 8)",
            },
        ]
        return {**figures, "operators": operators, "machines": [machine], "streams": streams, "shuffles": shuffles}

    def history(self, request: HistoryRequest) -> Json:
        HistoryQuery(tuple(request.metrics), request.since, request.since + 1)
        if request.operator not in (None, "split"):
            raise PenstockError("UNKNOWN_OPERATOR", "there is none.", "It has: split.")
        values = {name: [1.0, None, 4.0] for name in request.metrics}
        names = {"operator": "split", "slot": None, "stream": None, "machine": None}
        series = {**names, "times": [0, 10, 20], "values": values}
        return {"since": request.since, "until": request.since + 30, "by": request.by, "series": [series]}

    def events(self, after: int = 0, limit: int = 1000, wait: float = 0.0) -> Json:
        event = {"time": 1000.0, "kind": "started", "subject": "word_count", "reason": "3 operators run", "cause": ""}
        found = [{**event, "id": number, "fields": {}} for number in range(1, 4) if number > after][:limit]
        return {"events": found, "next": found[-1]["id"] if found else after}

    def decisions(self, after: int = 0, limit: int = 1000) -> Json:
        found = [one for one in DECISIONS if one["id"] > after][:limit]
        return {"decisions": found, "next": found[-1]["id"] if found else after}

    def migrations(self, after: int = 0, limit: int = 1000) -> Json:
        found = [one for one in MIGRATIONS if one["id"] > after][:limit]
        return {"migrations": found, "next": found[-1]["id"] if found else after}

    def all_operations(self) -> Json:
        return {"operations": [one.as_json() for one in self.operations.all()]}

    def operation(self, number: int, wait: float = 0.0) -> Json:
        operation = self.operations.get(number)
        self.operations.wait(operation, min(wait, 5.0))
        return operation.as_json()

    def scale_out(self, machines: int = 1, strategy: str | None = None, dry_run: bool = False) -> Json:
        require(POLICIES, strategy or "stela")
        return self._do("scale-out", dry_run, machines, strategy)

    def scale_in(
        self,
        machines: int | None = None,
        names: Sequence[str] = (),
        strategy: str | None = None,
        dry_run: bool = False,
    ) -> Json:
        if names and set(names) != {"127.0.0.2"}:
            raise PenstockError("NO_SUCH_MACHINE", "there is none.", "The machines are: 127.0.0.2.")
        return self._do("scale-in", dry_run, machines, tuple(names), strategy)

    def set_instances(
        self, operator: str, count: int | None = None, slots: Mapping[str, int] | None = None, dry_run: bool = False
    ) -> Json:
        if operator != "split":
            raise PenstockError("UNKNOWN_OPERATOR", "there is none.", "It has: split.")
        return self._do("set-instances", dry_run, operator, count, slots)

    def move_task(self, operator: str, task: int, slot: str, dry_run: bool = False) -> Json:
        return self._do("move", dry_run, operator, task, slot)

    def repartition(self, operator: str, tasks: int, dry_run: bool = False) -> Json:
        if operator != "count":
            raise PenstockError("UNKNOWN_OPERATOR", "there is none.", "It has: count.")
        return self._do("repartition", dry_run, operator, tasks)

    def cancel(self, number: int) -> Json:
        return self.operations.cancel(number).as_json()

    def pause(self, dry_run: bool = False) -> Json:
        return self._hold("pause", dry_run)

    def resume(self, dry_run: bool = False) -> Json:
        return self._hold("resume", dry_run)

    def stop(self, drain: bool = True, dry_run: bool = False) -> Json:
        if not dry_run:
            self.stopped = drain
        return self._hold("stop", dry_run)

    def _hold(self, action: str, dry_run: bool) -> Json:
        self.called.append((action, dry_run))
        return {"action": action, "dry_run": dry_run, "plan": {"actions": [], "reason": f"{action}, as asked"}}

    def _do(self, action: str, dry_run: bool, *arguments: Any) -> Json:
        self.called.append((action, dry_run, *arguments))
        if dry_run:
            return {"action": action, "dry_run": True, **proposal_as_json(PROPOSAL), "leads_to": {}}
        return self.operations.submit(action, {}, lambda: PROPOSAL).as_json()
