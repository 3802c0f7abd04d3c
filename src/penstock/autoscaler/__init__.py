"""Collect, decide, act: goals, policies, guards, and the desk whose operations carry out what was decided. Nothing here
touches Spark."""
