"""The bounds of what can be asked of a running topology: the control interface and the command line check the same."""

from __future__ import annotations

#: Far beyond any time that a user means, and within what a database column takes.
LAST_TIME = 1e11
LAST_ID = 2**62
#: The most events, decisions or changes in one answer.
MOST_LISTED = 10_000
MOST_POINTS = 20_000
MOST_ALPHA = 1e6
