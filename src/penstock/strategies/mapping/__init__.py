"""Mappings say which slot: `Mapping` is the door, `mapping(name)` finds one, also in packages of strangers."""

from penstock.strategies.mapping.door import Mapping, NoRoom, Wanted, mapping, place, start

__all__ = ["Mapping", "NoRoom", "Wanted", "mapping", "place", "start"]
