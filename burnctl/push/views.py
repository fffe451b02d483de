"""The SQL of tables and views, which is the same in ClickHouse, Postgres and DuckDB but for the few words of a dialect.

| view | rows |
|---|---|
| `turns_now`, `sessions_now`, `causes_now`, `findings_now`, `content_now` | what every machine has now: the newest row of each key, without deleted ones |
| `turns_once` | each turn once, though several machines have a copy of its log; with `team` |
| `causes_once` | the causes of each session once; with `team` |

Of the copies of a turn the best one counts: a final one before a partial one, then one that is not open, then the one
with the most output, the most tags, and the lowest machine id. Of the copies of a session's causes those with the most
tokens count. `team` is the tag `team`, or else the team of the user in the table `teams`.
"""  # noqa: E501 - a table

from __future__ import annotations

from burnctl.push.schema import KEYS, SETS, TABLES, TOKENS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import ClassVar

    from burnctl.push.schema import Column

# What a report adds up, in the order of `burnd.fleet.reports.FleetSum.add`. Sums alone: they can be subtracted.
MEASURES = (
    "count(*)",
    *(f"sum({name})" for name in TOKENS),
    "sum(cost_usd)",
    "count(cost_usd)",
    "count(*) FILTER (WHERE open)",
    "count(*) FILTER (WHERE quality = 'partial')",
    "count(*) FILTER (WHERE is_harness_cost)",
    "sum(cost_usd) FILTER (WHERE is_harness_cost)",
    "count(*) FILTER (WHERE has_edits)",
    "count(*) FILTER (WHERE has_edits AND coalesce(retries, 0) = 0)",
)
VIEWS = ("turns_now", "sessions_now", "causes_now", "findings_now", "content_now", "turns_once", "causes_once")
TEAMS = ("user", "team")


class Dialect:
    """What engines write differently; `types` are those of columns by their kinds."""

    types: ClassVar[dict[str, str]]
    tag_count = "cardinality(tags)"
    team_tag = "tags['team']"
    teams = "teams"
    # 64 bits of a turn's key on all machines. They choose the rows to rank, which compares the keys themselves.
    key_hash = "hash(source, message_id)"

    def newest(self, table: str) -> str:
        """SQL for the newest row of each key, deleted ones included."""
        raise NotImplementedError

    def repeated(self) -> str:
        """SQL for the hashes of keys to rank: all with several rows, and maybe others."""
        return f"SELECT {self.key_hash} FROM turns GROUP BY {self.key_hash} HAVING count(*) > 1"

    def is_no_copy(self) -> str:
        """The condition by which rows of all other keys count."""
        return "1 = 1"


class DuckDB(Dialect):
    """DuckDB 1.1 or later, over views of Parquet files."""

    types: ClassVar = {
        "text": "VARCHAR",
        "count": "BIGINT",
        "flag": "BOOLEAN",
        "time": "TIMESTAMPTZ",
        "money": "DECIMAL(18, 12)",
        "map": "MAP(VARCHAR, VARCHAR)",
    }

    def newest(self, table: str) -> str:
        keys = ", ".join(map(quoted, KEYS[table]))
        return f"SELECT * FROM {table} QUALIFY row_number() OVER (PARTITION BY {keys} ORDER BY seq DESC) = 1"


class ClickHouse(Dialect):
    """ClickHouse 25.8 or later."""

    types: ClassVar = {
        "text": "String",
        "count": "Int64",
        "flag": "Bool",
        "time": "DateTime64(3, 'UTC')",
        "money": "Decimal(18, 12)",
        "map": "Map(LowCardinality(String), String)",
    }
    tag_count = "length(tags)"
    team_tag = "nullIf(tags['team'], '')"
    teams = "teams FINAL"  # the team that was inserted last
    key_hash = "key_hash"  # a column: hashing takes three times as long as all else in a report

    def newest(self, table: str) -> str:
        return f"SELECT * FROM {table} FINAL"

    def repeated(self) -> str:
        """Keys that had replaced rows when the list was made, and those of all rows that came later.

        Finding them among all rows would take ten times as long as the rest of a report.
        """
        later = "SELECT key_hash FROM turns WHERE inserted_at > (SELECT max(until) FROM repeated_turns)"
        return f"SELECT key_hash FROM repeated_turns WHERE NOT is_copy UNION ALL {later}"

    def is_no_copy(self) -> str:
        return "(machine_id, key_hash) NOT IN (SELECT machine_id, key_hash FROM repeated_turns WHERE is_copy)"


class Postgres(Dialect):
    """Postgres 13 or later. Its tables have one row for each key."""

    types: ClassVar = {
        "text": "text",
        "count": "bigint",
        "flag": "boolean",
        "time": "timestamptz",
        "money": "numeric(18, 12)",
        "map": "jsonb",
    }
    tag_count = "(SELECT count(*) FROM jsonb_object_keys(tags))"
    team_tag = "tags ->> 'team'"
    key_hash = "hashtextextended(source || ' ' || message_id, 0)"

    def newest(self, table: str) -> str:
        return f"SELECT * FROM {table}"


