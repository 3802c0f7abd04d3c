"""A connection to SQLite or PostgreSQL: how it is opened, its transactions, and how they are tried again when a problem
may pass."""

from __future__ import annotations

import os
import time
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import DataError, DBAPIError, IntegrityError, NotSupportedError, ProgrammingError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from penstock.channels.hold import FileHold, Hold, NoHold, SessionHold
from penstock.channels.line import Line
from penstock.channels.patience import Patience
from penstock.errors import PenstockError
from penstock.logs import LOGGER

Synchronous = Literal["NORMAL", "FULL"]
Result = TypeVar("Result")

#: Any number will do, as long as every Penstock uses the same: it guards the creation of the tables.
_CREATION_LOCK = 7_365_707_736
_VERSION_KEY = "schema_version"
#: How long SQLite waits for a lock of another process.
BUSY_SECONDS = 10
#: How large SQLite's log may stay: what it writes before it moves pages into the database itself, a thousand of 4 KB.
JOURNAL_BYTES = 4 << 20
CONNECT_SECONDS = 5
#: A server that gives up a statement may take so much longer to say so.
GRACE_SECONDS = 5.0
#: SQLSTATEs of problems that may pass: a lost connection, a deadlock, a server that restarts or lacks something.
_PASSING_STATES = ("08", "40", "53", "57P")
#: The server takes no writes: a replica that is not the primary yet, or a primary that is none any more.
_READ_ONLY = "25006"
#: Once the tables are there, these errors are mistakes of Penstock's own: trying again would not help.
_MISTAKES = (IntegrityError, ProgrammingError, DataError, NotSupportedError)

#: How many seconds a driver waits for the lock of its topology.
HOLD_SECONDS = 5.0
#: A connection whose other end is gone without a word is noticed within half a minute, not after a quarter of an hour.
_KEEPALIVE = {
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 20_000,
}


@dataclass(frozen=True)
class Retries:
    """How often a transaction is tried again, and how long to wait before: each pause is twice the one before."""

    times: int = 5
    first_pause: float = 0.1

    def pauses(self) -> tuple[float | None, ...]:
        """The pause after each failure; None where it is the last."""
        return (*(self.first_pause * 2**index for index in range(self.times)), None)


#: About a minute: what a server needs to be restarted, or another one to take its place.
PATIENT = Retries(times=9)


@dataclass(frozen=True)
class DatabaseContent:
    """What a database holds: its errors name it."""

    name: str
    error: str
    #: How many KB of the database SQLite may keep in memory: by default 2 MB.
    cache_kb: int = 2000


CATALOG = DatabaseContent("catalog", "CATALOG_UNREACHABLE")
#: It is written row by row for hours and hardly ever read. SQLite would keep all of it until 2 MB are full: the memory
#: of a driver would grow for its first hour.
STATISTICS = DatabaseContent("statistics store", "STATISTICS_UNREACHABLE", cache_kb=256)
NEIGHBOURS = DatabaseContent("database of neighbours", "NEIGHBOURS_UNREACHABLE")


class Prepared:
    """A statement that writes rows, as the text that its database gets. SQLAlchemy would look the text up each time,
    and look at every value: that costs ten times what SQLite does with it."""

    def __init__(self, compiled: sa.Compiled) -> None:
        self._text = str(compiled)
        #: The names of the values in the order of their places; None where the text has their names.
        self._places: Sequence[str] | None = getattr(compiled, "positiontup", None)

    def run(self, connection: sa.Connection, rows: Sequence[Mapping[str, Any]]) -> int:
        """Run it for every row; returns how many rows of the table it has changed, if it was run for one."""
        places = self._places
        values: list[Any] = list(rows) if places is None else [tuple(row[name] for name in places) for row in rows]
        return connection.exec_driver_sql(self._text, values[0] if len(values) == 1 else values).rowcount


