"""The explanation has every figure that decided, in words and as JSON."""

from __future__ import annotations

import json

from loads import CLUSTER, FIGURE_2, load, machine, placed

from penstock.strategies.decision import answer_as_json
from penstock.strategies.rules import Rules
from penstock.strategies.stela.explanation import explained
from penstock.strategies.stela.scale_in import scale_in
from penstock.strategies.stela.scale_out import scale_out

RULES = Rules(alpha=1)


def test_every_operator_and_machine_with_its_figures() -> None:
    seen = explained(FIGURE_2, placed(FIGURE_2), CLUSTER, RULES)
    three = seen.operators[2]
    assert (three.name, three.input, three.processing, three.ratio, three.congested) == ("3", 3000, 1500, 2, True)
    assert three.sinks == ("7", "8")
    assert "3: input 3,000/s, processing 1,500/s, ratio 2.00, congested" in str(seen)
    assert "reaches 7, 8; ETP 44.4%" in str(seen)
    assert "1: input 5,000/s" in str(seen) and "reaches no sink on an uncongested path; ETP 0.0%" in str(seen)
    assert sum(one.instances for one in seen.machines) == 20
    assert [one.etp_sum for one in seen.machines] == sorted(one.etp_sum for one in seen.machines)


def test_it_is_json() -> None:
    stuck = load("s-t:10", {"s": 10, "t": 0})
    text = json.dumps(explained(stuck, placed(stuck), CLUSTER).as_json(), allow_nan=False)
    assert json.loads(text)["operators"][1]["ratio"] is None
    assert json.loads(text)["operators"][1]["congested"]


def test_every_step_says_why() -> None:
    before = placed(FIGURE_2, tasks={"5": 4})
    for outcome, kind in (
        (scale_out(FIGURE_2, before, CLUSTER, [machine("n")], RULES), "decision"),
        (scale_in(FIGURE_2, before, CLUSTER, 1, RULES), "decision"),
        (scale_in(FIGURE_2, before, CLUSTER, 2, RULES), "does_not_fit"),
        (scale_in(FIGURE_2, before, CLUSTER, 0, RULES), "nothing_to_do"),
    ):
        data = json.loads(json.dumps(answer_as_json(outcome), allow_nan=False))
        assert data["outcome"] == kind
        assert data["reason"] == outcome.reason
        for step in data.get("steps", []):
            assert step["reason"]
            assert "etp" in step or "etp_sum" in step
