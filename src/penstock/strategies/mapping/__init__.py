"""Mappings choose slots. `Mapping` is their protocol; `mapping(name)` finds one, also in packages of other authors."""

from penstock.strategies.mapping.protocol import Mapping, NoRoom, Wanted, mapping, place, start

__all__ = ["Mapping", "NoRoom", "Wanted", "mapping", "place", "start"]
