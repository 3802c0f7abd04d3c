"""Test doubles that ship with the package: for Penstock's own tests, and for those of its users."""

from penstock.testing.recording import RecordingEngine
from penstock.testing.recording_topology import RecordingTopology

__all__ = ["RecordingEngine", "RecordingTopology"]
