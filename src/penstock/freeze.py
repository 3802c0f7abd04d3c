"""Windows of the week in which a controller changes nothing: "Mon-Fri 08:00-09:30; 23:00-01:00"."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime

from penstock.errors import PenstockError

DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_WINDOW = re.compile(
    r"(?:(?P<first>[A-Za-z]{3})(?:-(?P<last>[A-Za-z]{3}))?\s+)?(?P<start>\d\d:\d\d)-(?P<stop>\d\d:\d\d)"
)
MINUTES = 24 * 60


@dataclass(frozen=True)
class FreezeWindow:
    """A time of day on some days of the week. One that ends before it begins goes on into the next day."""

    #: 0 is Monday.
    days: frozenset[int]
    #: Minutes since midnight.
    start: int
    stop: int
    text: str

    def __str__(self) -> str:
        return f'the freeze window "{self.text}"'

    def covers(self, at: datetime) -> bool:
        minute, day = at.hour * 60 + at.minute, at.weekday()
        if self.start < self.stop:
            return day in self.days and self.start <= minute < self.stop
        today = day in self.days and minute >= self.start
        return today or ((day - 1) % 7 in self.days and minute < self.stop)


def freeze_windows(text: str) -> tuple[FreezeWindow, ...]:
    """The windows of the setting `freeze`; BAD_SETTING if they cannot be read."""
    return tuple(_window(part.strip()) for part in text.split(";") if part.strip())


def _window(text: str) -> FreezeWindow:
    found = _WINDOW.fullmatch(text)
    if found is None:
        raise _bad(text)
    first, last = found["first"], found["last"] or found["first"]
    days = frozenset(range(7))
    if first is not None:
        begin, end = _day(first, text), _day(last, text)
        days = frozenset((begin + number) % 7 for number in range((end - begin) % 7 + 1))
    return FreezeWindow(days, _minutes(found["start"], text), _minutes(found["stop"], text), text)


def _day(name: str, text: str) -> int:
    if name.title() not in DAYS:
        raise _bad(text)
    return DAYS.index(name.title())


def _minutes(clock: str, text: str) -> int:
    hours, minutes = int(clock[:2]), int(clock[3:])
    if hours * 60 + minutes > MINUTES or minutes > 59:
        raise _bad(text)
    return hours * 60 + minutes


def _bad(text: str) -> PenstockError:
    return PenstockError(
        "BAD_SETTING",
        f'freeze has "{text}".',
        'Write windows as "Mon-Fri 08:00-09:30" or "22:00-06:00", with ; between them.',
    )
