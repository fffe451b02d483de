"""The tables of a push: their columns, types and keys, the same at every target.

A row is a whole row of the machine's state at `seq`. Of rows with the same key the one with the highest `seq` counts; a
`deleted` one means that there is no such row any more. Rows of `causes`, `findings` and `content` come by session, all
at once: those count whose `seq` is `causes_seq` (`findings_seq`, `content_seq`) of their session.
"""

from __future__ import annotations

import json
from decimal import Decimal

from burnctl.commands.export import COLUMNS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Final

    Row = dict[str, Any]

SCHEMA_VERSION: Final = 2  # a target with a higher one was written by a newer burnctl
OLDEST_WRITER: Final = 1  # burnctl with an older schema must not write to tables that this one made
UNIT: Final = Decimal("1e-12")
MOST_USD: Final = Decimal("999999.999999999999")


class Column:
    """A column: its name and its kind, and the name of its value in an answer of the feed, if it has one there.

    Values in a row by kind: `text` str, `count` int, `flag` bool, `time` str in ISO 8601 with milliseconds and Z,
    `money` Decimal with 12 digits after the point, `map` dict of str to str. Each may be None, but those of a key and
    `seq`, `deleted` and `schema` never are.
    """

    __slots__ = ("field", "help", "kind", "name")

    def __init__(self, name: str, kind: str, help: str = "", field: str = "") -> None:  # noqa: A002
        self.name, self.kind, self.help, self.field = name, kind, help, field


_NAMES = (
    Column("model_name", "text", "plain name of the model, the same for all spellings in logs", "modelName"),
    Column("provider_name", "text", "plain name of the provider; of the maker where the log has none", "providerName"),
)


def _turn_columns() -> tuple[Column, ...]:
    own = [Column(name, kind, field=field) for name, field, kind in COLUMNS if name not in ("machine", "machine_id")]
    return (
        *own,
        *_NAMES,
        Column("rev", "count", "revision of the turn; 0 while it is open for the first time", "rev"),
        Column("version", "text", "release of the harness", "version"),
        Column("request_id", "text", "the provider's id of the request, if the log has it", "requestId"),
        Column("workflow", "text", "the tag workflowId"),
        Column("persona", "text", "the tag persona"),
    )


_MACHINE = (
    Column("machine_id", "text", "random id of the machine's home"),
    Column("machine", "text", "name of the machine"),
    Column("user", "text", "name of the user"),
)
_STATE = (
    Column("seq", "count", "of rows with the same key the highest counts"),
    Column("deleted", "flag", "the machine has no such row any more"),
    Column("schema", "count", "version of these columns"),
    Column("price_date", "text", "date of the price list that costs are computed with"),
)
_TOKENS = tuple(
    Column(name, "count", field=f"usage.{field}")
    for name, field in (
        ("input", "input"),
        ("output", "output"),
        ("reasoning", "reasoning"),
        ("cache_read", "cacheRead"),
        ("cache_create_5m", "cacheCreate5m"),
        ("cache_create_1h", "cacheCreate1h"),
    )
)
TOKENS: Final = tuple(column.name for column in _TOKENS)

