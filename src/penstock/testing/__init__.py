"""Test doubles that ship with the package: for Penstock's own tests, and for those of its users."""

from penstock.testing.recording import RecordingEngine

__all__ = ["RecordingEngine"]
