"""Tables and views in ClickHouse, and sums that are quick over very many turns.

Tables are ReplacingMergeTrees by key with `seq` as their version, so rows that are sent twice, or in another order,
count once. Tables have no partitions: a turn that moves to another month would be in two of them.

A report over 250 million turns cannot look for copies among all of them. Two things make it quick:

- The table `repeated_keys` lists turns that may have several rows: replaced ones that are not merged yet, and copies on
  other machines. A view computes it again every few minutes. Turns that came since count as repeated, too, so a list of
  any age is right, only slower.
- The projection `hourly` has the sums of all rows by hour and has them in each part of the table, so they always are
  those of its rows. From them a report subtracts the rows that do not count, which are among the repeated ones.

So nothing needs to be repeated or repaired after a crash, and machines may push at the same time.
"""

from __future__ import annotations

from burnctl.push.schema import KEYS, TABLES, TOKENS
from burnctl.push.views import JOIN_TEAMS, MEASURES, ClickHouse, is_required, quoted, turns_uncounted, views

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
# `until` is so long ago that every insert which began before it has ended, also when the list before this one was made.
# So a reader may even combine the `until` of a list with the keys of the one before.
_UNTIL: Final = "now() - INTERVAL 15 MINUTE"
_REPEATED_KEYS: Final = f"""
CREATE MATERIALIZED VIEW repeated_keys_refresh REFRESH EVERY 5 MINUTE TO repeated_keys AS
SELECT key_hash, {_UNTIL} AS until FROM turns
WHERE key_hash IN (SELECT key_hash FROM repeated_keys)
  OR key_hash IN (
    SELECT key_hash FROM turns WHERE inserted_at > least((SELECT max(until) FROM repeated_keys), {_UNTIL})
  )
GROUP BY key_hash HAVING count() > 1
UNION ALL SELECT 0 AS key_hash, {_UNTIL} AS until
"""
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
    yield (
        "CREATE TABLE IF NOT EXISTS repeated_keys (key_hash UInt64, until DateTime) "
        "ENGINE = MergeTree ORDER BY key_hash"
    )
    dialect = ClickHouse()
    every = views(dialect) | {"turns_uncounted": turns_uncounted(dialect), "turns_hourly": _turns_hourly()}
    for name, select in every.items():
        yield f"CREATE OR REPLACE VIEW {name} AS {select}"
    yield "DROP VIEW IF EXISTS repeated_keys_refresh"
    yield _REPEATED_KEYS


def _type(table: str, column: Column) -> str:
    name = ClickHouse.types[column.kind]
    if column.kind == "map":
        return name
    is_nullable = not is_required(table, column) and column.name not in TOKENS
    name = f"Nullable({name})" if is_nullable else name
    is_few = column.kind == "text" and column.name in _FEW and not (column.name == "session_id" and table != "turns")
    return f"LowCardinality({name})" if is_few else name


def sums_once(keys: Mapping[str, str], sums: Mapping[str, str], where: str, times: Iterable[str]) -> str:
    """The SELECT of sums by keys, with each turn once. The first one is the number of turns.

    It reads the projection if keys, sums and conditions are of its columns, and else the rows. Each of `times` is a
    part of the period, since for whole hours the projection may be read.
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
    return f"SELECT {shown}, coalesce(t.key_team, teams.team, '') AS team, {added} FROM ({once}) AS t {JOIN_TEAMS}"
