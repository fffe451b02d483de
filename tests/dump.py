"""What an index or a ledger says, in a form that can be compared whatever the row numbers are."""

from __future__ import annotations

from typing import Any

import msgspec

from burnd.index.store import IndexStore
from burnd.ledger.fold import Folded
from burnd.ledger.journal import Journal
from burnd.records import Copy, Turn

_QUERIES = {
    "turns": """
      SELECT s.name, t.message_id, se.session_id, t.rail, t.turn_index, t.parent, t.ts, m.name, p.name, pr.name,
             pk.name, br.name, t.input, t.output, t.reasoning, t.cache_read, t.cache_create_5m, t.cache_create_1h,
             sp.name, t.searches, t.fetches, t.quality, ac.name, sr.name, t.has_edits, t.retries, t.prompt_id,
             t.prompt_retries, t.agent_id, at.name, t.parent_call, t.open, t.rev, t.digest, t.position, t.length
      FROM turns t JOIN names s ON s.id = t.source JOIN sessions se ON se.id = t.session JOIN names m ON m.id = t.model
      LEFT JOIN names p ON p.id = t.provider LEFT JOIN names pr ON pr.id = t.project
      LEFT JOIN names pk ON pk.id = t.project_key LEFT JOIN names br ON br.id = t.branch
      LEFT JOIN names sp ON sp.id = t.speed LEFT JOIN names ac ON ac.id = t.activity
      LEFT JOIN names sr ON sr.id = t.stop_reason LEFT JOIN names at ON at.id = t.agent_type""",
    "calls": """
      SELECT t.message_id, c.n, c.call_id, a.name, b.name, c.args_hash, c.result_hash, c.is_error
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
      FROM facts f LEFT JOIN sessions s ON s.id = f.session""",
    "stamps": "SELECT * FROM stamps",
    "quotas": """
      SELECT position, ts, n.name, window, used_percent, resets_at FROM quotas q JOIN names n ON n.id = q.source""",
    "messages": """
      SELECT s.session_id, rail, msg_idx, message_id, n, b, ts, role, kind, t.name, position, length, digest
      FROM messages m JOIN sessions s ON s.id = m.session LEFT JOIN names t ON t.id = m.tool""",
    "skipped": "SELECT * FROM skipped",
}


# Columns that say where a line stands or how often it was revised: they depend on how it came to be.
_PLACES = {
    "turns": (32, 33, 34, 35),
    "facts": (5, 6, 7),
    "stamps": (0,),
    "quotas": (0,),
    "messages": (10, 11),
    "sessions": (17,),
}


async def index_dump(index: IndexStore, *, places: bool = True) -> dict[str, list[Any]]:
    """Every row of every table, by what it says; without `places`, two histories of the same facts agree."""
    dump = {}
    for name, sql in _QUERIES.items():
        rows = await index.rows(sql)
        if not places:
            hidden = _PLACES.get(name, ())
            rows = [tuple(v for i, v in enumerate(row) if i not in hidden) for row in rows]
        dump[name] = sorted(rows, key=repr)
    return dump


def ledger_dump(journal: Journal) -> dict[str, Any]:
    """The folded ledger: revision numbers aside, since they count how it came to be, not what it says.

    A copy whose holder came to own the message is no copy any more, so it is left out.
    """
    folded = Folded(journal.read())
    visible = folded.copies
    latest = {
        key: msgspec.structs.replace(entry, rev=0) if isinstance(entry, Turn) else entry
        for key, entry in folded.latest.items()
        if not isinstance(entry, Copy) or key in visible
    }
    stamps = sorted((ts, msgspec.json.encode(stamp)) for ts, _, stamp in folded.stamps)
    return {"latest": latest, "stamps": stamps, "skipped": folded.skipped}
