"""Messages of a session in pages, positions of its stored content, and all that is needed to write its log again."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import Any, Final, Literal, NamedTuple, Self

import msgspec

from burnd import protocol
from burnd.content.recall import Recall, SidecarReader, is_reference, reference
from burnd.contract.sessions import BLOCK_BYTES, MOST_MESSAGES, MessagesParams
from burnd.pricing import Tokens
from burnd.queries import names
from burnd.queries.sessions import SessionEntry, find, rails
from burnd.queries.view import Missing, NoSession, Refusal, View
from burnd.records import BlobRef, Content
from burnd.records.codec import clean
from burnd.records.content import MAIN
from burnd.records.times import to_iso

ContentState = Literal["yes", "pruned", "no"]


class RecordPage(NamedTuple):
    """Positions of records in their sidecar, the number of all records, and whether content is stored."""

    spans: list[tuple[int, int]]
    total: int
    state: ContentState


def page(view: View, session_id: str, message_id: str | None, offset: int, limit: int) -> RecordPage:
    """The newest revision of each record, in the order of the rails. Raises Missing."""
    rows = view.rows("SELECT id, pruned_up_to IS NOT NULL FROM sessions WHERE session_id = ?", (session_id,))
    if not rows:
        raise NoSession(f"there is no session {session_id[:100]!r}")
    ((session, was_pruned),) = rows
    rows = view.rows(_RECORDS, (session, message_id, limit, offset))
    ((total,),) = view.rows(_COUNT, (session, message_id))
    has_turn = "SELECT 1 FROM turns WHERE session = ? AND message_id = ?"
    if total == 0 and message_id is not None and not view.rows(has_turn, (session, message_id)):
        raise Missing(f"there is no message {message_id[:100]!r} in this session")
    state: ContentState = "yes" if total else "pruned" if was_pruned else "no"
    return RecordPage([(position, length) for position, length in rows], total, state)


def family(view: View, session_id: str) -> set[str]:
    """With all descendants. Raises Missing."""
    if not (rows := view.rows("SELECT id FROM sessions WHERE session_id = ?", (session_id,))):
        raise NoSession(f"there is no session {session_id[:100]!r}")
    return set(names.below(view, [rows[0][0]]).values())


def of_project(view: View, project: str) -> set[str]:
    """With all descendants. Raises Missing or Refusal."""
    own = names.sessions(view, project)
    if not own:
        raise Missing(f"there is no session of project {project[:200]!r}")
    return set(names.below(view, own).values())


def summaries(view: View, session_ids: Sequence[str]) -> list[dict[str, Any]]:
    names = ("sessionId", "source", "project", "messages", "bytes")
    rows = view.keyed(_SUMMARIES, [(session_id,) for session_id in session_ids])
    return [dict(zip(names, row, strict=True)) for row in sorted(rows)]


_NEWEST = """
FROM messages WHERE session = ?1 AND (?2 IS NULL OR message_id = ?2) GROUP BY rail, msg_idx, message_id, n, b
"""
_RECORDS = f"""
SELECT max(position), length {_NEWEST} ORDER BY rail, msg_idx, message_id, n, b LIMIT ?3 OFFSET ?4
"""
_COUNT = f"SELECT count(*) FROM (SELECT 1 {_NEWEST})"
_SUMMARIES = """
WITH wanted(session_id) AS ({keys})
SELECT s.session_id, n.name, p.name, s.kept_count, s.content_bytes FROM wanted w
JOIN sessions s ON s.session_id = w.session_id
LEFT JOIN names n ON n.id = s.source LEFT JOIN names p ON p.id = s.project
"""


PAGE_BYTES: Final = 1 << 20
_LEAST_BLOCK: Final = 256
_JSON_BYTES: Final = 6  # bytes that one byte may take in JSON
_LAST_OFFSET: Final = 1 << 40  # beyond the last message of any session
_MOST_BLOCKS: Final = 400  # per message
_PRUNED: Final = "content not retained: it was pruned"
_NOT_STORED: Final = "content not retained: none of this session was stored, or its file in content/ was deleted"
_GONE: Final = "content is gone: the session's file in content/ was deleted or cannot be read"
_EMPTY: Final = "it has no messages yet"


class RecordLine(NamedTuple):
    """`number` is that of its span."""

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
    """A page of a session's messages; without stored content, its turns."""
    session = find(view, params.id)
    facts = session.facts
    every = rails(view, session.row)
    rail = params.rail or (every[0]["railId"] if every else None)
    if rail is None:
        rows = view.rows("SELECT DISTINCT rail FROM turns WHERE session = ?", (session.row,))
        rail = min((rail for (rail,) in rows), key=lambda rail: (rail != MAIN, rail), default=MAIN)
    offset, limit = min(max(params.offset, 0), _LAST_OFFSET), min(max(params.limit, 1), MOST_MESSAGES)
    is_gone = facts["content"] == "yes" and not recall.has(session.session_id)
    stored = None if is_gone else next((one["messages"] for one in every if one["railId"] == rail), None)
    answer: dict[str, Any] = {
        "sessionId": session.session_id,
        "source": facts["source"],
        "title": facts["title"],
        "project": facts["project"],
        "railId": rail,
        "rails": every,
        "offset": offset,
        "retained": stored is not None,
    }
    if stored is not None:
        block_bytes = min(max(params.block_bytes, _LEAST_BLOCK), BLOCK_BYTES)
        (lines,) = lines_of(view, [MessageSpan(session.row, rail, offset, offset + limit)])
        page = _PageWriter(recall, session.session_id, block_bytes).filled(lines)
        total = stored
    else:
        answer["why"] = _GONE if is_gone else why_not_retained(facts)
        page, total = _bare_turns(view, session, rail, offset, limit)
        if params.rail is not None and not total:
            raise Missing(
                f"there is no subagent {params.rail[:100]!r} in this session", "burnctl show names those it has"
            )
    _add_turns(view, session.row, page)
    answer |= {"total": total, "messages": page}
    if offset + len(page) < total and page:
        answer["next"] = offset + len(page)
    return answer