class Database:
    """Runs transactions on an engine. Messages show `shown`, the URL without what must stay secret."""

    def __init__(self, engine: sa.Engine, retries: Retries, content: DatabaseContent) -> None:
        self._engine = engine
        self._retries = retries
        self._content = content
        self._secrets = _secrets(engine.url)
        self._hold: Hold = NoHold()
        self._patience = Patience()
        #: A database that answered once may be restarted and is waited for; one that never answered is an error at
        #: once.
        self._once_prepared: Retries | None = None
        self.shown = _shown(engine.url)

    @staticmethod
    def open(
        url: str,
        synchronous: Synchronous = "NORMAL",
        retries: Retries | None = None,
        content: DatabaseContent = CATALOG,
    ) -> Database:
        parsed = _parse(url, content)
        if synchronous not in get_args(Synchronous):
            raise PenstockError("BAD_SETTING", f'synchronous is "{synchronous}".', "It can be NORMAL or FULL.")
        if parsed.get_backend_name() == "sqlite":
            return Database(_sqlite(parsed, synchronous, content), retries or Retries(), content)
        database = Database(_postgresql(parsed, content), retries or Retries(), content)
        database._once_prepared = retries or (PATIENT if content is CATALOG else None)
        return database

    def prepare(self, meta: sa.Table, version: int) -> None:
        """Create the tables beside `meta` (topology, key, value), or those that an older Penstock did not know yet, and
        refuse those of a newer one. A database that cannot be used is closed."""
        try:
            self.run(lambda connection: self._prepare(connection, meta, version))
            self._retries = self._once_prepared or self._retries
        except DBAPIError as error:
            self.close()
            raise self.unreachable(error) from None
        except PenstockError:
            self.close()
            raise

    def _prepare(self, connection: sa.Connection, meta: sa.Table, version: int) -> None:
        if not self.is_sqlite:
            # Two topologies that are started together must not both create them.
            connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_CREATION_LOCK)))
        found: str | None = None
        if sa.inspect(connection).has_table(meta.name):
            query = sa.select(meta.c.value).where(meta.c.topology == "", meta.c.key == _VERSION_KEY)
            found = connection.scalar(query)
        if found is not None and int(found) > version:
            raise PenstockError(
                "STATE_DOES_NOT_FIT",
                f"The {self._content.name} {self.shown} has version {found}; this Penstock knows {version}.",
                "Use the newer Penstock that wrote it, or a new state folder.",
            )
        if found is None or int(found) < version:
            meta.metadata.create_all(connection)
            row = {"topology": "", "key": _VERSION_KEY, "value": str(version)}
            connection.execute(self.upsert_value(meta), row)

    def hold(self, name: str) -> None:
        """Take a lock that no other process has, until this is closed or the process ends; STATE_IN_USE otherwise."""
        deadline = time.monotonic() + HOLD_SECONDS
        self._hold = self._make_hold(name)
        while not self.still_held():
            if time.monotonic() > deadline:
                raise PenstockError(
                    "STATE_IN_USE",
                    f"another process runs this topology on the {self._content.name} {self.shown}.",
                    "Stop that process first, or give this topology another name or another catalog.",
                )
            time.sleep(0.2)  # the server may not know yet that a process was just killed

    def still_held(self) -> bool:
        """Whether this process has the lock. A lock that was lost is taken again unless somebody else has it; the
        server may not have noticed yet that the session which had it is gone."""
        try:
            self._patience.check()
            return not self._hold.lost() or self._hold.take()
        except DBAPIError as error:
            raise self.unreachable(error) from None

    def _make_hold(self, name: str) -> Hold:
        if not self.is_sqlite:
            return SessionHold(self._engine, name, lambda connection: self._watched(connection, time.monotonic()))
        path = self._engine.url.database
        if not path or path == ":memory:":
            return NoHold()
        return FileHold(Path(f"{path}.{zlib.crc32(name.encode()):08x}.lock"))

    def run(
        self, work: Callable[[sa.Connection], Result], retries: Retries | None = None, within: float | None = None
    ) -> Result:
        """Do the work in one transaction, and do all of it again if the database was busy or the connection was lost.
        `retries` is for who cannot wait for as long as others, and so is `within`, the most seconds of a statement.

        When the connection is lost during the commit nobody knows whether the work was done, so it must be able to
        find out when it is called again."""
        began = time.monotonic()
        for pause in (retries or self._retries).pauses():
            try:
                self._patience.check()
                with self._engine.begin() if self.is_sqlite else self._bounded(within, began) as connection:
                    return work(connection)
            except _MISTAKES:
                raise
            except (DBAPIError, PoolTimeoutError) as error:
                if pause is None or not _may_pass(error) or self._patience.is_over:
                    raise self.unreachable(error) from None
                if _state(error) == _READ_ONLY:
                    self._engine.dispose()  # the address may lead to another server by now
                LOGGER.info("%s Penstock tries again in %g s.", self.unreachable(error).message, pause)
                if not self._patience.pause(pause, began):
                    raise self.unreachable(error) from None
        raise AssertionError("the last pause is None")

    def wait_at_most(self, seconds: float) -> None:
        """From now on a transaction takes so many seconds at most, with all attempts, also one that is under way. After
        the first that was not answered in that time nothing more is sent. On SQLite, an attempt that waits for a lock
        is not given up before BUSY_SECONDS are over."""
        self._patience.limit(seconds)

    @contextmanager
    def _bounded(self, within: float | None, began: float) -> Iterator[sa.Connection]:
        """A transaction on PostgreSQL in which each statement takes `within` seconds at most. PostgreSQL gives up the
        statement; if it does not even do that, the connection is cut off: nothing else ends the wait for a server that
        hangs. On SQLite, only a lock can last, and BUSY_SECONDS bound that."""
        with (
            self._engine.connect() as connection,
            self._watched(connection, began, needed=within is not None) as line,
            nullcontext() if within is None else line.cut_off_after(within + GRACE_SECONDS),
            connection.begin(),
        ):
            if within is not None:
                connection.exec_driver_sql(f"SET LOCAL statement_timeout = {round(within * 1000)}")
            yield connection

    @contextmanager
    def _watched(self, connection: sa.Connection, began: float, *, needed: bool = False) -> Iterator[Line]:
        """A block in which a connection to PostgreSQL can be cut off, and is when its time is over."""
        line = Line(connection, needed=needed)
        with line.used(), self._patience.watching(line, began):
            yield line

    def prepare_statement(self, statement: sa.UpdateBase, names: Sequence[str] | None = None) -> Prepared:
        """A statement for who runs it very often. `names` are the columns that an INSERT gets."""
        return Prepared(statement.compile(dialect=self._engine.dialect, column_keys=names))

    def insert(self, table: sa.Table) -> sqlite.Insert | postgresql.Insert:
        """An INSERT that can say what to do on a conflict: the two have it in their own dialects."""
        return sqlite.insert(table) if self.is_sqlite else postgresql.insert(table)

    def upsert_value(self, meta: sa.Table) -> sa.Executable:
        """An INSERT into a table of topology, key and value; where the key is there already, it gets the new value."""
        statement = self.insert(meta)
        return statement.on_conflict_do_update(
            index_elements=["topology", "key"], set_={"value": statement.excluded.value}
        )

    @property
    def is_sqlite(self) -> bool:
        return self._engine.dialect.name == "sqlite"

    def unreachable(self, error: Exception) -> PenstockError:
        """The named error for an error of the database, in one line and without secrets."""
        cause = error.orig if isinstance(error, DBAPIError) else error
        why = " ".join(str(cause).split())
        for secret in self._secrets:
            why = why.replace(secret, "***")
        hint = _SQLITE_HINT if self.is_sqlite else _POSTGRESQL_HINT
        return _unreachable(self._content, f"{self.shown}: {why}", hint)

    def close(self) -> None:
        self._hold.release()
        self._engine.dispose()


