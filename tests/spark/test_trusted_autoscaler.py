"""The autoscaler on Spark: a load that steps up and down is held and leaves nothing behind, a harmful
decision is undone by itself, and a chain that a goal leaves alone stays a chain."""

from __future__ import annotations

import time
from itertools import accumulate
from pathlib import Path

import pytest
from penstock_process import WAIT, penstock_process, throughput
from stepped_load import STEPS

import penstock
from penstock import Goal, Settings, Topology, plans, sinks, sources
from penstock.autoscaler.guards import guards_for
from penstock.autoscaler.hands import DeskHands
from penstock.autoscaler.loop import Controller
from penstock.autoscaler.policy import View
from penstock.autoscaler.proposals import Answer, Nothing, Proposal
from penstock.workloads import service_time

TOPOLOGY = Path(__file__).with_name("stepped_load.py")
#: Instances of "slow" wait, so they need no cores: that a slot takes only four instances is what makes machines needed.
SETTINGS = {
    "sample_seconds": 1,
    "window_samples": 10,
    "window_least_samples": 5,
    "cooldown_seconds": 10,
    "measure_seconds": 10,
    "slot_instances": 4,
    "changes_per_hour": 60,
}
WINDOW = 10.0
GRACE = 120.0


@pytest.mark.live
@pytest.mark.timeout(1500)
def test_a_load_that_steps_up_and_down_is_held(tmp_path: Path) -> None:
    goal = ("--throughput", str(max(rate for _, rate in STEPS)), "--machines-max", "3")
    with penstock_process(tmp_path, TOPOLOGY, *goal, settings=SETTINGS) as running:
        changes = list(accumulate(seconds for seconds, _ in STEPS))
        looks: list[bool] = []
        machines: list[int] = []
        while True:
            status = running.command("status")
            at = status["seconds"]
            if at >= changes[-1]:
                break
            step = next(number for number, end in enumerate(changes) if at < end)
            begin = changes[step - 1] if step else 0.0
            machines.append(len(status["machines"]))
            if at >= begin + GRACE:
                looks.append(throughput(status) >= 0.95 * STEPS[step][1])
            time.sleep(2)
        # A list would be cut in the report of a failure, and its end is what explains it.
        story = "\n".join(
            f"{one['time']:.0f} {one['kind']} {one['subject']}: {one['reason']}" for one in running.story()
        )
        assert len(looks) > 50
        assert sum(looks) >= 0.95 * len(looks), story
        assert max(machines) > 1, story
        assert machines[-1] == machines[0] == 1, story
        made = running.command("decisions")["decisions"]
        assert made
        assert not [one for one in made if one["verdict"] == "harmful"], made
        running.stop()


#: Rows a second of the topology that is harmed.
RATE = 600


class Saboteur:
    """A policy that takes instances away which are needed, once. It waits until the goal is met: while the window still
    has the start in it, or a backlog is worked off, nobody can tell what a decision did to the throughput."""

    def __init__(self) -> None:
        self.done = False

    def decide(self, view: View) -> Answer:
        if self.done:
            return Nothing("the harm is done")
        measured = (view.balance.offered, view.balance.throughput)
        as_it_should = all(abs((one or 0.0) - RATE) <= 0.05 * RATE for one in measured)
        if isinstance(view.load, Nothing) or view.balance.behind or not as_it_should:
            return Nothing("the topology does not run as it should yet")
        self.done = True
        slots = view.snapshot.placement.of("slow")
        one = {next(iter(slots)): 1}
        return Proposal(plans.set_instances(view.snapshot.placement, "slow", one), reasons=("harm, on purpose",))


def story_of(running: penstock.Handle) -> str:
    """What happened, a line each: pytest cuts long lists."""
    events = (f"{one['time']} {one['kind']} {one['subject']}: {one['reason']}" for one in running.events()["events"])
    return "\n".join((*events, *map(str, running.decisions()["decisions"])))


@pytest.mark.live
@pytest.mark.timeout(600)
def test_a_harmful_decision_is_undone_within_two_windows(tmp_path: Path) -> None:
    made = Topology("sabotaged")
    numbers = made.source("numbers", sources.rate(RATE, sources.numbers()))
    slow = made.map("slow", service_time(0.004), inputs=[numbers], schema="id long, value double", instances=3)
    made.sink("out", sinks.noop(), inputs=[slow])
    goal, settings = Goal(throughput=RATE), Settings.of({**SETTINGS, "slot_instances": 128, "control": "off"})
    with penstock.run(made, "standalone", machines=1, settings=settings) as running:
        hands = DeskHands(running.run, running.desk, goal, "saboteur")
        guards = [guard for guard in guards_for(goal, settings) if "Patience" not in repr(guard)]
        with Controller("saboteur", Saboteur(), hands, guards, every=1.0):
            deadline = time.monotonic() + WAIT
            while len(running.decisions()["decisions"]) < 2:
                assert time.monotonic() < deadline, story_of(running)
                running.wait(0.5)
            first, second = (running.operation(number, wait=WAIT) for number in (1, 2))
        harm, undo = running.decisions()["decisions"]
        assert harm["verdict"] == "harmful"
        assert undo["reverts"] == [1]
        assert second["state"] == "done", second
        assert second["asked_at"] - first["ended_at"] <= 2 * WINDOW
        assert running.run.placements.planned.total("slow") == 3
        running.wait(3 * WINDOW)
        assert throughput(running.status()) >= 0.95 * RATE


@pytest.mark.live
@pytest.mark.timeout(600)
def test_a_chain_is_taken_apart_for_the_operator_that_needs_it_and_put_together_again(tmp_path: Path) -> None:
    made = Topology("chained_goal")
    schedule = sources.stepped(((60, 100), (60, 400), (300, 100)))
    numbers = made.source("numbers", sources.rate(schedule, sources.numbers()))
    slow = made.map("slow", service_time(0.004), inputs=[numbers], schema="id long, value double")
    made.sink("out", sinks.noop(), inputs=[slow])
    settings = Settings.of({**SETTINGS, "slot_instances": 128, "control": "off"})
    whole, seen = ("numbers", "slow", "out"), []
    with penstock.run(made, "local", settings=settings, goal=Goal(throughput=400.0)) as running:
        started = time.monotonic()
        while time.monotonic() < started + 415:
            chains = running.run.snapshot().chains
            if not seen or seen[-1] != chains:
                seen.append(chains)
            running.wait(1.0)
        reasons = [(one["kind"], one["reason"]) for one in running.events()["events"]]
    assert seen[0] == (whole,), reasons
    assert any("slow" not in chain for chains in seen for chain in chains) or () in seen, reasons
    assert seen[-1] == (whole,), reasons
