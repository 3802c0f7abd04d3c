"""Text as it can be written anywhere.

A text of Python's may hold half of a pair of UTF-16, which is no character, as the JSON escape "\\ud83d" leaves it.
No UTF-8 has such a text, so Arrow, databases and terminals refuse it.
"""

from __future__ import annotations


def printable(text: str) -> str:
    """The same text; halves of pairs as their escapes."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")
