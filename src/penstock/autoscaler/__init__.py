"""Collect, decide, act: goals, policies, guards. Nothing here touches Spark."""
