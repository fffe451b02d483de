"""The messages of a session, page by page, with the cost of each turn; where its content is stored."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Any, Final, Literal, NamedTuple

import msgspec

from burnd import protocol
from burnd.content.recall import Reading, Recall, is_reference, reference
from burnd.contract.sessions import BLOCK_BYTES, MOST_MESSAGES, MessagesParams
from burnd.pricing import Tokens
from burnd.queries import names, session_ids
from burnd.queries.sessions import Known, find, rails
from burnd.queries.view import Missing, NoSession, View
from burnd.records import BlobRef, Content
from burnd.records.codec import clean
from burnd.records.content import MAIN
from burnd.records.times import to_iso

Kept = Literal["yes", "pruned", "no"]


class Page(NamedTuple):
    """The positions of records in their sidecar, the number of all records, and whether content is stored."""

    places: list[tuple[int, int]]
    total: int
    kept: Kept


def page(view: View, session_id: str, message_id: str | None, offset: int, limit: int) -> Page:
    """The newest line of each record, in the order of the rails. Raises Missing."""
    found = view.rows("SELECT id, pruned_up_to IS NOT NULL FROM sessions WHERE session_id = ?", (session_id,))
    if not found:
        raise NoSession(f"there is no session {session_id[:100]!r}")
    ((session, was_pruned),) = found
    rows = view.rows(_RECORDS, (session, message_id, limit, offset))
    ((total,),) = view.rows(_HOW_MANY, (session, message_id))
    if total == 0 and message_id is not None and not _has_turn(view, session, message_id):
        raise Missing(f"there is no message {message_id[:100]!r} in this session")
    kept: Kept = "yes" if total else "pruned" if was_pruned else "no"
    return Page([(position, length) for position, length in rows], total, kept)


def _has_turn(view: View, session: int, message_id: str) -> bool:
    return bool(view.rows("SELECT 1 FROM turns WHERE session = ? AND message_id = ?", (session, message_id)))


def family(view: View, session_id: str) -> set[str]:
    """A session and all sessions that it or its children started. Raises Missing."""
    if not (found := view.rows("SELECT id FROM sessions WHERE session_id = ?", (session_id,))):
        raise NoSession(f"there is no session {session_id[:100]!r}")
    return set(session_ids.below(view, [found[0][0]]).values())


def of_project(view: View, project: str) -> set[str]:
    """The sessions of a project, with all sessions that they or their children started. Raises Missing or Refusal."""
    found = names.sessions(view, project)
    if not found:
        raise Missing(f"there is no session of project {project[:200]!r}")
    return set(session_ids.below(view, found).values())


def summaries(view: View, session_ids: Sequence[str]) -> list[dict[str, Any]]:
    """Facts by which a user recognises sessions."""
    names = ("sessionId", "source", "project", "messages", "bytes")
    found = view.keyed(_SUMMARIES, [(session_id,) for session_id in session_ids])
    return [dict(zip(names, row, strict=True)) for row in sorted(found)]


_NEWEST = """
FROM messages WHERE session = ?1 AND (?2 IS NULL OR message_id = ?2) GROUP BY rail, msg_idx, message_id, n, b
"""
_RECORDS = f"""
SELECT max(position), length {_NEWEST} ORDER BY rail, msg_idx, message_id, n, b LIMIT ?3 OFFSET ?4
"""
_HOW_MANY = f"SELECT count(*) FROM (SELECT 1 {_NEWEST})"
_SUMMARIES = """
WITH wanted(session_id) AS ({keys})
SELECT s.session_id, n.name, p.name, s.kept_count, s.content_bytes FROM wanted w
JOIN sessions s ON s.session_id = w.session_id
LEFT JOIN names n ON n.id = s.source LEFT JOIN names p ON p.id = s.project
"""


PAGE_BYTES: Final = 1 << 20
_LEAST_BLOCK: Final = 256
_ESCAPED: Final = 6  # bytes that one may have in JSON
_FARTHEST: Final = 1 << 40  # beyond every session's last message
_MOST_BLOCKS: Final = 400  # of one message
_PRUNED: Final = "content not retained: it was pruned"
_NOT_KEPT: Final = "content not retained: nothing of this session was kept, or its file in content/ is gone"
_GONE: Final = "content is gone: the session's file in content/ was deleted or cannot be read"
_EMPTY: Final = "nothing was said in it yet"


class Line(NamedTuple):
    """Where one record of a message stands, and in which of several spans."""

    span: int
    msg_idx: int
    n: int
    b: int
    position: int
    length: int
    role: str
    kind: str
    message_id: str
    ts: int


def messages(view: View, recall: Recall, params: MessagesParams) -> dict[str, Any]:
    """A page of a session's messages. Where their content is not retained, the turns are there all the same."""
    known = find(view, params.id)
    facts = known.facts
    every = rails(view, known.row)
    rail = params.rail or _usual_rail(view, known, every)
    offset, limit = min(max(params.offset, 0), _FARTHEST), min(max(params.limit, 1), MOST_MESSAGES)
    is_gone = facts["content"] == "yes" and not recall.has(known.session_id)
    kept = None if is_gone else next((found["messages"] for found in every if found["railId"] == rail), None)
    answer: dict[str, Any] = {
        "sessionId": known.session_id,
        "source": facts["source"],
        "title": facts["title"],
        "project": facts["project"],
        "railId": rail,
        "rails": every,
        "offset": offset,
        "retained": kept is not None,
    }
    if kept is not None:
        block_bytes = min(max(params.block_bytes, _LEAST_BLOCK), BLOCK_BYTES)
        (lines,) = lines_of(view, [Span(known.row, rail, offset, offset + limit)])
        page = _Page(recall, known.session_id, block_bytes).filled(lines)
        total = kept
    else:
        answer["why"] = _GONE if is_gone else why_not_retained(facts)
        page, total = _bare_turns(view, known, rail, offset, limit)
        if params.rail is not None and not total:
            raise Missing(
                f"there is no subagent {params.rail[:100]!r} in this session", "burnctl show names those it has"
            )
    _add_turns(view, known.row, page)
    answer |= {"total": total, "messages": page}
    if offset + len(page) < total and page:
        answer["next"] = offset + len(page)
    return answer


