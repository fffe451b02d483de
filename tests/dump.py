"""Dumps an index or a ledger in a form that does not depend on row numbers."""

from __future__ import annotations

from typing import Any

import msgspec

from burnd.attribution.rates import Sums
from burnd.index.store import IndexStore
from burnd.index.sums import MEASURES
from burnd.ledger.journal import Journal
from burnd.records import Copy, Turn
from tests.folded import Folded

_KIND = "cs.name, cm.name, cp.name, cf.name, c.tier, c.open, c.unlogged"
_JOINS = """
      JOIN classes c ON c.id = x.class JOIN names cs ON cs.id = c.source JOIN names cm ON cm.id = c.model
      LEFT JOIN names cp ON cp.id = c.provider LEFT JOIN names cf ON cf.id = c.terms
      LEFT JOIN places p ON p.id = x.place LEFT JOIN names f ON f.id = p.project
      LEFT JOIN names g ON g.id = p.project_key"""
_COUNTED = ", ".join(f"x.{name}" for name in MEASURES)


_QUERIES = {
    "turns": """
      SELECT s.name, t.message_id, se.session_id, t.rail, t.turn_index, t.parent, t.ts, m.name, p.name, pr.name,
             pk.name, br.name, t.input, t.output, t.reasoning, t.cache_read, t.cache_create_5m, t.cache_create_1h,
             sp.name, t.searches, t.fetches, t.quality, ac.name, sr.name, t.has_edits, t.retries, t.prompt_id,
             t.prompt_retries, t.agent_id, at.name, t.parent_call, hv.name,
             t.open, t.rev, t.digest, t.position, t.length
      FROM turns t JOIN names s ON s.id = t.source JOIN sessions se ON se.id = t.session JOIN names m ON m.id = t.model
      LEFT JOIN names p ON p.id = t.provider LEFT JOIN names pr ON pr.id = t.project
      LEFT JOIN names pk ON pk.id = t.project_key LEFT JOIN names br ON br.id = t.branch
      LEFT JOIN names sp ON sp.id = t.speed LEFT JOIN names ac ON ac.id = t.activity
      LEFT JOIN names sr ON sr.id = t.stop_reason LEFT JOIN names at ON at.id = t.agent_type
      LEFT JOIN names hv ON hv.id = t.version""",
    "calls": """
      SELECT t.message_id, c.n, c.call_id, a.name, b.name, c.is_error
      FROM tool_calls c JOIN turns t ON t.id = c.turn
      JOIN names a ON a.id = c.name LEFT JOIN names b ON b.id = c.target""",
    "sessions": """
      SELECT session_id, n.name, parent_session_id, p.name, k.name, agent, created_by, created_at, updated_at,
             said_count, pruned_count, kept_count, content_mode, title, summary, harness_title, harness_summary,
             content_bytes, pruned_up_to
      FROM sessions s LEFT JOIN names n ON n.id = s.source LEFT JOIN names p ON p.id = s.project
      LEFT JOIN names k ON k.id = s.project_key""",
    "facts": """
      SELECT kind, key, s.session_id, rail, ts, digest, position, length
      FROM facts f LEFT JOIN sessions s ON s.id = f.session
      -- A copy whose holder came to own the message is no copy any more.
      WHERE (kind <> 'copy' OR NOT EXISTS (
        SELECT 1 FROM turns t WHERE t.session = f.session AND t.rail = f.rail
        AND t.message_id = json_extract(f.key, '$[1]')))
      -- A request that was withdrawn says nothing any more.
      AND (kind <> 'request' OR EXISTS (SELECT 1 FROM requests r WHERE r.kind = f.kind AND r.key = f.key))""",
    "stamps": "SELECT * FROM stamps",
    "quotas": """
      SELECT position, ts, n.name, window, used_percent, resets_at FROM quotas q JOIN names n ON n.id = q.source""",
    "messages": """
      SELECT s.session_id, rail, msg_idx, message_id, n, b, ts, role, kind, t.name, position, length
      FROM messages m JOIN sessions s ON s.id = m.session LEFT JOIN names t ON t.id = m.tool""",
    "skipped": "SELECT * FROM skipped",
    "sums": f"""
      SELECT {_KIND}, f.name, g.name, a.name, b.name, v.name, u.agent_id, ut.name, s.session_id, bucket, {_COUNTED}
      FROM sums x {_JOINS} JOIN sessions s ON s.id = x.session LEFT JOIN names a ON a.id = x.activity
      LEFT JOIN names b ON b.id = x.branch LEFT JOIN names v ON v.id = x.version
      LEFT JOIN subagents u ON u.id = x.subagent LEFT JOIN names ut ON ut.id = u.type""",
    "prompts": """
      SELECT s.session_id, x.prompt_id, t.message_id, x.retries
      FROM prompts x JOIN sessions s ON s.id = x.session JOIN turns t ON t.id = x.turn""",
    "endings": """
      SELECT s.session_id, first_bucket, last_bucket, t.message_id, e.name
      FROM endings x JOIN sessions s ON s.id = x.session LEFT JOIN turns t ON t.id = x.turn
      LEFT JOIN names e ON e.id = x.event""",
    "cost_states": """
      SELECT s.session_id, n.name, m.name, x.ts, since, input, output, reasoning, cache_read, cache_create_5m,
             cache_create_1h, searches, cost
      FROM cost_states x JOIN sessions s ON s.id = x.session JOIN names n ON n.id = x.source
      JOIN names m ON m.id = x.model""",
    "requests": """
      SELECT kind, key, s.session_id, rail, n.name, ts, input, output, reasoning, cache_read, cache_create_5m,
             cache_create_1h
      FROM requests x JOIN sessions s ON s.id = x.session JOIN names n ON n.id = x.model""",
    "unlogged": f"""
      SELECT s.session_id, {_KIND}, f.name, g.name, x.ts, input, output, reasoning, cache_read, cache_create_5m,
             cache_create_1h, searches, requests
      FROM unlogged x {_JOINS} JOIN sessions s ON s.id = x.session""",
    "session_tags": "SELECT key, session_id, ts, value FROM session_tags",
    "narrow_tags": "SELECT key, ts, session_id, message_id, from_ts, to_ts, value FROM narrow_tags",
}


