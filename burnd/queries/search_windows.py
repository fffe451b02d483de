"""Windows of a search: the messages around each hit as short snippets, each message once."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any, Final, Literal, NamedTuple

import msgspec

from burnd.content.recall import Recall, Spot
from burnd.queries.messages import MessageSpan
from burnd.queries.session_ids import short_ids
from burnd.queries.sessions import SessionEntry
from burnd.queries.view import Row, View
from burnd.records import Content
from burnd.records.codec import clean
from burnd.records.content import MAIN, NO_RAIL
from burnd.search.documents import Names, narrowed
from burnd.search.passages import SNIPPET_BYTES, Passage, Spotter, folded, opening, passage
from burnd.search.query import Only
from burnd.tokens.record_words import in_json, strings

# Kinds of records by how well they describe a message.
_RANKS: Final = {"text": 0, "summary": 1, "tool_use": 2, "tool_result": 3, "thinking": 4, "file": 5}
_POSITION, _LENGTH, _ROLE, _KIND = range(4, 8)  # in a row of _LINES
_LINES_SHOWN: Final = 2  # records per message that a snippet uses
_ENOUGH: Final = 6 * (
    SNIPPET_BYTES + 16
)  # bytes to read: JSON may use six per character; enough to see that a snippet is cut
_MOST_CHARS: Final = 16 << 20  # characters of a record that are searched for a snippet
_TITLE_DISTANCE: Final = 1 << 20  # distance from a message to a title
_MOST_BACK: Final = 32  # messages from a result back to its call
_META: Final = ("title", "createdAt", "updatedAt", "messageCount", "source", "project")
GONE: Final = "content not retained"


_MessageKey = tuple[int, str, int]  # session row, rail, message number


class Hit(NamedTuple):
    """A matching message by its number on a rail; without a number, the title of the session matched."""

    session: SessionEntry
    score: float
    rail: str | None = None
    msg_idx: int | None = None


class _Message(msgspec.Struct, frozen=True, gc=False):
    """A message to show, its role, and the positions of the records to read for it."""

    msg_idx: int
    role: str
    spots: Sequence[Spot]
    is_match: bool


class _Block(msgspec.Struct, gc=False):
    type: Literal["text"]
    text: str


_blocks = msgspec.json.Decoder(list[_Block])


class _UnnamedResult(NamedTuple):
    """A matching result whose tool is not named yet, and the id of its call."""

    key: _MessageKey
    call_id: str
    item: dict[str, Any]


class Windows:
    """Makes windows of messages before and after each hit. A message is only in the window of the nearest hit."""

    def __init__(self, view: View, recall: Recall, spotter: Spotter, only: Only, before: int, after: int) -> None:
        self._view, self._recall, self._spotter, self._only = view, recall, spotter, only
        self._before, self._after = before, after
        self._short_ids: dict[str, str] = {}
        self._unnamed: list[_UnnamedResult] = []

    def around(self, hits: Sequence[Hit]) -> list[dict[str, Any]]:
        spans = [self._span(hit) for hit in hits]
        self._short_ids = short_ids(self._view, {hit.session.session_id for hit in hits})
        windows = self._windows(hits, spans)
        records = self._recall.records(
            (hit.session.session_id, [spot for message in window for spot in message.spots])
            for hit, window in zip(hits, windows, strict=True)
        )
        answer = [
            self._window_answer(hit, span, self._items(span, window, read))
            for hit, span, window, read in zip(hits, spans, windows, records, strict=True)
        ]
        self._name_results()
        return answer

    def _windows(self, hits: Sequence[Hit], spans: Sequence[MessageSpan]) -> list[list[_Message]]:
        """The messages around each hit."""
        lines: dict[tuple[int, int], list[Row]] = {}
        for row in sorted(self._view.keyed(_LINES, [(number, *span) for number, span in enumerate(spans)])):
            lines.setdefault(row[:2], []).append(row)
        is_shared = len({(span.session, span.rail) for span in spans}) < len(spans)
        nearest = _nearest(hits, spans) if is_shared else {}
        windows: list[list[_Message]] = [[] for _ in hits]
        for (number, msg_idx), own in lines.items():
            span = spans[number]
            if not is_shared or nearest[span.session, span.rail, msg_idx] == number:
                windows[number].append(_message(msg_idx, own, is_match=msg_idx == hits[number].msg_idx))
        return windows

    def _span(self, hit: Hit) -> MessageSpan:
        """The messages to show for a hit; the first ones if the title matched."""
        if hit.rail is not None and hit.msg_idx is not None:
            begin = max(hit.msg_idx - self._before, 0)
            return MessageSpan(hit.session.row, hit.rail, begin, hit.msg_idx + self._after + 1)
        rows = self._view.rows(_FIRST, (hit.session.row,))
        return MessageSpan(hit.session.row, rows[0][0] if rows else "", 0, self._after + 1)

    def _window_answer(self, hit: Hit, span: MessageSpan, window: list[dict[str, Any]]) -> dict[str, Any]:
        facts = hit.session.facts
        answer: dict[str, Any] = {
            "sessionId": hit.session.session_id,
            "shortId": self._short_ids[hit.session.session_id],
            "railId": span.rail or None,
            "msgIdx": hit.msg_idx,
            "score": hit.score,
            "meta": {name: facts[name] for name in _META},
            "window": window,
        }
        if hit.msg_idx is None:
            text = "\n".join(filter(None, (facts["title"], facts["summary"])))
            match = passage(text, self._spotter.spots(text))
            title = {"snippet": match.text, "highlights": match.highlights, "truncated": match.truncated}
            answer |= {"msgIdx": 0 if span.rail else None, "matchedTitle": title}
        return answer

    def _items(
        self, span: MessageSpan, messages: Sequence[_Message], read: Sequence[Content | None]
    ) -> list[dict[str, Any]]:
        """The items of a window; `read` has the records of all its messages in order."""
        names = Names()
        names.learn(filter(None, read))
        items = []
        end = 0
        for message in messages:
            begin, end = end, end + len(message.spots)
            if message.is_match:
                items.append(self._matched(span, message, list(filter(None, read[begin:end])), names))
            elif end - begin == 1 and (record := read[begin]) is not None:
                items.append(_item(message, record, opening(record_text(record)), names))  # the usual case
            else:
                items.append(_item(message, *_beginning(list(filter(None, read[begin:end]))), names))
        return items

    def _matched(self, span: MessageSpan, message: _Message, own: Sequence[Content], names: Names) -> dict[str, Any]:
        about, match = self._best(own)
        item = _item(message, about, match, names) | {"match": True, "highlights": match.highlights}
        if about is not None and about.tool_result is not None and "toolName" not in item:
            key = (span.session, span.rail, message.msg_idx)
            self._unnamed.append(_UnnamedResult(key, about.tool_result.tool_use_id, item))
        return item

    def _name_results(self) -> None:
        """Names the tools of results whose calls are before their windows."""
        names: dict[str, str] = dict(self._view.keyed(_CALLS, [(*one.key, one.call_id) for one in self._unnamed]))
        for one in self._unnamed:
            if one.call_id in names:
                one.item["toolName"] = names[one.call_id]

    def _best(self, every: Sequence[Content]) -> tuple[Content | None, Passage]:
        """The record with most of the query's words, and the passage with them."""
        records = narrowed(every, self._only) or every
        best: tuple[Content | None, Passage] = (None, Passage(""))
        most = -1
        for record in sorted(records, key=lambda record: _rank(record.kind)) if len(records) > 1 else records:
            text = self._named_text(record)[:_MOST_CHARS]
            spots = self._spotter.spots(text)
            different = len({folded(text[begin:end]) for begin, end in spots}) if len(records) > 1 else 0
            if different > most:
                best, most = (record, passage(text, spots)), different
        return best

    def _named_text(self, record: Content) -> str:
        """The text of a record, after the tool's name if the query has it."""
        text, name = record_text(record), record.tool_use.name if record.tool_use is not None else ""
        return f"{clean(name)}\n{text}" if name and self._spotter.spots(name) else text


