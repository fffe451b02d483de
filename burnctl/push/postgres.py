"""Postgres as a push target: COPY into a staging table, then one upsert, in one transaction with the cursor.

A row never replaces one with a higher `seq`. Uses psycopg, which is an optional extra.
"""

from __future__ import annotations

import json
import os

from burnctl.errors import BurnctlError, UsageError
from burnctl.push.schema import KEYS, OLDEST_WRITER, SCHEMA_VERSION, SETS, TABLES, TOKENS
from burnctl.push.target import Refused, Totals, Unreachable, check_schema
from burnctl.push.views import VIEWS, Postgres, is_required, quoted, views
from burnd.errors import POSTGRES, to_install

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from burnctl.push.schema import Column, Row
    from burnctl.push.target import Batch, DayModel

try:
    import psycopg
    import psycopg.conninfo
except ImportError:
    raise BurnctlError(
        "pushing to Postgres needs psycopg, which is not installed", f"install it with: {to_install(POSTGRES)}"
    ) from None

_LOCK = 0x6275726E64  # of creating tables: two machines may open a new database at once


class PostgresTarget:
    """The database of a `postgres://` URL. `sslmode`, `sslrootcert` and the rest are those of libpq.

    Without `sslmode`, a server elsewhere must have a certificate of an authority of the system: libpq would also
    send the password to a server without any.
    """

    def __init__(self, url: str, user: str | None = None, password: str | None = None) -> None:
        self._url = url
        self._facts: dict[str, Any] = {"user": user, "password": password}
        try:
            given = psycopg.conninfo.conninfo_to_dict(url)
        except psycopg.Error as error:
            raise UsageError(
                f"push: {url} is no URL of a database: {error}", "write postgres://HOST/DATABASE"
            ) from None
        host = str(given.get("host") or "")
        is_here = host in ("", "localhost", "127.0.0.1", "::1") or host.startswith("/")
        if not is_here and "sslmode" not in given and "PGSSLMODE" not in os.environ:
            self._facts["sslmode"] = "verify-full"
            self._facts["sslrootcert"] = given.get("sslrootcert", "system")
        self._connection: psycopg.Connection[Any] | None = None

    @classmethod
    def at(cls, url: str, user: str | None = None, password: str | None = None) -> PostgresTarget:
        return cls(url, user, password)

    def open(self, machine_id: str) -> str | None:
        with self._guarded() as db:
            db.execute("SELECT pg_advisory_xact_lock(%s)", (_LOCK,))
            db.execute(
                "CREATE TABLE IF NOT EXISTS push_schema (version integer PRIMARY KEY, oldest_writer integer NOT NULL)"
            )
            row = db.execute("SELECT coalesce(max(version), 0), coalesce(max(oldest_writer), 0) FROM push_schema")
            there, oldest = row.fetchone() or (0, 0)
            check_schema("the database", there, oldest)
            if there < SCHEMA_VERSION:
                for statement in statements():
                    db.execute(statement)
                db.execute("INSERT INTO push_schema VALUES (%s, %s)", (SCHEMA_VERSION, OLDEST_WRITER))
            row = db.execute("SELECT cursor FROM push_state WHERE machine_id = %s", (machine_id,))
            found = row.fetchone()
            return str(found[0]) if found else None

    def send(self, batch: Batch) -> None:
        with self._guarded() as db:
            for table, rows in batch.tables.items():
                if rows:
                    _upsert(db, table, rows)
            for table, counts in SETS.items():
                # Rows of sessions come as a set: those of earlier sets that the new one does not have go.
                sessions = [row["session_id"] for row in batch.tables.get("sessions", ())]
                db.execute(
                    f"DELETE FROM {table} AS t USING sessions AS s WHERE s.machine_id = t.machine_id "
                    f"AND s.session_id = t.session_id AND t.seq < coalesce(nullif(s.{counts}, 0), s.seq) "
                    "AND s.machine_id = %s AND s.session_id = ANY(%s)",
                    (batch.machine_id, sessions),
                )
            machine = next((rows[0] for rows in batch.tables.values() if rows), {})
            db.execute(
                _STATE,
                (
                    batch.machine_id,
                    machine.get("machine"),
                    machine.get("user"),
                    batch.cursor,
                    batch.seq,
                    SCHEMA_VERSION,
                ),
            )

    def finish_reset(self, machine_id: str, first_seq: int) -> None:
        with self._guarded() as db:
            for table in TABLES:
                db.execute(f"DELETE FROM {table} WHERE machine_id = %s AND seq < %s", (machine_id, first_seq))

    def erase(self, machine_id: str, session_ids: list[str], before: int) -> None:
        with self._guarded() as db:
            db.execute(
                "DELETE FROM content WHERE machine_id = %s AND session_id = ANY(%s) AND seq < %s",
                (machine_id, session_ids, before),
            )

    def totals(self, machine_id: str) -> dict[DayModel, Totals]:
        sums = ", ".join(f"coalesce(sum({name}), 0)" for name in TOKENS)
        with self._guarded() as db:
            rows = db.execute(
                "SELECT to_char(ts AT TIME ZONE 'UTC', 'YYYY-MM-DD'), coalesce(model, ''), count(*), "
                f"{sums}, sum(cost_usd) FROM turns_now WHERE machine_id = %s GROUP BY 1, 2",
                (machine_id,),
            ).fetchall()
        return {(day, model): Totals(turns, tuple(map(int, tokens)), cost) for day, model, turns, *tokens, cost in rows}

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _guarded(self) -> _Transaction:
        """Begins a transaction; connects if necessary."""
        try:
            if self._connection is None or self._connection.closed:
                facts = {name: value for name, value in self._facts.items() if value}
                self._connection = psycopg.connect(self._url, connect_timeout=30, **facts)
        except psycopg.Error as error:
            raise _failure(error) from None
        return _Transaction(self._connection)


