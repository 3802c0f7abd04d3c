"""Slots and machines in a snapshot, and the traffic between them: all operators on them together."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from penstock.cluster.model import Machine, Placement, Slot
from penstock.cluster.readings import MachineUse
from penstock.monitor.heard_operator import HeardOperator
from penstock.monitor.sample import Way
from penstock.monitor.snapshot import DRIVER, SlotSnapshot, Snapshot, machine_of
from penstock.monitor.totals import SlotTotals
from penstock.monitor.unknown import known_sum, largest, plus, ratio, total


def slot_snapshot(slot: Slot, heard: Mapping[str, HeardOperator], placement: Placement) -> SlotSnapshot:
    """All operators on it together; unknown where one of them is."""
    busy: float | None = 0.0
    cpu: float | None = 0.0
    memory: int | None = None
    executor: int | None = None
    placed = {name: slots[slot] for name, slots in placement.instances.items() if slot in slots}
    for name in {*placed, *(name for name, one in heard.items() if slot.name in one.totals.slots)}:
        one = heard.get(name)
        if one is None:
            busy = cpu = None
            continue
        work = one.totals.slots.get(slot.name, SlotTotals())
        busy, cpu = plus(busy, one.per_second(work.busy)), plus(cpu, one.per_second(work.cpu))
        # A worker process runs bundles of all operators, so it is the largest and not the sum that the slot has.
        memory, executor = largest(memory, work.memory), largest(executor, work.executor_memory)
    instances = sum(placed.values())
    return SlotSnapshot(
        slot.name,
        slot.machine,
        slot.cores,
        instances,
        utilisation=ratio(busy, instances),
        cpu_utilisation=ratio(cpu, slot.cores),
        worker_memory=memory,
        executor_memory=executor,
    )


def machine_snapshot(machine: Machine, slots: Mapping[str, SlotSnapshot]) -> SlotSnapshot:
    mine = [slots[slot.name] for slot in machine.slots]
    cores, instances = sum(one.cores for one in mine), sum(one.instances for one in mine)
    busy = total(
        [one.utilisation * one.instances if one.utilisation is not None else None for one in mine if one.instances]
    )
    cpu = total([one.cpu_utilisation * one.cores if one.cpu_utilisation is not None else None for one in mine])
    return SlotSnapshot(
        machine.name,
        machine.name,
        cores,
        instances,
        utilisation=ratio(busy, instances),
        cpu_utilisation=ratio(cpu, cores),
        worker_memory=known_sum(one.worker_memory for one in mine),
        executor_memory=known_sum(one.executor_memory for one in mine),
    )


def traffic_of(heard: Iterable[HeardOperator]) -> dict[Way, float]:
    traffic: dict[Way, float] = {}
    for one in heard:
        for way, size in (one.totals.traffic or {}).items():
            rate = one.per_second(size)
            if rate is not None:
                traffic[way] = traffic.get(way, 0.0) + rate
    return traffic


def links_of(heard: Iterable[HeardOperator]) -> dict[Way, float]:
    links: dict[Way, float] = {}
    for one in heard:
        carried = [(sender, machine_of(slot), size) for (sender, slot), size in (one.totals.links or {}).items()]
        for slot, work in one.totals.slots.items():
            carried.append((DRIVER, machine_of(slot), work.from_driver or 0))
            carried.append((machine_of(slot), DRIVER, work.to_driver or 0))
        for sender, receiver, size in carried:
            rate = one.per_second(size)
            if rate and sender and receiver:
                links[sender, receiver] = links.get((sender, receiver), 0.0) + rate
    return links


def shuffled_into(machines: Iterable[str], heard: Iterable[HeardOperator]) -> dict[str, float]:
    """Empty if Spark was asked about no operator."""
    asked = [one for one in heard if one.totals.shuffled is not None]
    shuffled = dict.fromkeys(machines, 0.0) if asked else {}
    for one in asked:
        for slot, size in (one.totals.shuffled or {}).items():
            rate, machine = one.per_second(size), machine_of(slot)
            if rate is not None and machine in shuffled:
                shuffled[machine] += rate
    return shuffled


def with_uses(snapshot: Snapshot, uses: Mapping[str, MachineUse]) -> Snapshot:
    """The CPU of a machine is what its group used, where that is known: its instances do not see all of it."""
    machines = {
        name: replace(one, cpu_utilisation=uses[name].cpu) if name in uses else one
        for name, one in snapshot.machines.items()
    }
    return replace(snapshot, machines=machines, machine_uses=dict(uses)) if uses else snapshot
