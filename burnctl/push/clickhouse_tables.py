"""Tables and views in ClickHouse, and sums that are quick over very many turns.

Tables are ReplacingMergeTrees by key with `seq` as their version, so rows that are sent twice, or in another order,
count once. Tables have no partitions: a turn that moves to another month would be in two of them.

A report over 250 million turns cannot look for copies among all of them. So it adds up all rows, and subtracts those
that do not count (`turns_uncounted`):

- The projection `hourly` has the sums of all rows by hour. ClickHouse computes it with each part of the table, so it
  always agrees with the rows.
- The table `repeated_turns`, refreshed every few minutes, lists copies that do not count, of keys with one row on each
  machine. It also names the keys that have replaced rows: each report ranks these until ClickHouse has merged them.
- A report also ranks the keys of all rows that came after `until`, a time before the refresh. So an old list makes it
  slower, never wrong.

Every change is a new row; a reset inserts tombstones. So nothing needs to be repaired after a crash, and machines may
push at the same time. The next refresh notices rows that were deleted by hand.
"""

from __future__ import annotations

from burnctl.push.schema import KEYS, TABLES, TOKENS
from burnctl.push.views import COUNTS, MEASURES, ClickHouse, is_required, join_teams, quoted, ranked, views

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from typing import Final

    from burnctl.push.schema import Column

# Texts with few values in comparison with the rows.
_FEW = frozenset(
    (
        *("machine", "user", "source", "session_id", "rail_id", "model", "model_name", "provider", "provider_name"),
        *("project", "project_key", "git_branch", "speed", "quality", "activity", "stop_reason", "agent_id"),
        "prompt_id",
        *("agent_type", "agent", "version", "workflow", "persona", "price_date", "kind", "tool", "day", "reason"),
        *("outcome", "role"),
    )
)
SCHEMA_TABLE: Final = "(version UInt32, oldest_writer UInt32) ENGINE = ReplacingMergeTree ORDER BY version"
HOUR: Final = "toStartOfHour(ts)"
_HOURLY: Final = (
    *(HOUR, "deleted", "machine_id", "machine", '"user"', "team_tag", "source", "model", "model_name"),
    *("provider", "provider_name", "project_key", "project", "activity"),
)
# What the server computes for each turn. `SELECT *` and inserts leave these columns out.
_COMPUTED: Final = (
    "key_hash UInt64 MATERIALIZED cityHash64(source, message_id) CODEC(NONE)",
    "inserted_at DateTime MATERIALIZED now() CODEC(ZSTD(1))",
    "team_tag LowCardinality(String) MATERIALIZED tags['team']",
    f"PROJECTION hourly (SELECT {', '.join((*_HOURLY, *MEASURES))}, max(ts) GROUP BY {', '.join(_HOURLY)})",
)
_SETTINGS: Final = "min_age_to_force_merge_seconds = 86400"
_SETTINGS_OF_TURNS: Final = (
    f"{_SETTINGS}, deduplicate_merge_projection_mode = 'rebuild', lightweight_mutation_projection_mode = 'rebuild'"
)
LONGEST_INSERT_S: Final = 300
# Inserts that began before this are complete, and were so at the refresh before.
_UNTIL: Final = "now() - INTERVAL 15 MINUTE"
# Columns of the view `turns_hourly` by which its rows are grouped, beside the hour and the team.
_SHOWN: Final = ("machine_id", "machine", "user", "source", "model_name", "project_key", "project", "activity")


def statements() -> Iterator[str]:
    """Creates tables and views, and adds columns that older tables lack."""
    for table, columns in TABLES.items():
        fields = [f"{quoted(column.name)} {_type(table, column)} CODEC(ZSTD(1))" for column in columns]
        computed, settings = (_COMPUTED, _SETTINGS_OF_TURNS) if table == "turns" else ((), _SETTINGS)
        yield (
            f"CREATE TABLE IF NOT EXISTS {table} ({', '.join((*fields, *computed))}) ENGINE = ReplacingMergeTree(seq) "
            f"ORDER BY ({', '.join(map(quoted, KEYS[table]))}) SETTINGS {settings}"
        )
        yield from (f"ALTER TABLE {table} ADD COLUMN IF NOT EXISTS {field}" for field in fields)
    yield (
        "CREATE TABLE IF NOT EXISTS push_state (machine_id String, machine Nullable(String), "
        "\"user\" Nullable(String), cursor String, seq Int64, schema Int64, at DateTime64(3, 'UTC'), version Int64) "
        "ENGINE = ReplacingMergeTree(version) ORDER BY machine_id"
    )
    yield 'CREATE TABLE IF NOT EXISTS teams ("user" String, team String) ENGINE = ReplacingMergeTree ORDER BY "user"'
    fields = [f"{quoted(column.name)} {_type('turns', column)}" for column in TABLES["turns"]]
    about_key = "key_hash UInt64, team_tag LowCardinality(String), is_copy Bool, copies UInt64, until DateTime"
    yield (
        f"CREATE TABLE IF NOT EXISTS repeated_turns ({', '.join(fields)}, {about_key}) "
        "ENGINE = MergeTree ORDER BY (is_copy, key_hash)"
    )
    yield from (f"ALTER TABLE repeated_turns ADD COLUMN IF NOT EXISTS {field}" for field in fields)
    all_views = views(ClickHouse()) | {"turns_uncounted": _turns_uncounted(), "turns_hourly": _turns_hourly()}
    for name, select in all_views.items():
        yield f"CREATE OR REPLACE VIEW {name} AS {select}"
    yield "DROP VIEW IF EXISTS repeated_turns_refresh"
    yield (
        "CREATE MATERIALIZED VIEW IF NOT EXISTS repeated_turns_refresh REFRESH EVERY 5 MINUTE TO repeated_turns AS "
        f"{_repeated_turns()}"
    )