class _Transaction:
    """Commits at its end. After an error it rolls back and raises Refused or Unreachable."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self._connection = connection

    def __enter__(self) -> psycopg.Connection[Any]:
        return self._connection

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> None:
        try:
            if error is None:
                self._connection.commit()
                return
            self._connection.rollback()
        except psycopg.Error as failure:
            self._connection.close()
            error = error or failure
        if isinstance(error, psycopg.Error):
            raise _failure(error) from None


def statements() -> Iterator[str]:
    """Creates tables and views, and adds columns that older tables lack."""
    # A view has its columns from the time it was made, and it forbids changing their types.
    yield from (f"DROP VIEW IF EXISTS {name}" for name in reversed(VIEWS))
    for table, columns in TABLES.items():
        fields = [f"{quoted(column.name)} {_type(table, column)}" for column in columns]
        keys = ", ".join(map(quoted, KEYS[table]))
        yield f"CREATE TABLE IF NOT EXISTS {table} ({', '.join(fields)}, PRIMARY KEY ({keys}))"
        yield from (f"ALTER TABLE {table} ADD COLUMN IF NOT EXISTS {field}" for field in fields)
    yield "CREATE INDEX IF NOT EXISTS turns_by_message ON turns (source, message_id)"
    yield "CREATE INDEX IF NOT EXISTS turns_by_time ON turns (ts)"
    yield (
        'CREATE TABLE IF NOT EXISTS push_state (machine_id text PRIMARY KEY, machine text, "user" text, '
        "cursor text NOT NULL, seq bigint NOT NULL, schema integer NOT NULL, at timestamptz NOT NULL)"
    )
    yield 'CREATE TABLE IF NOT EXISTS teams ("user" text PRIMARY KEY, team text)'
    for name, select in views(Postgres()).items():
        yield f"CREATE VIEW {name} AS {select}"


def _type(table: str, column: Column) -> str:
    return Postgres.types[column.kind] + (" NOT NULL" if is_required(table, column) else "")


def _upsert(db: psycopg.Connection[Any], table: str, rows: list[Row]) -> None:
    """Takes the newest row of a key in a batch: an upsert may change a row only once."""
    columns, keys = TABLES[table], KEYS[table]
    names = ", ".join(quoted(column.name) for column in columns)
    changes = ", ".join(f"{quoted(c.name)} = excluded.{quoted(c.name)}" for c in columns if c.name not in keys)
    key_names = ", ".join(map(quoted, keys))
    db.execute(f"CREATE TEMP TABLE IF NOT EXISTS staged_{table} (LIKE {table}) ON COMMIT DELETE ROWS")
    db.execute(f"TRUNCATE staged_{table}")
    with db.cursor().copy(f"COPY staged_{table} ({names}) FROM STDIN") as copy:
        for row in rows:
            copy.write_row([_value(column, row.get(column.name)) for column in columns])
    db.execute(
        f"INSERT INTO {table} ({names}) SELECT DISTINCT ON ({key_names}) {names} FROM staged_{table} "
        f"ORDER BY {key_names}, seq DESC "
        f"ON CONFLICT ({key_names}) DO UPDATE SET {changes} WHERE {table}.seq <= excluded.seq"
    )


def _value(column: Column, value: Any) -> Any:
    """Converts a value for COPY. Removes NUL, which Postgres has in no text."""
    if column.kind == "map":
        return json.dumps(value or {}).replace("\\u0000", "")
    return value.replace("\0", "") if isinstance(value, str) else value


def _failure(error: psycopg.Error) -> Refused | Unreachable:
    text = str(error).strip().partition("\n")[0] or type(error).__name__
    lost = isinstance(error, psycopg.OperationalError | psycopg.InterfaceError)
    if "authentication failed" in text or "no password supplied" in text:
        return Refused("Postgres refuses the user or the password", "see: burnctl help push")
    for words, remedy in _REMEDIES.items():
        if words in text:
            return Refused(f"Postgres: {text}", remedy)
    if lost or isinstance(error, psycopg.errors.SerializationFailure | psycopg.errors.DeadlockDetected):
        return Unreachable(f"Postgres: {text}", "is it running?")
    return Refused(f"Postgres: {text}", "see the log of the server")


_REMEDIES = {
    "certificate verify failed": "name the certificate of your own authority: ?sslrootcert=FILE in the URL",
    "does not support SSL": "give it a certificate, or add ?sslmode=disable to the URL if its network is private",
    "does not exist": "create the database or the role, or correct the URL",
    "permission denied": "grant the user CREATE and USAGE on the schema, and all rights to its tables",
}


_STATE = """
INSERT INTO push_state (machine_id, machine, "user", cursor, seq, schema, at) VALUES (%s, %s, %s, %s, %s, %s, now())
ON CONFLICT (machine_id) DO UPDATE SET machine = coalesce(excluded.machine, push_state.machine),
  "user" = coalesce(excluded."user", push_state."user"), cursor = excluded.cursor, seq = excluded.seq,
  schema = excluded.schema, at = excluded.at
"""