def _nearest(hits: Sequence[Hit], spans: Sequence[MessageSpan]) -> dict[_MessageKey, int]:
    """The number of the nearest hit for each message, so that windows have no gaps."""
    nearest: dict[_MessageKey, tuple[int, int]] = {}
    for number, (hit, span) in enumerate(zip(hits, spans, strict=True)):
        for msg_idx in range(span.begin, span.end):
            key = (hit.session.row, span.rail, msg_idx)
            distance = abs(msg_idx - hit.msg_idx) if hit.msg_idx is not None else _TITLE_DISTANCE
            nearest[key] = min(nearest.get(key, (distance, number)), (distance, number))
    return {key: number for key, (_, number) in nearest.items()}


def _message(msg_idx: int, own: Sequence[Row], *, is_match: bool) -> _Message:
    """The records to read of a message: all if it matched, else the start of the most descriptive ones."""
    role, at_most = own[0][_ROLE], None if is_match else _ENOUGH
    if len(own) > 1 and not is_match:
        own = sorted(own, key=lambda row: _rank(row[_KIND]))[:_LINES_SHOWN]
    return _Message(msg_idx, role, [Spot(row[_POSITION], row[_LENGTH], at_most) for row in own], is_match)


def _item(message: _Message, about: Content | None, match: Passage, names: Names) -> dict[str, Any]:
    """A message in a window, its passage, and the record that the passage is from."""
    if about is None:
        return {"role": message.role, "msgIdx": message.msg_idx, "snippet": GONE, "truncated": False}
    item = {"role": about.role, "msgIdx": message.msg_idx, "snippet": match.text, "truncated": match.truncated}
    if name := names.of(about):
        item["toolName"] = name
    return item


