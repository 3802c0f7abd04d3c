"""A Redis stream as the driver and the bundles ask about it: its address, its entries, and errors with names."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from typing import Any, TypeVar
from urllib.parse import SplitResult, urlsplit

from penstock.errors import PenstockError

#: The id before all others.
BEGIN = "0-0"
#: For so long all questions in a row may fail before the source does.
PATIENCE_SECONDS = 60.0
#: A bundle that got no answer waits so long before it asks again.
PAUSE_SECONDS = 0.5
#: The longest that one question may take, in seconds.
SECONDS = 10.0
#: Only the ids of entries, and not the entries: the driver does not need these. Beside them, at the same moment, what
#: Redis knows about the whole stream. A number that Redis does not tell is -1.
_LOOK = """
local ids = redis.call('XRANGE', KEYS[1], '(' .. ARGV[1], '+', 'COUNT', ARGV[2])
for at, entry in ipairs(ids) do ids[at] = entry[1] end
if redis.call('EXISTS', KEYS[1]) == 0 then return {ids, 0, 0, '0-0', '0-0'} end
local told, known = redis.call('XINFO', 'STREAM', KEYS[1]), {}
for at = 1, #told - 1, 2 do known[told[at]] = told[at + 1] end
local first = known['first-entry'] and known['first-entry'][1] or '0-0'
return {ids, known['length'], known['entries-added'] or -1, first, known['last-generated-id']}
"""
_DATABASE = re.compile(r"(/\d*)?/?")
T = TypeVar("T")
#: The id of an entry, and its fields.
Entry = tuple[bytes, Mapping[bytes, bytes]]


@dataclass(frozen=True)
class Look:
    """What there was at one moment."""

    #: The first entries after an id, in their order.
    ids: Sequence[str]
    #: Entries that the stream has.
    length: int
    #: Entries that the stream ever got, with those that are deleted by now.
    added: int
    #: The oldest entry that is there.
    first: str
    #: The newest entry that ever was.
    newest: str


@dataclass(frozen=True)
class RedisStream:
    """The address of a stream. The URL may hold a password, so nobody prints it."""

    url: str = field(repr=False)
    key: str

    @property
    def server(self) -> str:
        """Where the server is, without what is secret."""
        parts = urlsplit(self.url)
        if parts.scheme == "unix":
            return parts.path
        return f"{parts.hostname or 'localhost'}:{parts.port or 6379}{parts.path}"

    def look(self, after: str, most: int) -> Look:
        """The first ids after one, and what Redis knows about the stream."""
        ids, length, added, first, newest = self.ask(lambda client: client.eval(_LOOK, 1, self.key, after, most))
        if added < 0:
            raise PenstockError(
                "BAD_SOURCE",
                f'the Redis server {self.server} does not say how many entries "{self.key}" ever got.',
                "Use Redis 7 or newer: an older server cannot tell that entries were deleted before they were read.",
            )
        return Look([one.decode() for one in ids], length, added, first.decode(), newest.decode())

    def newest(self) -> str | None:
        """The id of the newest entry that is there."""
        found = self.ask(lambda client: client.xrevrange(self.key, count=1))
        return found[0][0].decode() if found else None

    def entries(self, after: str, last: str, most: int) -> Sequence[Entry]:
        """The first entries after one id, and up to another. A bundle asks for them, and waits for a server that starts
        again."""
        since = time.monotonic()
        while True:
            try:
                found: Sequence[Entry] = self.ask(lambda client: client.xrange(self.key, f"({after}", last, most))
            except PenstockError as error:
                if error.name != "REDIS_UNREACHABLE" or time.monotonic() - since > PATIENCE_SECONDS:
                    raise
                time.sleep(PAUSE_SECONDS)
            else:
                return found

    @contextmanager
    def waiter(self) -> Iterator[Callable[[str, float], bool]]:
        """A function that waits for an entry after an id, for so many seconds at most, and says whether one has come.
        It has a connection of its own: the URL may limit those that others share."""
        client = self._made(_new_client)

        def has_come(after: str, seconds: float) -> bool:
            # One entry is the least that Redis answers with.
            question = {self.key: after}
            return bool(self.ask(lambda its: its.xread(question, count=1, block=int(seconds * 1000)), client))

        try:
            yield has_come
        finally:
            client.close()

    def ask(self, question: Callable[[Any], T], client: Any = None) -> T:
        """What Redis answers, or a named error. Without a client, the one of this process is used."""
        failed = _library().exceptions
        client = self._made(_client) if client is None else client
        try:
            return question(client)
        except (failed.AuthenticationError, failed.NoPermissionError) as error:
            raise PenstockError(
                "BAD_SOURCE",
                f'the Redis server {self.server} does not let the source read "{self.key}": {_words(error)}.',
                "Give a URL with a user and a password that may read the stream, with EVAL, EXISTS, XINFO and XRANGE, "
                "and with XREVRANGE for a source that does not follow.",
            ) from None
        except failed.ResponseError as error:
            raise PenstockError(
                "BAD_SOURCE", f'"{self.key}" cannot be read: {_words(error)}.', "Name the key of a Redis stream."
            ) from None
        except (failed.RedisError, OSError) as error:
            raise PenstockError(
                "REDIS_UNREACHABLE",
                f"the Redis server {self.server} does not answer: {_words(error)}.",
                "Start the server, and give its address.",
            ) from None

    def _made(self, make: Callable[[str], Any]) -> Any:
        try:
            return make(self.url)
        except ValueError as error:
            raise PenstockError(
                "BAD_SOURCE",
                f"the URL of the Redis server {self.server} has an option that cannot be: {_words(error)}.",
                "Correct what comes after the ? in the URL.",
            ) from None


def is_address(url: Any) -> bool:
    """Whether this is a URL of a Redis server. A password with a character that ends a part of a URL is none: the rest
    of the password would be taken for the name of something, and be shown."""
    if not isinstance(url, str):
        return False
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        return False
    if parts.fragment or "@" in parts.path + parts.query:
        return False
    return _has_place(parts)


def _has_place(parts: SplitResult) -> bool:
    if parts.scheme == "unix":
        return parts.path not in ("", "/")
    return parts.scheme in ("redis", "rediss") and _DATABASE.fullmatch(parts.path) is not None


def number_of(entry: str) -> tuple[int, int]:
    """An id as numbers: as texts, 9-0 comes after 10-0."""
    milliseconds, _, number = entry.partition("-")
    return int(milliseconds), int(number or 0)


def data_lost(stream: str, what: str) -> PenstockError:
    return PenstockError(
        "REDIS_DATA_LOST",
        f'entries of the stream "{stream}" are gone, and were not read yet: {what}.',
        "They were trimmed or deleted, or the stream was made anew. To go on without them, start with a new state "
        "folder, or give up the position of the source with --forget and the name of the source. To keep it from "
        "happening again, trim the stream later, or only up to the ids that were read.",
    )


def _words(error: Exception) -> str:
    return str(error).rstrip(".")


def _library() -> Any:
    try:
        import redis as library
    except ImportError as error:
        raise PenstockError(
            "REDIS_MISSING",
            f"a source reads from Redis, and the package redis cannot be imported here: {error}.",
            "Install it on every machine: pip install 'redis>=5'. Penstock's extra `redis` has it too.",
        ) from None
    return library


@cache
def _client(url: str) -> Any:
    """One client a server and process: it keeps its connections, and any thread may use it."""
    return _new_client(url)


def _new_client(url: str) -> Any:
    library = _library()
    from redis.backoff import NoBackoff
    from redis.retry import Retry

    # One retry is for a connection that the server has closed since. Who asks has patience of its own.
    retry = Retry(NoBackoff(), 1)
    made = library.Redis.from_url(url, socket_timeout=SECONDS, socket_connect_timeout=SECONDS, protocol=2, retry=retry)
    if made.get_encoder().decode_responses:
        raise ValueError("decode_responses is set, and Penstock decodes the entries")
    return made