TABLES: Final[dict[str, tuple[Column, ...]]] = {
    "turns": (*_MACHINE, *_turn_columns(), *_STATE),
    "sessions": (
        *_MACHINE,
        Column("source", "text", "the harness; empty if only a record of the session is there", "source"),
        Column("session_id", "text", field="sessionId"),
        Column("parent_session_id", "text", "the session that started it", "parentSessionId"),
        Column("project", "text", field="project"),
        Column("project_key", "text", field="projectKey"),
        Column("agent", "text", "agent of a session that a program started", "agent"),
        Column("created_at", "time", field="createdAt"),
        Column("updated_at", "time", field="updatedAt"),
        Column("last_message_id", "text", "last request of its main conversation", "lastMessageId"),
        Column("outcome", "text", "completed, abandoned, errored or unknown", "outcome"),
        Column("may_go_on", "flag", "unknown while the last request is open or recent", "mayGoOn"),
        Column("causes_seq", "count", "`seq` of the rows of `causes` that count; 0: none", "causesSeq"),
        Column("findings_seq", "count", "`seq` of the rows of `findings` that count; 0: none", "findingsSeq"),
        Column("content_seq", "count", "`seq` of the rows of `content` that count; 0: none", "contentSeq"),
        *_STATE,
    ),
    "causes": (
        *_MACHINE,
        Column("source", "text", "the harness", "source"),
        Column("session_id", "text", field="sessionId"),
        Column("n", "count", "number of the row in its session", "n"),
        Column("day", "text", "a day of UTC", "day"),
        Column("kind", "text", "call, prompt, answer, prefix ...; `miss` counts tokens of the others again", "kind"),
        Column("tool", "text", "of a call; of a miss its reason", "tool"),
        Column("target", "text", "of a call: the file, the verb of the command, the agent or skill", "target"),
        Column("agent", "text", "type of the subagent that paid", "agent"),
        Column("model", "text", field="model"),
        Column("provider", "text", field="provider"),
        *_NAMES,
        Column("project", "text", field="project"),
        Column("project_key", "text", field="projectKey"),
        *_TOKENS,
        Column("searches", "count", field="searches"),
        Column("entered", "count", "tokens that entered contexts", "entered"),
        Column("calls", "count", field="calls"),
        Column("errors", "count", field="errors"),
        Column("cost_usd", "money", field="costUsd"),
        *_STATE,
    ),
    "findings": (
        *_MACHINE,
        Column("source", "text", "the harness", "source"),
        Column("session_id", "text", "the session that started all others of the finding", "sessionId"),
        Column("n", "count", "number of the row in its session", "n"),
        Column("kind", "text", "reread, oversized, cache-miss ...", "kind"),
        Column("tool", "text", field="tool"),
        Column("target", "text", field="target"),
        Column("reason", "text", field="reason"),
        Column("project", "text", field="project"),
        Column("project_key", "text", field="projectKey"),
        Column("count", "count", "number of occurrences", "count"),
        Column("tokens", "count", "tokens that could have been saved", "tokens"),
        Column("cost_usd", "money", field="costUsd"),
        *_STATE,
    ),
    # Only with `burnctl push --content`.
    "content": (
        *_MACHINE,
        Column("session_id", "text", field="sessionId"),
        Column("n", "count", "number of the record in its session"),
        Column("rail_id", "text", field="railId"),
        Column("message_id", "text", field="messageId"),
        Column("ts", "time", field="ts"),
        Column("role", "text", "user, assistant, tool_result or system", "role"),
        Column("kind", "text", "text, thinking, tool_use, tool_result, file, title, summary or system_prompt", "kind"),
        Column("tool", "text", "of a call"),
        Column("call_id", "text", "of a call and of its result"),
        Column("is_error", "flag", "of a result"),
        Column(
            "text", "text", "the text; the input of a call or its result, as JSON unless it is text; the name of a file"
        ),
        Column("truncated", "flag", "the text is cut after 1 MiB"),
        *_STATE,
    ),
}
# Rows that come by session, and the column of a session with the sequence that counts.
SETS: Final[dict[str, str]] = {"causes": "causes_seq", "findings": "findings_seq", "content": "content_seq"}
# Of rows with the same key, the one with the highest `seq` counts.
KEYS: Final[dict[str, tuple[str, ...]]] = {
    "turns": ("machine_id", "source", "message_id"),
    "sessions": ("machine_id", "session_id"),
    "causes": ("machine_id", "session_id", "n"),
    "findings": ("machine_id", "session_id", "n"),
    "content": ("machine_id", "session_id", "n"),
}


def kind_of(column: Column) -> str:
    """How the value of a column is found in the feed: not at all, as it is, in the usage, or as money."""
    if column.field.startswith("usage."):
        return "usage"
    return "money" if column.kind == "money" else "plain" if column.field else ""


# By table: an empty row, and the columns of each kind with their names in the feed. A push makes millions of rows.
_EMPTY: Final = {table: dict.fromkeys(column.name for column in columns) for table, columns in TABLES.items()}
_PLAIN, _USAGE, _MONEY = (
    {
        table: [(column.name, column.field.removeprefix("usage.")) for column in columns if kind_of(column) == kind]
        for table, columns in TABLES.items()
    }
    for kind in ("plain", "usage", "money")
)


def row_of(table: str, answer: dict[str, Any], common: Row) -> Row:
    """A row of a table from an object of the feed; `common` has the columns of the machine and of the state."""
    get, usage = answer.get, answer.get("usage") or {}
    row: Row = _EMPTY[table].copy()
    for name, field in _PLAIN[table]:
        row[name] = get(field)
    for name, field in _USAGE[table]:
        row[name] = usage.get(field)
    for name, field in _MONEY[table]:
        row[name] = usd(get(field))
    row.update(common)
    if table == "turns":
        tags = get("tags") or {}
        row["tags"], row["workflow"], row["persona"] = tags, tags.get("workflowId"), tags.get("persona")
    return row


def content_row(record: dict[str, Any], n: int, common: Row) -> Row:
    call, result, file = (record.get(name) or {} for name in ("toolUse", "toolResult", "file"))
    text = record.get("text", call.get("input", result.get("content", file.get("name"))))
    if isinstance(text, dict) and text.keys() == {"blob", "bytes"}:
        text = None  # a long text that was lost, of which the hash is left
    if text is not None and not isinstance(text, str):
        text = json.dumps(text, ensure_ascii=False)
    return row_of("content", record, common) | {
        "n": n,
        "tool": call.get("name") or result.get("toolName"),
        "call_id": call.get("id") or result.get("toolUseId"),
        "is_error": result.get("isError"),
        # Half of a surrogate pair is valid in JSON but not in a database.
        "text": text and text.encode("utf-8", "replace").decode(),
        "truncated": record.get("truncated", False),
    }


def tombstone(table: str, key: dict[str, Any], common: Row) -> Row:
    """A row that marks its key as deleted; `key` has objects of the feed."""
    return row_of(table, key, {**common, "deleted": True})


def usd(amount: float | None) -> Decimal | None:
    """An amount with 12 digits. repr() has the digits that the daemon sent; only absurd counts exceed the limit."""
    return None if amount is None else min(Decimal(repr(amount)).quantize(UNIT), MOST_USD)