def why_not_retained(facts: dict[str, Any]) -> str:
    """Why there is nothing of a session to be read."""
    if facts["content"] == "pruned":
        return _PRUNED
    return _EMPTY if facts["createdBy"] is not None and not facts["messageCount"] else _NOT_KEPT


def _usual_rail(view: View, known: Known, every: Sequence[dict[str, Any]]) -> str:
    if every:
        return str(every[0]["railId"])
    found = view.rows("SELECT DISTINCT rail FROM turns WHERE session = ?", (known.row,))
    said = sorted((rail for (rail,) in found), key=lambda rail: (rail != MAIN, rail))
    return said[0] if said else MAIN


class Span(NamedTuple):
    """The messages from `begin` up to `end` along a rail of a session."""

    session: int
    rail: str
    begin: int
    end: int


def lines_of(view: View, spans: Sequence[Span]) -> list[list[Line]]:
    """For each span its records in order."""
    found: list[list[Line]] = [[] for _ in spans]
    for line in map(Line._make, sorted(view.keyed(_LINES, [(number, *span) for number, span in enumerate(spans)]))):
        found[line.span].append(line)
    return found


_LINES = """
WITH wanted(number, session, rail, first, last) AS ({keys})
SELECT w.number, m.msg_idx, m.n, m.b, m.position, m.length, m.role, m.kind, m.message_id, m.ts FROM wanted w
CROSS JOIN messages m ON m.session = w.session AND m.rail = w.rail AND m.msg_idx >= w.first AND m.msg_idx < w.last
"""


