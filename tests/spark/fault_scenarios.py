"""What a seed stands for: the topology, the catalog's database, and the faults in their order. The same seed gives the
same on the same machine, but for the moments."""

from __future__ import annotations

import random
from collections.abc import Sequence

from fault_campaign import Scenario
from fault_kinds import KINDS, lacking
from fault_surroundings import OwnPostgresql
from fault_topologies import SHAPES

CATALOGS = ("sqlite", "postgresql")


def skipped() -> dict[str, str]:
    """Kinds of fault that this machine cannot have, and why."""
    return {kind: why for kind in KINDS if (why := lacking(kind))}


def scenario_of(seed: int, faults: int, without: Sequence[str] = ()) -> Scenario:
    """Seeds that follow each other have other topologies, and the one database after the other."""
    possible = [kind for kind in KINDS if kind not in without]
    of_postgresql = [kind for kind in possible if KINDS[kind].needs is OwnPostgresql]
    catalog = CATALOGS[seed % 2] if of_postgresql else "sqlite"
    if catalog == "sqlite":
        possible = [kind for kind in possible if kind not in of_postgresql]
    return Scenario(list(SHAPES)[seed % len(SHAPES)], catalog, chosen(random.Random(seed), possible, faults))


def chosen(chance: random.Random, possible: Sequence[str], faults: int) -> list[str]:
    """So many faults in proportion to their weights, in an order by chance; where not all kinds fit, chance chooses."""
    whole = sum(KINDS[kind].weight for kind in possible)
    shares = {kind: faults * KINDS[kind].weight / whole for kind in possible}
    kinds = [kind for kind in possible for _ in range(int(shares[kind]))]
    # What is left over goes to kinds by chance, the sooner the larger a kind's remainder is.
    remainders = {kind: shares[kind] % 1 for kind in possible}
    turns = {kind: chance.random() ** (1 / part) if part else -1.0 for kind, part in remainders.items()}
    rest = sorted(possible, key=lambda kind: turns[kind], reverse=True)
    kinds += rest[: faults - len(kinds)]
    chance.shuffle(kinds)
    return kinds
