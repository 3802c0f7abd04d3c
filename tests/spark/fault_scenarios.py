"""What a seed stands for: the topology, the catalog's database, and the faults in their order. The same seed gives the
same on the same machine, but for the moments."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence

from fault_campaign import Scenario
from fault_kinds import KINDS_ON, STANDALONE, Kind, lacking
from fault_surroundings import OwnPostgresql
from fault_topologies import SHAPES

CATALOGS = ("sqlite", "postgresql")


def skipped(cluster: str = STANDALONE) -> dict[str, str]:
    """Kinds of fault that this machine cannot have, and why."""
    return {kind: why for kind in KINDS_ON[cluster] if (why := lacking(kind, cluster))}


def scenario_of(seed: int, faults: int, without: Sequence[str] = (), cluster: str = STANDALONE) -> Scenario:
    """Seeds that follow each other have other topologies, and the one database after the other."""
    kinds = {kind: one for kind, one in KINDS_ON[cluster].items() if kind not in without}
    of_postgresql = [kind for kind, one in kinds.items() if one.needs is OwnPostgresql]
    catalog = CATALOGS[seed % 2] if of_postgresql else "sqlite"
    if catalog == "sqlite":
        kinds = {kind: one for kind, one in kinds.items() if kind not in of_postgresql}
    return Scenario(list(SHAPES)[seed % len(SHAPES)], catalog, chosen(random.Random(seed), kinds, faults), cluster)


def chosen(chance: random.Random, kinds: Mapping[str, Kind], faults: int) -> list[str]:
    """So many faults in proportion to their weights, in an order by chance; where not all kinds fit, chance chooses."""
    whole = sum(one.weight for one in kinds.values())
    shares = {kind: faults * one.weight / whole for kind, one in kinds.items()}
    found = [kind for kind in kinds for _ in range(int(shares[kind]))]
    # What is left over goes to kinds by chance, the sooner the larger a kind's remainder is.
    remainders = {kind: shares[kind] % 1 for kind in kinds}
    turns = {kind: chance.random() ** (1 / part) if part else -1.0 for kind, part in remainders.items()}
    rest = sorted(kinds, key=lambda kind: turns[kind], reverse=True)
    found += rest[: faults - len(found)]
    chance.shuffle(found)
    return found