def literal(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _type(table: str, column: Column) -> str:
    name = ClickHouse.types[column.kind]
    if column.kind == "map":
        return name
    is_nullable = not is_required(table, column) and column.name not in TOKENS
    name = f"Nullable({name})" if is_nullable else name
    is_few = column.kind == "text" and column.name in _FEW and not (column.name == "session_id" and table != "turns")
    return f"LowCardinality({name})" if is_few else name


def _names() -> str:
    return ", ".join((*(quoted(column.name) for column in TABLES["turns"]), "team_tag"))


def _turns_uncounted() -> str:
    """Rows that do not count: replaced ones, and copies that are not the best. Deleted rows are left out."""
    keys = ClickHouse().repeated()
    listed = f"SELECT {_names()} FROM repeated_turns WHERE is_copy AND key_hash NOT IN ({keys})"
    rows = ranked(ClickHouse(), keys, ", team_tag")
    return f"{listed} UNION ALL SELECT {_names()} FROM ({rows}) AS ranked WHERE NOT deleted AND NOT ({COUNTS})"


def _repeated_turns() -> str:
    """The SELECT of the next list: keys without changes keep their rows, others are ranked again.

    A key with one row on each machine has its copies that do not count, any other key one row that names it.
    """
    names = f"{_names()}, key_hash, is_copy, copies"
    counted = (
        "SELECT key_hash, count() FROM turns WHERE key_hash IN (SELECT key_hash FROM repeated_turns WHERE is_copy) "
        "GROUP BY key_hash"
    )
    keys = (
        "SELECT key_hash FROM repeated_turns WHERE NOT is_copy "
        f"UNION ALL SELECT key_hash FROM repeated_turns WHERE is_copy AND (key_hash, copies) NOT IN ({counted}) "
        "UNION ALL SELECT key_hash FROM turns "
        f"WHERE inserted_at > least((SELECT max(until) FROM repeated_turns), {_UNTIL})"
    )
    several = f"SELECT key_hash FROM turns WHERE key_hash IN ({keys}) GROUP BY key_hash HAVING count() > 1"
    of_key = "OVER (PARTITION BY key_hash)"
    is_one = " AND ".join(f"min({name}) {of_key} = max({name}) {of_key}" for name in ("source", "message_id"))
    new = (
        f"SELECT *, max(age) {of_key} = 1 AND {is_one} AS is_copy, count() {of_key} AS copies "
        f"FROM ({ranked(ClickHouse(), several, ', key_hash, team_tag')}) AS ranked"
    )
    empty = ", ".join(  # of a row that has `until` for a list without others
        f"defaultValueOfTypeName({literal(_type('turns', column))}) AS {quoted(column.name)}"
        for column in TABLES["turns"]
    )
    return (
        f"SELECT {names}, {_UNTIL} AS until FROM repeated_turns WHERE is_copy AND key_hash NOT IN ({keys}) "
        f"UNION ALL SELECT {names}, {_UNTIL} AS until FROM ({new}) AS new "
        "WHERE if(is_copy, place > 1 AND NOT deleted, place = 1) "
        f"UNION ALL SELECT {empty}, '' AS team_tag, 0 AS key_hash, false AS is_copy, 0 AS copies, {_UNTIL} AS until"
    )


def sums_once(keys: Mapping[str, str], sums: Mapping[str, str], where: str, times: Iterable[str]) -> str:
    """The SELECT of sums by keys, with each turn once. The first one is the number of turns.

    It reads the projection if keys, sums and conditions use only its columns, and else the rows. `times` divides the
    period, so that the projection can be read for its whole hours.
    """
    parts = tuple(times) or ("1 = 1",)
    columns = ", ".join(f"{sql} AS {name}" for name, sql in keys.items())
    names = ", ".join(keys)

    def part(source: str, sign: str) -> str:
        added = ", ".join(f"{sign}{_signed(sql)} AS sum_{name}" for name, sql in sums.items())
        return f"SELECT {names}, {added} FROM (SELECT {columns}, * FROM {source}) AS chosen GROUP BY {names}"

    rows = [part(f"turns WHERE NOT deleted AND {where} AND {time}", "") for time in parts]
    rows.append(part(f"turns_uncounted WHERE {where} AND ({' OR '.join(parts)})", "-"))
    whole = ", ".join(f"sum(sum_{name}) AS {name}" for name in sums)
    every = f"({' UNION ALL '.join(rows)}) AS every"
    return f"SELECT {names}, {whole} FROM {every} GROUP BY {names} HAVING {next(iter(sums))} > 0"


def _signed(sql: str) -> str:
    return f"toInt64({sql})" if sql.startswith("count") else sql


def _turns_hourly() -> str:
    """Sums of `turns_once` by hour, for dashboards. The keys have names of their own, as those of columns would win."""
    keys = {"key_hour": HOUR, "key_team": "nullIf(team_tag, '')"}
    keys |= {f"key_{name}": f"coalesce({quoted(name)}, '')" for name in _SHOWN}
    sums = {"turns": "count(*)", "unpriced": "count(*) - count(cost_usd)", "cost_usd": "sum(cost_usd)"}
    sums |= {name: f"sum({name})" for name in TOKENS}
    shown = ", ".join(f"t.key_{name} AS {quoted(name)}" for name in ("hour", *_SHOWN))
    added = ", ".join(f"t.{name} AS {name}" for name in sums)
    once = f'SELECT *, key_user AS "user" FROM ({sums_once(keys, sums, "1 = 1", ())}) AS sums'
    teams = join_teams(ClickHouse())
    return f"SELECT {shown}, coalesce(t.key_team, teams.team, '') AS team, {added} FROM ({once}) AS t {teams}"
