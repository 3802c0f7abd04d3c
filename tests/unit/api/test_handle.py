"""The handle of `penstock.run` without Spark: who ends what, and when."""

from __future__ import annotations

import inspect
import json
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest

from penstock import PenstockError, Settings, Topology, plugins, sinks, sources
from penstock.api import handle as module
from penstock.api.handle import Handle
from penstock.autoscaler.goals import Goal
from penstock.autoscaler.hands import controller_of
from penstock.autoscaler.loop import Controller
from penstock.cli.commands import run as command_line
from penstock.cluster.choice import ClusterChoice
from penstock.cluster.lab.sizes import LabShape
from penstock.cluster.model import Cluster
from penstock.testing import RecordingTopology


def declared() -> Topology:
    topology = Topology("t")
    topology.sink("out", sinks.noop(), inputs=topology.source("rows", sources.rate(1)))
    return topology


@contextmanager
def started(definition: Any, _: object, settings: Any, *words: object, **more: object) -> Iterator[Any]:
    yield RecordingTopology(definition, Cluster.of(["a"], 1), settings)


def test_the_user_s_own_guards_come_after_all_others(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Controller] = []

    def kept(*words: Any) -> Controller:
        made.append(controller_of(*words))
        return made[0]

    def not_at_night(proposal: object, view: object) -> str:
        return "it is night"

    monkeypatch.setattr(module, "started", started)
    monkeypatch.setattr("penstock.api.steered_topology.controller_of", kept)
    goal, settings = Goal(machines_max=3), Settings(control="off")
    with module.run(declared(), "standalone", settings=settings, goal=goal, guards=[not_at_night]):
        assert made[0].guards[-1] is not_at_night
        assert len(made[0].guards) > 1


def test_the_machines_of_a_lab_have_the_sizes_that_the_command_line_could_give_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    chosen: list[ClusterChoice] = []

    @contextmanager
    def noted(definition: Any, choice: ClusterChoice, *words: Any, **more: Any) -> Iterator[Any]:
        chosen.append(choice)
        with started(definition, choice, *words, **more) as run:
            yield run

    monkeypatch.setattr(module, "started", noted)
    words: dict[str, Any] = {"machine_cores": 0.5, "machine_memory": "1g", "machine_sizes": "2,1//10mbit"}
    words |= {"link": "1gbit", "latency": "5ms", "settings": Settings(control="off")}
    with module.run(declared(), "lab", machines=3, **words):
        assert chosen == [ClusterChoice("lab", 3, lab=LabShape.read(0.5, "1g", "1gbit", "5ms", "2,1//10mbit"))]
    with module.run(declared(), "lab", settings=Settings(control="off")):
        assert chosen[1:] == [ClusterChoice("lab")]
    for wrong in ({"machine_cores": 0}, {"machine_memory": "600"}, {"machine_sizes": "1/1/1/1"}, {"link": "fast"}):
        with pytest.raises(PenstockError) as caught:
            module.run(declared(), "lab", **wrong)
        assert caught.value.name == "BAD_CLUSTER"
    with pytest.raises(PenstockError, match="have no sizes of their own"):
        module.run(declared(), "standalone", latency="5ms")


def test_what_the_command_line_says_of_a_cluster_a_program_can_say_too() -> None:
    options = {option.name for option in command_line.params}
    said_otherwise = {"target", "seconds", "as_json", "conf"}
    of_settings_and_goal = {"cores", "strategy", "assignments", "throughput", "machines_max"}
    assert options - said_otherwise - of_settings_and_goal <= set(inspect.signature(module.run).parameters)


def test_a_policy_that_needs_no_goal_scales_without_one_and_refuses_one(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Controller] = []

    def kept(*words: Any) -> Controller:
        made.append(controller_of(*words))
        return made[0]

    monkeypatch.setattr(module, "started", started)
    monkeypatch.setattr("penstock.api.steered_topology.controller_of", kept)
    settings = Settings(control="off", strategy="threshold", threshold_period=30.0)
    with module.run(declared(), "standalone", settings=settings):
        assert made[0].every == 30.0
    with pytest.raises(PenstockError) as caught:
        module.run(declared(), "standalone", settings=settings, goal=Goal(machines_max=3))
    assert caught.value.name == "BAD_GOAL"
    made.clear()
    with module.run(declared(), "standalone", settings=Settings(control="off")):
        assert not made


def test_a_program_can_have_decisions_forgotten_where_some_are_made(monkeypatch: pytest.MonkeyPatch) -> None:
    run, told = RecordingTopology(declared().definition(), Cluster.of(["a"], 1)), list[str]()

    @contextmanager
    def started_with(*words: object, **more: object) -> Iterator[Any]:
        yield run

    made: list[Controller] = []

    def kept(*words: Any) -> Controller:
        made.append(controller_of(*words))
        return made[0]

    monkeypatch.setattr(module, "started", started_with)
    monkeypatch.setattr("penstock.api.steered_topology.controller_of", kept)
    run.events.listen(lambda event: told.append(event.reason))
    settings, goal = Settings(control="off"), Goal(machines_max=3)
    with module.run(declared(), settings=settings, goal=goal, forget_decisions=True):
        made[0].step()
    assert "the controller has no earlier decisions to forget" in told
    with pytest.raises(PenstockError, match="there are no decisions to forget") as caught:
        module.run(declared(), settings=settings, forget_decisions=True)
    assert caught.value.name == "BAD_GOAL"