_SQLITE_HINT = (
    "Check that the folder exists, is on a local disk with room and may be written, and that no other program holds "
    "the file."
)
_POSTGRESQL_HINT = "Check that the server runs, and the URL's host, port, user, password and database."


def _parse(url: str, content: DatabaseContent) -> sa.URL:
    try:
        parsed = sa.make_url(url)
    except (sa.exc.ArgumentError, ValueError):
        # The text is not repeated: there may be a password in it.
        raise _unreachable(content, "its URL cannot be read", _URL_HINT) from None
    backend = parsed.drivername.partition("+")[0]
    if backend in ("postgresql", "postgres"):
        return parsed.set(drivername="postgresql+psycopg")
    if backend == "sqlite":
        return parsed.set(drivername="sqlite+pysqlite")
    raise _unreachable(content, f'"{backend}" is not a kind of database that can hold it', _URL_HINT)


_URL_HINT = "Give sqlite:////folder/file.db or postgresql://user:password@host:5432/database."


def _sqlite(url: sa.URL, synchronous: Synchronous, content: DatabaseContent) -> sa.Engine:
    if url.database and url.database != ":memory:":
        _create_private(Path(url.database), content)
    # One connection: threads that write queue for it in the order they came, which SQLite's own waiting does not keep.
    engine = sa.create_engine(
        url,
        poolclass=sa.QueuePool,
        pool_size=1,
        max_overflow=0,
        connect_args={"timeout": BUSY_SECONDS, "check_same_thread": False},
        hide_parameters=True,
    )

    @sa.event.listens_for(engine, "connect")
    def set_up(connection: Any, _record: Any) -> None:
        # The driver would begin transactions by itself, and later than we need: `begin` below does.
        connection.isolation_level = None
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute(f"PRAGMA synchronous = {synchronous}")
        # A reader that takes its time lets the log grow, and by default the file stays as large as it ever was.
        connection.execute(f"PRAGMA journal_size_limit = {JOURNAL_BYTES}")
        connection.execute(f"PRAGMA cache_size = -{content.cache_kb}")

    @sa.event.listens_for(engine, "begin")
    def begin(connection: sa.Connection) -> None:
        # A transaction that reads first and writes later fails at once if another process wrote in between, however
        # long the busy timeout is; one that takes the lock at its start waits.
        connection.exec_driver_sql("BEGIN IMMEDIATE")

    return engine


