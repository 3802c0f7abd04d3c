"""A turn: one Spark job whose tasks are bundles that stand. Spark places the tasks, starts one again that fails, and
says when the job cannot go on."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from penstock.cluster.provider import Executor
from penstock.engine.message.shares import Bundle


@dataclass(frozen=True)
class TurnPlaces:
    """The bundles of a turn, each with the executor that is to run it; None lets Spark choose."""

    bundles: tuple[Bundle, ...]
    executors: tuple[Executor | None, ...]


class Turn:
    """Runs in a thread of its own."""

    def __init__(
        self,
        number: int,
        places: TurnPlaces,
        began: float,
        run: Callable[[Turn], None],
        ended: Callable[[Turn], None],
    ) -> None:
        """`run` runs the job, and returns when all bundles have left. `ended` is called after it, whatever became of
        the job."""
        self.number = number
        self.places = places
        #: In run time.
        self.began = began
        self.error: Exception | None = None
        self.over = threading.Event()
        self._run = run
        self._ended = ended
        self._thread = threading.Thread(target=self._go, name=f"penstock-turn-{number}", daemon=True)

    def start(self) -> None:
        """Start the job. Its bundles may come at any moment from now on."""
        self._thread.start()

    @property
    def bundles(self) -> Sequence[Bundle]:
        return self.places.bundles

    def wait(self, seconds: float) -> bool:
        """Whether the job has ended within so many seconds."""
        return self.over.wait(seconds)

    def _go(self) -> None:
        try:
            self._run(self)
        except Exception as error:
            self.error = error
        finally:
            self.over.set()
            self._ended(self)