def test_a_move_is_told_in_its_outcome_and_in_the_list_of_migrations() -> None:
    topology = Topology("t")
    rows = topology.source("rows", sources.rate(1, sources.numbers()))
    counted = topology.keyed("count", lambda frame: frame, inputs=rows, key="id", schema="id long", tasks=2)
    topology.sink("out", sinks.noop(), inputs=counted)
    run = RecordingTopology(topology.definition(), Cluster.of(["a", "b"], 1))
    run.engine.state_bytes["count"] = [300, 100]
    handle = Handle(run, "standalone")
    assert handle.migrations() == {"migrations": [], "next": 0}
    was = run.placements.planned.tasks["count"][0]
    other = next(slot for slot in run.cluster.slots if slot != was)
    [told] = handle.wait_for(handle.move_task("count", 0, other.name))["outcome"]["migrations"]
    assert (told["operator"], told["tasks"], told["tasks_of_operator"]) == ("count", [0], 2)
    assert (told["moved_bytes"], told["state_bytes"], told["share"]) == (300, 400, 0.75)
    phases = [told[f"{phase}_seconds"] for phase in ("pause", "save", "load", "resume")]
    assert phases == [None] * 4, "no batch ran"
    answer = handle.migrations()
    assert (answer["next"], [one["operators"] for one in answer["migrations"]]) == (1, [[told]])
    assert answer["migrations"][0]["time"] == told["asked_at"]
    assert json.loads(json.dumps(answer)) == answer, "it is plain enough for JSON"
    assert handle.migrations(after=1) == {"migrations": [], "next": 1}
    handle.end()


def test_a_stop_that_is_asked_for_at_the_end_of_the_start_ends_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    """The interface is open a moment before the program has its handle."""
    topology = Topology("t")
    topology.sink("out", sinks.noop(), inputs=topology.source("rows", sources.rate(1)))
    ended = threading.Event()

    @contextmanager
    def started(definition: Any, *words: object, **more: object) -> Iterator[Any]:
        yield RecordingTopology(definition, Cluster.of(["a"], 1))
        ended.set()

    def open_to_others(handle: Handle, run: Any, until_the_end: ExitStack, *more: object) -> None:
        handle._stop_in_background(True)
        [stopping] = [one for one in threading.enumerate() if one.name == "penstock-stop"]
        stopping.join(1.0)  # as long as it takes to go wrong; now it waits for the start

    monkeypatch.setattr(module, "started", started)
    monkeypatch.setattr(module, "open_to_others", open_to_others)
    handle = module.run(topology, settings=Settings(control="off"))
    assert handle._over.wait(10)
    assert handle.end(), "once is enough, and it waits for the one that is under way"
    assert ended.is_set()


def test_an_interrupt_while_a_change_is_rolled_back_ends_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    ended = threading.Event()

    @contextmanager
    def started(definition: Any, *words: object, **more: object) -> Iterator[Any]:
        try:
            yield RecordingTopology(definition, Cluster.of(["a"], 1))
        finally:
            ended.set()

    def interrupted() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(module, "started", started)
    handle = module.run(declared(), settings=Settings(control="off"))
    monkeypatch.setattr(handle, "close", interrupted)
    with pytest.raises(KeyboardInterrupt):
        handle.end()
    assert ended.is_set()
    assert not handle.end(), "it is over, and was not drained"


def test_a_strategy_that_cannot_be_used_is_refused_before_anything_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(PenstockError) as caught:
        Settings(strategy="stella")
    assert caught.value.name == "UNKNOWN_STRATEGY"

    def never(*words: object, **more: object) -> Any:
        raise AssertionError("something was started")

    monkeypatch.setattr(module, "started", never)
    own = dict(plugins.BUILT_IN[plugins.POLICIES]) | {"broken": "penstock.nowhere:Broken"}
    monkeypatch.setattr(plugins, "BUILT_IN", {**plugins.BUILT_IN, plugins.POLICIES: own})
    with pytest.raises(PenstockError) as caught:
        module.run(declared(), settings=Settings(strategy="broken", control="off"))
    assert caught.value.name == "PLUGIN_FAILED"


def test_a_goal_on_a_cluster_without_other_machines_is_fine_and_chains_stay_on(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Settings] = []

    @contextmanager
    def noted(definition: Any, choice: object, settings: Settings, *words: object, **more: object) -> Iterator[Any]:
        asked.append(settings)
        yield RecordingTopology(definition, Cluster.of(["a"], 1))

    monkeypatch.setattr(module, "started", noted)
    with module.run(declared(), "local", settings=Settings(control="off"), goal=Goal(throughput=10.0)):
        pass
    assert asked[0].chaining == "on"
