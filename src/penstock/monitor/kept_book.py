"""What a controller remembers, as one text: kept in the statistics store, so that the next driver has it.

The text is the controller's; nothing here looks into it."""

from __future__ import annotations

from typing import Protocol


class BookStore(Protocol):
    def book(self) -> str | None: ...
    def write_book(self, text: str) -> None: ...


class KeptBook:
    """Reading and writing wait for the store, and raise its named error. Without a store, the text lives as long as the
    process: there is nothing that a later driver could read."""

    def __init__(self, store: BookStore | None = None) -> None:
        self._store = store
        self._text: str | None = None

    def read(self) -> str | None:
        """The text that was written last; None if there is none."""
        return self._text if self._store is None else self._store.book()

    def write(self, text: str) -> None:
        """Replace the text: it is there as a whole, or the one before is."""
        if self._store is None:
            self._text = text
        else:
            self._store.write_book(text)
