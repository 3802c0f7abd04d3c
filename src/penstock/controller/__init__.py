"""Deciding what is to change: plans from what a person, or a strategy, asks for."""
