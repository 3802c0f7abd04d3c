"""The fallback without Spark's internals: bundles run where Spark likes. To be written."""

from __future__ import annotations


class UnplacedStreams:
    internals = None
