"""A sink that appends rows to a table of a database, through Spark's JDBC writer."""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from penstock.errors import PenstockError
from penstock.kinds import SinkKind, SinkPlace
from penstock.sinks.mistakes import bad_sink


def jdbc(
    url: str, table: str, properties: Mapping[str, str] | None = None, batch_column: str | None = None
) -> JdbcSink:
    """A sink that appends rows to a table of a database, through Spark's JDBC writer and the `properties` it knows
    (user, password, driver, ...). With a `batch_column`, each row has a number in that column that no other sink's
    batch has. A batch that is run again after a failure first deletes the rows that it wrote. Without a `batch_column`,
    such rows may be there twice."""
    if not url.startswith("jdbc:"):
        raise bad_sink(
            "the URL of the database does not start with jdbc:.", 'Give a URL such as "jdbc:postgresql://host/db".'
        )
    if not table:
        raise bad_sink("the JDBC sink names no table.", "Give the name of a table.")
    if batch_column is not None and not batch_column.isidentifier():
        raise bad_sink(f'the batch column is called "{batch_column}".', "Use letters, digits and underscores.")
    return JdbcSink(url, table, dict(properties or {}), batch_column)


@dataclass(frozen=True)
class JdbcSink(SinkKind):
    """A table of a database. URL and properties may hold a password, so neither appears where it is printed."""

    url: str = field(repr=False)
    table: str
    properties: Mapping[str, str] = field(repr=False)
    batch_column: str | None

    kind = "jdbc"
    written_by_bundles = False

    def describe(self) -> Mapping[str, Any]:
        return {
            "kind": self.kind,
            "url": without_secrets(self.url),
            "table": self.table,
            # Their values are nobody's business: a password may be called anything.
            "properties": sorted(self.properties),
            "batch_column": self.batch_column,
        }

    def batch_writer(self, place: SinkPlace) -> JdbcWriter:
        return JdbcWriter(self, place.mark, place.java)


@dataclass(frozen=True)
class JdbcWriter:
    """Appends. With a batch column, what an earlier attempt at the same batch wrote is deleted first."""

    spec: JdbcSink
    #: No other sink and no other state has it: they all count their batches from 0, and none may delete another's.
    mark: str = ""
    #: The driver's Java classes, by a SparkSession.
    java: Callable[[Any], Any] | None = None

    def number(self, batch: int) -> int:
        """What the batch column holds: 31 bits of the mark, and the batch."""
        return ((zlib.crc32(self.mark.encode()) & 0x7FFFFFFF) << 32) + batch

    def write(self, frame: Any, batch: int) -> None:
        spec = self.spec
        if spec.batch_column is not None:
            number = self.number(batch)
            self._forget(frame, number)
            from pyspark.sql import functions as F  # only the driver of a run needs Spark

            frame = frame.withColumn(spec.batch_column, F.lit(number).cast("long"))
        try:
            frame.write.jdbc(spec.url, spec.table, mode="append", properties=dict(spec.properties))
        except Exception as error:
            raise self._problem(error) from error

    def _forget(self, frame: Any, number: int) -> None:
        if self.java is None:
            raise RuntimeError("a JDBC sink with a batch column needs the driver's Java classes")
        jvm = self.java(frame.sparkSession)
        properties = jvm.java.util.Properties()
        for key, value in self.spec.properties.items():
            properties.setProperty(key, value)
        try:
            if "driver" in self.spec.properties:
                jvm.java.lang.Class.forName(self.spec.properties["driver"])
            connection = jvm.java.sql.DriverManager.getConnection(self.spec.url, properties)
        except Exception as error:
            raise self._problem(error) from error
        try:
            metadata = connection.getMetaData()
            tables = metadata.getTables(None, None, None, None)
            known = set()
            while tables.next():
                known.add(str(tables.getString("TABLE_NAME")).lower())
            if self.spec.table.rpartition(".")[2].strip('"`').lower() in known:
                # Spark quotes the columns of a table that it creates; databases differ in what they quote with.
                quote = str(metadata.getIdentifierQuoteString()).strip()
                column = f"{quote}{self.spec.batch_column}{quote}"
                statement = connection.prepareStatement(
                    f"DELETE FROM {self.spec.table} WHERE {column} = ?"  # noqa: S608 - the user's own table
                )
                statement.setLong(1, number)
                statement.executeUpdate()
        except Exception as error:
            raise self._problem(error) from error
        finally:
            connection.close()

    def _problem(self, error: Exception) -> PenstockError:
        # Drivers like to repeat the whole URL, password and all.
        text = str(error).replace(self.spec.url, without_secrets(self.spec.url))
        lines = [line for line in text.splitlines() if "Exception" in line] or text.splitlines() or ["no reason given"]
        return PenstockError(
            "BAD_SINK",
            f'the table "{self.spec.table}" cannot be written: {lines[0][:300]}.',
            "Is the database up, the driver's jar on Spark's class path, and the user allowed to write?",
        )


def without_secrets(url: str) -> str:
    """The part of a JDBC URL that says which database, without user, password and parameters.

    Each database writes its URLs in its own way, so in doubt less is shown: only which driver."""
    driver = re.match(r"jdbc:\w*", url)
    in_doubt = f"{driver.group() if driver else 'jdbc'}:..."
    database, _, parameters = re.sub(r"[?;]", "\0", url, count=1).partition("\0")
    if "@" in parameters or re.search(r"passw|pwd|secret|token|=", database, re.IGNORECASE):
        return in_doubt  # The @ may end a password that has a ? in it.
    _, at, host = database.rpartition("@")
    return f"{in_doubt}@{host}" if at else database