# Columns with positions and revision counts, which depend on the history.
_PLACES = {
    "turns": (33, 34, 35, 36),
    "facts": (5, 6, 7),
    "stamps": (0,),
    "quotas": (0,),
    "messages": (10, 11),
    "sessions": (17,),
}


async def index_dump(index: IndexStore, *, places: bool = True) -> dict[str, list[Any]]:
    """Every row of every table; without `places`, two histories of the same facts are equal."""
    dump = {}
    for name, sql in _QUERIES.items():
        rows = await index.rows(sql)
        if not places:
            hidden = _PLACES.get(name, ())
            rows = [tuple(v for i, v in enumerate(row) if i not in hidden) for row in rows]
        dump[name] = sorted(rows, key=repr)
    return dump


_CAUSE = "k.kind, kt.name, kg.name, ka.name"
_NAMED = """JOIN causes k ON k.id = y.cause
      LEFT JOIN names kt ON kt.id = k.tool LEFT JOIN names kg ON kg.id = k.target
      LEFT JOIN names ka ON ka.id = k.agent"""
_PAID = ", ".join(f"y.{name}" for name in Sums._fields)
_CAUSES = {
    "cause_sums": f"""
      SELECT {_KIND}, f.name, g.name, b.name, u.agent_id, ut.name, s.session_id, e.rail, e.n, v.name, a.name,
             x.grain, x.bucket, x.span, x.quarters, y.level, {_CAUSE}, {_PAID}
      FROM turn_groups x {_JOINS} JOIN cause_sums y ON y.turn_group = x.id {_NAMED}
      JOIN sessions s ON s.id = x.session JOIN segments e ON e.id = x.segment
      LEFT JOIN names a ON a.id = x.activity LEFT JOIN names b ON b.id = x.branch
      LEFT JOIN names v ON v.id = x.version LEFT JOIN subagents u ON u.id = x.subagent
      LEFT JOIN names ut ON ut.id = u.type""",
    "segments": """
      SELECT s.session_id, x.rail, x.n, x.newest FROM segments x
      JOIN sessions s ON s.id = x.session""",
}


async def causes_dump(index: IndexStore) -> dict[str, list[Any]]:
    """Every sum of causes, except condensed ones, which are written when idle."""
    return {name: sorted(await index.rows(sql), key=repr) for name, sql in _CAUSES.items()}


def ledger_dump(journal: Journal) -> dict[str, Any]:
    """The folded ledger without revision numbers, which depend on the history. A copy whose session came to own the
    message is no longer a copy and is left out."""
    folded = Folded(journal.read())
    visible = folded.copies
    latest = {
        key: msgspec.structs.replace(entry, rev=0) if isinstance(entry, Turn) else entry
        for key, entry in folded.latest.items()
        if not isinstance(entry, Copy) or key in visible
    }
    stamps = sorted((ts, msgspec.json.encode(stamp)) for ts, _, stamp in folded.stamps)
    return {"latest": latest, "stamps": stamps, "skipped": folded.skipped}