class _Page:
    """Messages as long as they fit; of a first one that is larger than a page, what fits."""

    def __init__(self, recall: Recall, session_id: str, block_bytes: int) -> None:
        self._recall = recall
        self._session_id = session_id
        self._block_bytes = block_bytes
        self._left = PAGE_BYTES
        self._is_full = False
        self._calls: dict[str, str] = {}

    def filled(self, lines: Sequence[Line]) -> list[dict[str, Any]]:
        page: list[dict[str, Any]] = []
        with self._recall.opened(self._session_id) as reading:
            for _, group in groupby(lines, key=lambda line: line.msg_idx):
                message = self._message(reading, list(group))
                if self._is_full and page:
                    break
                page.append(message)
        return page

    def _message(self, reading: Reading, own: Sequence[Line]) -> dict[str, Any]:
        records = (reading.record(line.position, line.length, self._enough()) for line in own[:_MOST_BLOCKS])
        message: dict[str, Any] = {
            "msgIdx": own[0].msg_idx,
            "messageId": own[0].message_id,
            "role": own[0].role,
            "ts": to_iso(min(line.ts for line in own)),
            "blocks": [self._block(record) for record in records if record is not None],
        }
        if len(own) > _MOST_BLOCKS:
            message["blocksLeftOut"] = len(own) - _MOST_BLOCKS
        return message

    def _enough(self) -> int:
        """How much to read of a large block, so that what is cut can be seen to be."""
        return (self._room() + 4) * _ESCAPED

    def _room(self) -> int:
        return max(min(self._block_bytes, self._left), 0)

    def _block(self, record: Content) -> dict[str, Any]:
        block: dict[str, Any] = {"kind": record.kind}
        if record.tool_use is not None:
            use = record.tool_use
            self._calls[use.id] = use.name
            block["toolUse"] = {"id": use.id, "name": use.name} | self._json("input", use.input, block)
        elif record.tool_result is not None:
            result = record.tool_result
            block["toolResult"] = {"toolUseId": result.tool_use_id} | self._json("content", result.content, block)
            if name := self._calls.get(result.tool_use_id):
                block["toolResult"]["toolName"] = name
            if result.is_error is not None:
                block["toolResult"]["isError"] = result.is_error
        if record.file is not None:
            size = record.file.data.bytes if isinstance(record.file.data, BlobRef) else None
            block["file"] = {"mime": record.file.mime, "name": record.file.name, "bytes": size}
        if isinstance(record.text, BlobRef):
            block["lost"] = record.text.lost
        elif record.text is not None:
            block["text"] = self._cut(record.text, block)
        return block

    def _json(self, name: str, raw: msgspec.Raw, block: dict[str, Any]) -> dict[str, Any]:
        if is_reference(raw):
            block["lost"] = reference(raw).lost
            return {name: None}
        try:
            value = msgspec.json.decode(raw)
        except (msgspec.MsgspecError, ValueError, RecursionError):
            value = bytes(raw).decode("utf-8", "replace")
        if isinstance(value, str):
            return {name: self._cut(value, block)}
        if len(raw) <= min(self._block_bytes, self._left):
            self._left -= len(raw)
            return {name: value}
        return {name: self._cut(bytes(raw).decode("utf-8", "replace"), block)}

    def _cut(self, text: str, block: dict[str, Any]) -> str:
        data = clean(text).encode()
        wanted = min(len(data), self._block_bytes)
        room = self._room()
        self._is_full = self._is_full or wanted > room
        self._left -= min(wanted, room)
        if len(data) <= room:
            return text
        block["truncated"] = True
        return data[:room].decode("utf-8", "ignore")


def _bare_turns(view: View, known: Known, rail: str, offset: int, limit: int) -> tuple[list[dict[str, Any]], int]:
    """The turns of a rail as messages without their content."""
    where = "FROM turns WHERE session = ? AND rail = ?"
    ((total,),) = view.rows(f"SELECT count(*) {where}", (known.row, rail))
    rows = view.rows(
        f"SELECT message_id, ts {where} ORDER BY turn_index, ts LIMIT ? OFFSET ?", (known.row, rail, limit, offset)
    )
    page = [
        {"msgIdx": offset + i, "messageId": message_id, "role": "assistant", "ts": to_iso(ts), "blocks": []}
        for i, (message_id, ts) in enumerate(rows)
    ]
    return page, total


def _add_turns(view: View, session: int, page: Iterable[dict[str, Any]]) -> None:
    """Puts beside each answer what it used and cost."""
    answers = {message["messageId"]: message for message in page if message["role"] == "assistant"}
    for row in view.keyed(_TURNS.format(session=int(session), keys="{keys}"), [(id_,) for id_ in answers]):
        message_id, turn_index, model, provider, terms, searches, activity, is_open, *counts = row
        tokens = Tokens(*counts)
        answers[message_id]["turn"] = {
            "turnIndex": turn_index,
            "model": model,
            "activity": activity,
            "open": bool(is_open),
            "usage": dict(zip(protocol.USAGE_FIELDS, tokens, strict=True)),
            "costUsd": view.prices.turn_usd(model, provider, tokens, terms=terms, searches=searches),
        }


_TURNS = """
SELECT t.message_id, t.turn_index, m.name, p.name, s.name, t.searches, a.name, t.open,
       t.input, t.output, t.reasoning, t.cache_read, t.cache_create_5m, t.cache_create_1h
FROM turns t JOIN names m ON m.id = t.model LEFT JOIN names p ON p.id = t.provider
JOIN classes c ON c.id = t.class LEFT JOIN names s ON s.id = c.terms LEFT JOIN names a ON a.id = t.activity
WHERE t.session = {session} AND t.message_id IN ({keys})
"""