def why_not_retained(facts: dict[str, Any]) -> str:
    if facts["content"] == "pruned":
        return _PRUNED
    return _EMPTY if facts["createdBy"] is not None and not facts["messageCount"] else _NOT_STORED


class MessageSpan(NamedTuple):
    """From `begin` to before `end`."""

    session: int
    rail: str
    begin: int
    end: int


def lines_of(view: View, spans: Sequence[MessageSpan]) -> list[list[RecordLine]]:
    by_span: list[list[RecordLine]] = [[] for _ in spans]
    for row in sorted(view.keyed(_LINES, [(number, *span) for number, span in enumerate(spans)])):
        by_span[row[0]].append(RecordLine._make(row))
    return by_span


_LINES = """
WITH wanted(number, session, rail, first, last) AS ({keys})
SELECT w.number, m.msg_idx, m.n, m.b, m.position, m.length, m.role, m.kind, m.message_id, m.ts FROM wanted w
CROSS JOIN messages m ON m.session = w.session AND m.rail = w.rail AND m.msg_idx >= w.first AND m.msg_idx < w.last
"""


class _PageWriter:
    """Fills a page with whole messages; a first message larger than the page is cut."""

    def __init__(self, recall: Recall, session_id: str, block_bytes: int) -> None:
        self._recall = recall
        self._session_id = session_id
        self._block_bytes = block_bytes
        self._left = PAGE_BYTES
        self._is_full = False
        self._calls: dict[str, str] = {}

    def filled(self, lines: Sequence[RecordLine]) -> list[dict[str, Any]]:
        page: list[dict[str, Any]] = []
        with self._recall.opened(self._session_id) as file:
            for _, group in groupby(lines, key=lambda line: line.msg_idx):
                message = self._message(file, list(group))
                if self._is_full and page:
                    break
                page.append(message)
        return page

    def _message(self, file: SidecarReader, own: Sequence[RecordLine]) -> dict[str, Any]:
        records = (  # enough bytes of each to see whether it is cut
            file.record(line.position, line.length, (self._room() + 4) * _JSON_BYTES) for line in own[:_MOST_BLOCKS]
        )
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
        size = min(len(data), self._block_bytes)
        room = self._room()
        self._is_full = self._is_full or size > room
        self._left -= min(size, room)
        if len(data) <= room:
            return text
        block["truncated"] = True
        return data[:room].decode("utf-8", "ignore")