def teams_of_users(dialect: Dialect) -> str:
    """SQL for each user's team. A user in two teams is in the last one by name: a turn never counts twice."""
    return f'SELECT "user", max(nullif(team, \'\')) AS team FROM {dialect.teams} GROUP BY "user"'


def join_teams(dialect: Dialect) -> str:
    return f'LEFT JOIN ({teams_of_users(dialect)}) AS teams ON teams."user" = t."user"'


def quoted(name: str) -> str:
    """An identifier; `user` is a word of SQL."""
    return f'"{name}"'


def is_required(table: str, column: Column) -> bool:
    return column.name in KEYS[table] or column.name in ("seq", "deleted", "schema")


def views(dialect: Dialect) -> dict[str, str]:
    """The SELECT of each view by its name; each uses only those before it."""
    return {
        "turns_now": f"SELECT * FROM ({dialect.newest('turns')}) AS t WHERE NOT deleted",
        "sessions_now": f"SELECT * FROM ({dialect.newest('sessions')}) AS t WHERE NOT deleted",
        "causes_now": _of_sessions("causes", dialect),
        "findings_now": _of_sessions("findings", dialect),
        "content_now": _of_sessions("content", dialect),
        "turns_once": _turns_once(dialect),
        "causes_once": _causes_once(dialect),
    }


def _columns(table: str) -> str:
    """The columns of a table with the alias `t`, under their own names."""
    return ", ".join(f"t.{quoted(column.name)} AS {quoted(column.name)}" for column in TABLES[table])


def _of_sessions(table: str, dialect: Dialect) -> str:
    """Rows of a table that is sent by session: those of the sequence that the session names."""
    return (
        f"SELECT {_columns(table)} FROM ({dialect.newest(table)}) AS t "
        "INNER JOIN sessions_now AS s ON s.machine_id = t.machine_id AND s.session_id = t.session_id "
        f"AND s.{SETS[table]} = t.seq WHERE NOT t.deleted"
    )


def _turns_once(dialect: Dialect) -> str:
    """Ranks only the rows whose key may be there more than once: ranking all would sort the whole table."""
    columns = ", ".join(quoted(column.name) for column in TABLES["turns"])
    once = (
        f"SELECT {columns} FROM turns WHERE NOT deleted AND {dialect.key_hash} NOT IN ({dialect.repeated()}) "
        f"AND {dialect.is_no_copy()} "
        f"UNION ALL SELECT {columns} FROM ({ranked(dialect, dialect.repeated())}) AS ranked WHERE {COUNTS}"
    )
    team = f"coalesce({dialect.team_tag}, teams.team) AS team"
    return f"SELECT {_columns('turns')}, {team} FROM ({once}) AS t {join_teams(dialect)}"


COUNTS = "age = 1 AND place = 1 AND NOT deleted"


def ranked(dialect: Dialect, keys: str, more: str = "") -> str:
    """The rows with keys of these hashes, and their ranks: by age on a machine, then by quality among machines."""
    aged = (
        f"SELECT *{more}, row_number() OVER (PARTITION BY {', '.join(KEYS['turns'])} ORDER BY seq DESC) AS age "
        f"FROM turns WHERE {dialect.key_hash} IN ({keys})"
    )
    best = (
        "CASE WHEN age = 1 AND NOT deleted THEN 0 ELSE 1 END, "
        "CASE WHEN quality = 'final' THEN 0 ELSE 1 END, CASE WHEN open THEN 1 ELSE 0 END, output DESC, "
        f"{dialect.tag_count} DESC, machine_id"
    )
    return (
        f"SELECT *, row_number() OVER (PARTITION BY source, message_id ORDER BY {best}) AS place FROM ({aged}) AS aged"
    )


def _causes_once(dialect: Dialect) -> str:
    """Ranks only the sessions that several machines have."""
    copied = (
        "SELECT session_id FROM sessions_now WHERE causes_seq > 0 "
        "GROUP BY session_id HAVING min(machine_id) <> max(machine_id)"
    )
    size = " + ".join(f"sum({name})" for name in TOKENS)
    sizes = (
        "SELECT session_id, machine_id, row_number() OVER "
        f"(PARTITION BY session_id ORDER BY {size} DESC, machine_id) AS place FROM causes_now "
        f"WHERE session_id IN ({copied}) GROUP BY session_id, machine_id"
    )
    others = f"SELECT session_id, machine_id FROM ({sizes}) AS sizes WHERE place > 1"
    return (
        f"SELECT {_columns('causes')}, teams.team AS team FROM causes_now AS t {join_teams(dialect)} "
        f"WHERE (t.session_id, t.machine_id) NOT IN ({others})"
    )
