"""Reports over many machines (`--fleet TARGET`), from the database or segments that they push to."""

from __future__ import annotations

import time

from burnctl.client import Client
from burnctl.errors import BurnctlError, Failed, UsageError
from burnctl.push.clickhouse import Connection
from burnctl.push.clickhouse_tables import HOUR, literal, sums_once
from burnctl.push.schema import KEYS, TABLES
from burnctl.push.views import MEASURES, TEAMS, ClickHouse, DuckDB, quoted, teams_of_users, views
from burnd import protocol
from burnd.fleet.selection import between

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

    from burnd.contract import Params
    from burnd.fleet.selection import Engine

    Report = Callable[[Engine, Any, int], dict[str, Any]]

_HOUR_MS = 3_600_000
_LISTED = "SELECT max(until) FROM repeated_turns"  # when the list was made
_TRIES = 3  # of a report over segments that are merged while it reads them
_WHOLE = {"done": True, "percent": None, "secondsLeft": None, "blocked": None}


class SegmentGone(BurnctlError):
    """Raised when a segment cannot be read: since it was listed, a push may have merged it into another one."""


class FleetClient(Client):
    """A client for reports alone."""

    def __init__(self, engine: Engine, reopen: Callable[[], Engine] | None = None) -> None:
        super().__init__()
        self._engine, self._reopen = engine, reopen

    @classmethod
    def at(cls, target: str) -> FleetClient:
        """The client of a target, by its URL or folder. Raises UsageError if it has no reports."""
        from burnctl.push.engine import check_url

        check_url(target)
        scheme, colon, _ = target.partition("://")
        if colon and scheme in ("postgres", "postgresql"):
            raise UsageError(
                "a fleet report needs ClickHouse or segments; Postgres has tables and views for SQL of your own",
                "see docs/scale.md",
            )
        if colon and scheme in ("clickhouse", "clickhouses"):
            from burnctl.push.engine import read_credentials

            return cls(ClickHouseEngine(Connection(target, *read_credentials(None))))
        return cls(duckdb_engine(target), lambda: duckdb_engine(target))

    def close(self) -> None:
        self._engine.close()

    def ask(self, method: type[Params], given: Mapping[str, Any]) -> dict[str, Any]:
        from burnd.contract.validation import BadParams, checked
        from burnd.fleet import hotspots, reports
        from burnd.queries.view import Mistaken, Refusal

        answers: dict[str, Report] = {
            "summary": reports.summary,
            "compare": reports.compare,
            "hotspots": hotspots.hotspots,
        }
        if method.method not in answers:
            raise UsageError(
                "--fleet is for summary and its verbs (daily, projects, models ...), compare and hotspots",
                "leave it out",
            )
        wire = {method.params[name].wire: value for name, value in given.items() if value is not None}
        try:
            params = checked(method, wire)
            answer = self._answered(answers[method.method], params)
        except (BadParams, Mistaken) as error:
            raise Failed(protocol.BAD_PARAMS, str(error), error.hint) from None
        except Refusal as error:
            raise Failed(protocol.NOT_FOUND, str(error), error.hint) from None
        return {"version": protocol.VERSION, "backfill": _WHOLE, **answer}

    def _answered(self, report: Report, params: Params) -> dict[str, Any]:
        for tries_left in reversed(range(_TRIES)):
            try:
                return report(self._engine, params, time.time_ns() // 1_000_000)
            except SegmentGone:
                if self._reopen is None or not tries_left:
                    raise
                self._engine.close()
                self._engine = self._reopen()
        raise AssertionError


class ClickHouseEngine:
    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def rows(self, sql: str) -> list[list[Any]]:
        """Asks again if the list of repeated turns was replaced meanwhile: the query may have read both."""
        if not any(view in sql for view in ("turns_once", "turns_uncounted")):
            return self._connection.rows(sql)
        while True:
            listed = self._connection.rows(_LISTED)
            rows = self._connection.rows(sql)
            if self._connection.rows(_LISTED) == listed:
                return rows

    def close(self) -> None:
        self._connection.close()

    def text(self, value: str) -> str:
        return literal(value)

    def sums(self, columns: Sequence[str], where: str, begin: int | None, end: int | None) -> list[list[Any]]:
        """Reads the sums by hour for the whole hours of a period, if the question permits, and rows for its edges."""
        keys = {f"key_{n}": self._team() if column == "team" else column for n, column in enumerate(columns)}
        measures = {f"measure_{n}": sql for n, sql in enumerate(MEASURES)}
        return self.rows(sums_once(keys, measures, where, self._times(begin, end)))

    def _times(self, begin: int | None, end: int | None) -> list[str]:
        """A period as conditions: its whole hours, and what is before and after them."""
        first = begin + -begin % _HOUR_MS if begin is not None else None
        last = end - end % _HOUR_MS if end is not None else None
        at = self.milliseconds("ts")
        if first is not None and last is not None and first > last:  # within an hour
            return [between(at, begin, end)]
        edges = [between(at, *edge) for edge in ((begin, first), (last, end)) if edge[0] != edge[1]]
        return [between(self.hour("ts"), first, last), *edges]

    def _team(self) -> str:
        """The team of a turn without a join, which would keep the sums by hour from being read."""
        rows = [("", ""), *self.rows(f"SELECT * FROM ({teams_of_users(ClickHouse())}) AS t WHERE team IS NOT NULL")]
        users, teams = (f"[{', '.join(map(literal, texts))}]" for texts in zip(*rows, strict=True))
        return f"coalesce(nullIf(team_tag, ''), nullIf(transform(coalesce(\"user\", ''), {users}, {teams}, ''), ''))"

    def milliseconds(self, column: str) -> str:
        return f"toUnixTimestamp64Milli({column})"

    def hour(self, column: str) -> str:
        return f"(toUnixTimestamp({HOUR.replace('ts', column)}) * 1000)"

    def divided(self, expression: str, by: int) -> str:
        return f"intDiv({expression}, {by})"

    def element(self, expression: str, n: int) -> str:
        return f"tupleElement({expression}, {n})"

    def tag(self, key: str) -> str:
        return f"if(mapContains(tags, {literal(key)}), tags[{literal(key)}], NULL)"


class DuckDBEngine:
    def __init__(self, db: Any) -> None:
        self._db = db

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        import duckdb

        try:
            rows: list[tuple[Any, ...]] = self._db.execute(sql).fetchall()
        except (duckdb.IOException, duckdb.InvalidInputException) as error:
            text = str(error).partition("\n")[0]
            raise SegmentGone(f"a segment cannot be read: {text}", "if a push merged it, ask again") from None
        return rows

    def close(self) -> None:
        self._db.close()

    def text(self, value: str) -> str:
        return "'" + value.replace("'", "''") + "'"

    def sums(self, columns: Sequence[str], where: str, begin: int | None, end: int | None) -> list[tuple[Any, ...]]:
        keys = ", ".join(f"{column} AS key_{n}" for n, column in enumerate(columns))
        names = ", ".join(f"key_{n}" for n in range(len(columns)))
        rows = f"SELECT {keys}, * FROM turns_once WHERE {where} AND {between(self.milliseconds('ts'), begin, end)}"
        return self.rows(f"SELECT {names}, {', '.join(MEASURES)} FROM ({rows}) AS chosen GROUP BY {names}")

    def milliseconds(self, column: str) -> str:
        return f"epoch_ms({column})"

    def hour(self, column: str) -> str:
        return f"(epoch_ms({column}) // {_HOUR_MS} * {_HOUR_MS})"

    def divided(self, expression: str, by: int) -> str:
        return f"({expression} // {by})"

    def element(self, expression: str, n: int) -> str:
        return f"struct_extract({expression}, {n})"

    def tag(self, key: str) -> str:
        return f"map_extract(tags, {self.text(key)})[1]"


def duckdb_engine(target: str) -> DuckDBEngine:
    """A DuckDB database over the segments in a folder or bucket. Raises BurnctlError without segments or DuckDB.

    DuckDB reads files of a folder itself; pyarrow reads objects of a bucket.
    """
    try:
        import duckdb
    except ImportError:
        from burnd.errors import FLEET, to_install

        raise BurnctlError(
            "a report over segments needs DuckDB, which is not installed", f"install it with: {to_install(FLEET)}"
        ) from None
    for tries_left in reversed(range(_TRIES)):
        db = duckdb.connect()
        try:
            _add_views(db, target)
        except SegmentGone:
            db.close()
            if not tries_left:
                raise
        else:
            return DuckDBEngine(db)
    raise AssertionError


def _add_views(db: Any, target: str) -> None:
    import os

    sources = _in_bucket(db, target) if target.startswith("s3://") else _in_folder(target.removeprefix("file://"))
    if "turns" not in sources:
        raise BurnctlError(f"{target} has no segments", f"push to it first: burnctl push {target}")
    for table in TABLES:
        _add_table(db, table, sources.get(table))
    db.execute(f"CREATE TABLE teams ({', '.join(f'{quoted(name)} VARCHAR' for name in TEAMS)})")
    teams = os.path.join(target.removeprefix("file://"), "teams.csv")
    if os.path.exists(teams):
        db.execute(f"INSERT INTO teams SELECT {', '.join(map(quoted, TEAMS))} FROM read_csv(?, header = true)", [teams])
    for name, select in views(DuckDB()).items():
        db.execute(f"CREATE VIEW {name} AS {select}")


def _in_folder(folder: str) -> dict[str, str]:
    import glob
    import os

    folder = os.path.expanduser(folder)
    if not os.path.isdir(folder):
        raise BurnctlError(f"{folder}: no such folder", "give the folder that machines push to, or clickhouse://HOST")
    sources = {}
    for table in TABLES:
        files = glob.glob(os.path.join(glob.escape(folder), table, "**", "*.parquet"), recursive=True)
        if files:
            listed = ", ".join("'" + name.replace("'", "''") + "'" for name in sorted(files))
            sources[table] = f"read_parquet([{listed}], union_by_name = true)"
    return sources


def _in_bucket(db: Any, url: str) -> dict[str, str]:
    from burnctl.push.segments import Bucket

    sources = {}
    for table, rows in Bucket(url).datasets().items():
        sources[table] = f"objects_of_{table}"
        db.register(sources[table], rows)
    return sources


def _add_table(db: Any, table: str, source: str | None) -> None:
    """A view of a table's rows: missing columns are null, columns of a later version are left out."""
    columns = {column.name: DuckDB.types[column.kind] for column in TABLES[table]}
    if source is None:
        db.execute(f"CREATE TABLE {table} ({', '.join(f'{quoted(name)} {type_}' for name, type_ in columns.items())})")
        return
    import duckdb

    try:
        there = {row[0] for row in db.execute(f"DESCRIBE SELECT * FROM {source}").fetchall()}
    except duckdb.Error as error:
        text = str(error).partition("\n")[0]
        remedy = "on the machine that wrote it: delete the file and the machine's push_state, then push again"
        raise SegmentGone(f"a segment of {table} cannot be read: {text}", remedy) from None
    if missing := set(KEYS[table]) - there:
        raise BurnctlError(f"the segments of {table} have no column {min(missing)}", "are these files of burnctl push?")
    fields = [
        f"{quoted(name)}::{type_} AS {quoted(name)}" if name in there else f"NULL::{type_} AS {quoted(name)}"
        for name, type_ in columns.items()
    ]
    db.execute(f"CREATE VIEW {table} AS SELECT {', '.join(fields)} FROM {source}")
