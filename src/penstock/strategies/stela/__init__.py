"""Stela, as its paper and thesis have it: congestion, ETP, projection, scale-out and scale-in. Pure: no clock."""