def _bare_turns(
    view: View, session: SessionEntry, rail: str, offset: int, limit: int
) -> tuple[list[dict[str, Any]], int]:
    where = "FROM turns WHERE session = ? AND rail = ?"
    ((total,),) = view.rows(f"SELECT count(*) {where}", (session.row, rail))
    rows = view.rows(
        f"SELECT message_id, ts {where} ORDER BY turn_index, ts LIMIT ? OFFSET ?", (session.row, rail, limit, offset)
    )
    page = [
        {"msgIdx": offset + i, "messageId": message_id, "role": "assistant", "ts": to_iso(ts), "blocks": []}
        for i, (message_id, ts) in enumerate(rows)
    ]
    return page, total


def _add_turns(view: View, session: int, page: Iterable[dict[str, Any]]) -> None:
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


class RecordingCursor(NamedTuple):
    """A line of a recording: the number of a response, or the position of a record; and a character of it."""

    is_record: bool = False
    number: int = 0
    begin: int = 0

    @classmethod
    def parse(cls, token: str | None) -> Self:
        """Raises Refusal."""
        if token is None:
            return cls()
        kind, *numbers = token.split(".")
        if kind not in ("turn", "record") or len(numbers) != 2 or not all(one.isdecimal() for one in numbers):
            raise Refusal("next is not a token of an earlier page")
        return cls(kind == "record", int(numbers[0]), int(numbers[1]))

    def __str__(self) -> str:
        return f"{'record' if self.is_record else 'turn'}.{self.number}.{self.begin}"


class RecordedItem(NamedTuple):
    """The line of a record is read from its sidecar."""

    cursor: RecordingCursor
    length: int = 0
    line: str | None = None


class Recorded(NamedTuple):
    """A session's facts, and its lines from a cursor on."""

    session_id: str
    facts: dict[str, Any]
    items: list[RecordedItem]


def recording(view: View, session_id: str, after: RecordingCursor) -> Recorded:
    """Raises Missing or Refusal."""
    session = find(view, session_id)
    ((pruned,),) = view.rows("SELECT pruned_count FROM sessions WHERE id = ?", (session.row,))
    items = [] if after.is_record else list(_recorded_turns(view, session.row, after.number))
    rows = view.rows(_RECORDED_CONTENT, (session.row, after.number if after.is_record else 0))
    items += [RecordedItem(RecordingCursor(True, position), length) for position, length in rows]
    return Recorded(session.session_id, session.facts | {"prunedMessages": pruned}, items)


def _recorded_turns(view: View, session: int, first: int) -> Iterator[RecordedItem]:
    """Those whose messages the session has, also those that it repeats from another."""
    for number, *row in view.rows(_RECORDED_TURNS, (session, first)):
        facts = dict(zip(_TURN_FACTS, row, strict=False))
        tokens = row[len(_TURN_FACTS) :]
        facts |= {"ts": to_iso(facts["ts"]), "usage": dict(zip(protocol.USAGE_FIELDS, tokens, strict=True))}
        line = msgspec.json.encode({"turn": {name: value for name, value in facts.items() if value is not None}})
        yield RecordedItem(RecordingCursor(False, number), line=line.decode() + "\n")


_TURN_FACTS: Final = (
    *("messageId", "railId", "turnIndex", "parent", "ts", "model", "provider", "branch", "version"),
    *("stopReason", "agentType", "parentToolUseId", "statedUsd", "promptId"),
)
_RECORDED_TURNS: Final = """
SELECT t.id, t.message_id, t.rail, t.turn_index, t.parent, t.ts, m.name, p.name, b.name, v.name, r.name, a.name,
       t.parent_call, t.stated_usd, t.prompt_id,
       t.input, t.output, t.reasoning, t.cache_read, t.cache_create_5m, t.cache_create_1h
FROM (SELECT s.source, q.message_id FROM messages q JOIN sessions s ON s.id = q.session
      WHERE q.session = ?1 GROUP BY q.message_id) w
CROSS JOIN turns t ON t.source = w.source AND t.message_id = w.message_id
JOIN names m ON m.id = t.model LEFT JOIN names p ON p.id = t.provider LEFT JOIN names b ON b.id = t.branch
LEFT JOIN names v ON v.id = t.version LEFT JOIN names r ON r.id = t.stop_reason LEFT JOIN names a ON a.id = t.agent_type
WHERE t.id >= ?2 ORDER BY t.id
"""
_RECORDED_CONTENT: Final = """
SELECT max(position), length FROM messages WHERE session = ?1 GROUP BY rail, msg_idx, message_id, n, b
HAVING max(position) >= ?2 ORDER BY 1
"""