def _beginning(records: Sequence[Content]) -> tuple[Content | None, Passage]:
    """The first record and the start of the text of all."""
    if not records:
        return None, Passage("")
    return records[0], opening("\n".join(filter(None, map(record_text, records))))


def record_text(record: Content) -> str:
    """The text of a record without the name of its tool."""
    text: str
    if record.kind in ("text", "thinking"):
        text = record.text if isinstance(record.text, str) else ""
    elif record.tool_use is not None:
        text = "\n".join(in_json(record.tool_use.input))
    elif record.tool_result is not None and record.text is None and record.file is None:
        text = _result_text(record.tool_result.content)
    else:
        text = "\n".join(strings(record))
    return text if text.isascii() else clean(text)


def _result_text(content: msgspec.Raw) -> str:
    """The text of a tool result; of text blocks, which many tools return, the texts only."""
    if bytes(memoryview(content)[:1]) == b"[":
        with contextlib.suppress(msgspec.MsgspecError, ValueError, RecursionError):
            return "\n".join([block.text for block in _blocks.decode(content)])
    return "\n".join(in_json(content))


def _rank(kind: str) -> int:
    return _RANKS.get(kind, len(_RANKS))


_LINES = """
WITH wanted(window, session, rail, first, last) AS ({keys})
SELECT w.window, m.msg_idx, m.n, m.b, m.position, m.length, m.role, m.kind FROM wanted w
CROSS JOIN messages m ON m.session = w.session AND m.rail = w.rail AND m.msg_idx >= w.first AND m.msg_idx < w.last
"""
_CALLS = f"""
WITH wanted(session, rail, msg_idx, call_id) AS ({{keys}})
SELECT DISTINCT c.call_id, n.name FROM wanted w
CROSS JOIN messages m ON m.session = w.session AND m.rail = w.rail
  AND m.msg_idx >= w.msg_idx - {_MOST_BACK} AND m.msg_idx < w.msg_idx AND m.tool IS NOT NULL
CROSS JOIN sessions s ON s.id = w.session CROSS JOIN turns t ON t.source = s.source AND t.message_id = m.message_id
CROSS JOIN tool_calls c ON c.turn = t.id AND c.call_id = w.call_id JOIN names n ON n.id = c.name
"""
_FIRST = f"""
SELECT rail FROM messages WHERE session = ? AND rail <> '{NO_RAIL}' ORDER BY rail <> '{MAIN}', rail LIMIT 1
"""