def _create_private(path: Path, content: DatabaseContent) -> None:
    """Create the file with mode 0600: SQLite would leave it to the umask. Its helper files get the same mode."""
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
    except OSError as error:
        raise _unreachable(content, f"{path}: {error.strerror}", _SQLITE_HINT) from None


def _postgresql(url: sa.URL, content: DatabaseContent) -> sa.Engine:
    defaults = {"connect_timeout": CONNECT_SECONDS, "application_name": "penstock", **_KEEPALIVE}
    try:
        return sa.create_engine(
            url,
            connect_args={name: value for name, value in defaults.items() if name not in url.query},
            hide_parameters=True,
        )
    except ImportError:
        raise _unreachable(
            content,
            f"{_shown(url)}: the PostgreSQL driver is not installed",
            "Install it: pip install 'psycopg[binary]>=3.1'. Penstock's extra `postgresql` has it too.",
        ) from None


def _may_pass(error: DBAPIError | PoolTimeoutError) -> bool:
    if isinstance(error, PoolTimeoutError) or error.connection_invalidated:
        return True
    name = getattr(error.orig, "sqlite_errorname", None)
    if name is not None:
        return str(name).startswith(("SQLITE_BUSY", "SQLITE_LOCKED"))
    state = _state(error)
    if state == _READ_ONLY:
        return True
    # A connection that cannot be made, or breaks, has no state: the server could not send one.
    return isinstance(error, sa.exc.OperationalError) and (state is None or state.startswith(_PASSING_STATES))


def _state(error: Exception) -> str | None:
    """The SQLSTATE of an error of PostgreSQL, if the server could send one."""
    return getattr(getattr(error, "orig", None), "sqlstate", None)


def _shown(url: sa.URL) -> str:
    # The query may hold a password too, so it is left out as a whole.
    return url.set(query={}).render_as_string(hide_password=True)


def _secrets(url: sa.URL) -> tuple[str, ...]:
    query: Mapping[str, Any] = url.query
    hidden = [str(url.password or ""), *(str(value) for name, value in query.items() if "pass" in name)]
    return tuple(secret for secret in hidden if secret)


def _unreachable(content: DatabaseContent, message: str, hint: str) -> PenstockError:
    return PenstockError(content.error, f"The {content.name} cannot be reached: {message}.", hint)
