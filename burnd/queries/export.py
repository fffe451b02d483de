"""Lists turns with tags and cost, in pages ordered by time."""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec

from burnd import protocol
from burnd.contract.reports import ExportParams
from burnd.pricing import PriceTable, Tokens
from burnd.pricing.cost import terms_of
from burnd.queries.periods import Stretch
from burnd.queries.selection import Selection, choose, tags_of
from burnd.queries.sums import TURNS, during, selected
from burnd.queries.view import Refusal, View
from burnd.records.times import DAY_MS, to_iso

ExportPosition = tuple[int, str, str, int, str, str]
_positions = msgspec.json.Decoder(ExportPosition)


class ExportRow(NamedTuple):
    """The first six fields are the turn's position in the order of the export."""

    ts: int
    session_id: str
    rail_id: str
    turn_index: int
    source: str
    message_id: str
    parent: str | None
    model: str
    provider: str | None
    project: str | None
    project_key: str | None
    git_branch: str | None
    input: int
    output: int
    reasoning: int
    cache_read: int
    cache_create_5m: int
    cache_create_1h: int
    speed: str | None
    searches: int
    fetches: int
    quality: str
    activity: str | None
    stop_reason: str | None
    has_edits: int | None
    retries: int | None
    prompt_id: str | None
    prompt_retries: int | None
    agent_id: str | None
    agent_type: str | None
    parent_call: str | None
    open: int
    id: int
    session: int
    subagent: int
    terms: str | None
    agent: str | None


def export(view: View, params: ExportParams) -> dict[str, Any]:
    """`next` is None on the last page. With tag filters a page may be short or empty without being the last."""
    selection = choose(view, params).selection
    if params.whole_days:
        begin = None if selection.begin is None else selection.begin - selection.begin % DAY_MS
        end = None if selection.end is None else selection.end + -selection.end % DAY_MS
        selection = selection._replace(begin=begin, end=end)
    rows = _rows(view, selection, _position(params.after), params.limit + 1)
    page = rows[: params.limit]
    groups = selection.groups
    selected_rows = [
        row
        for row in page
        if selection.takes(groups.at(row.session, row.ts, row.id) if groups is not None else 0, row.subagent)
    ]
    tags = tags_of(view.keyed, [(row.source, row.message_id) for row in selected_rows])
    return {
        "turns": [turn_answer(row, tags.get((row.source, row.message_id), {}), view.prices) for row in selected_rows],
        "since": None if selection.begin is None else to_iso(selection.begin),
        "until": None if selection.end is None else to_iso(selection.end),
        "next": msgspec.json.encode(page[-1][:6]).decode() if len(rows) > len(page) else None,
    }


def _position(after: str | None) -> ExportPosition:
    if after is None:
        return _BEFORE_ALL
    try:
        position: ExportPosition = _positions.decode(after)
    except (msgspec.MsgspecError, ValueError):
        raise Refusal("after is not a position in this export", "use the `next` of the page before") from None
    return position


def _rows(view: View, selection: Selection, after: ExportPosition, limit: int) -> list[ExportRow]:
    begin = after[0] if selection.begin is None else max(after[0], selection.begin)
    end = _AFTER_ALL if selection.end is None else selection.end
    terms = [during(Stretch(begin, end)), *selected(selection, TURNS, selection.classes)]
    sql = _TURNS.format(terms=" AND ".join(term.sql for term in terms))
    bound = [value for term in terms for value in term.bound]
    return [ExportRow(*row) for row in view.rows(sql, (*bound, *after, limit))]


def turn_answer(row: ExportRow, tags: dict[str, str], prices: PriceTable) -> dict[str, Any]:
    tokens = Tokens(*row[12:18])
    is_listed = prices.find(row.model, row.provider) is not None
    return {
        "ts": to_iso(row.ts),
        "source": row.source,
        "sessionId": row.session_id,
        "railId": row.rail_id,
        "messageId": row.message_id,
        "turnIndex": row.turn_index,
        "parent": row.parent,
        "model": row.model,
        "provider": row.provider,
        "project": row.project,
        "projectKey": row.project_key,
        "gitBranch": row.git_branch,
        "usage": dict(zip(protocol.USAGE_FIELDS, tokens, strict=True)),
        "costUsd": prices.turn_usd(row.model, row.provider, tokens, terms=row.terms, searches=row.searches),
        "isHarnessCost": bool(terms_of(row.terms).figure) and not is_listed,
        "speed": row.speed,
        "searches": row.searches,
        "fetches": row.fetches,
        "quality": row.quality,
        "open": bool(row.open),
        "activity": row.activity,
        "stopReason": row.stop_reason,
        "hasEdits": None if row.has_edits is None else bool(row.has_edits),
        "retries": row.retries,
        "promptId": row.prompt_id,
        "promptRetries": row.prompt_retries,
        "agentId": row.agent_id,
        "agentType": row.agent_type,
        "parentToolUseId": row.parent_call,
        "agent": row.agent,
        "tags": tags,
    }


_BEFORE_ALL: ExportPosition = (-(1 << 62), "", "", 0, "", "")
_AFTER_ALL = 1 << 62
TURN_COLUMNS = """
x.ts, s.session_id, x.rail, x.turn_index, src.name, x.message_id, x.parent, m.name, p.name, pr.name, k.name,
       b.name, x.input, x.output, x.reasoning, x.cache_read, x.cache_create_5m, x.cache_create_1h, sp.name, x.searches,
       x.fetches, x.quality, a.name, sr.name, x.has_edits, x.retries, x.prompt_id, x.prompt_retries, x.agent_id,
       at.name, x.parent_call, x.open, x.id, x.session, x.subagent, tm.name, an.name
"""
TURN_NAMES = """
CROSS JOIN sessions s ON s.id = x.session
CROSS JOIN classes c ON c.id = x.class LEFT JOIN names tm ON tm.id = c.terms
CROSS JOIN names src ON src.id = x.source CROSS JOIN names m ON m.id = x.model LEFT JOIN names p ON p.id = x.provider
LEFT JOIN names pr ON pr.id = x.project LEFT JOIN names k ON k.id = x.project_key
LEFT JOIN names b ON b.id = x.branch LEFT JOIN names sp ON sp.id = x.speed LEFT JOIN names a ON a.id = x.activity
LEFT JOIN names sr ON sr.id = x.stop_reason LEFT JOIN names at ON at.id = x.agent_type
LEFT JOIN subagents named ON named.id = x.subagent AND named.agent_id = '' LEFT JOIN names an ON an.id = named.type
"""
# Turns by time first, so that only rows of the page are joined, and only equal times are sorted.
_TURNS = f"""
SELECT {TURN_COLUMNS} FROM turns x INDEXED BY turns_by_time {TURN_NAMES}
WHERE {{terms}} AND x.quality <> 'empty'
  AND (x.ts, s.session_id, x.rail, x.turn_index, src.name, x.message_id) > (?, ?, ?, ?, ?, ?)
ORDER BY x.ts, s.session_id, x.rail, x.turn_index, src.name, x.message_id LIMIT ?
"""
