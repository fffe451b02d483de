"""The messages around a hit: what each says in a few lines, none of them twice."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any, Final, Literal, NamedTuple

import msgspec

from burnd.content.recall import Recall, Spot
from burnd.queries.messages import Span
from burnd.queries.session_ids import short_ids
from burnd.queries.sessions import Known
from burnd.queries.view import Row, View
from burnd.records import Content
from burnd.records.codec import clean
from burnd.records.content import MAIN, NO_RAIL
from burnd.search.documents import Names, narrowed
from burnd.search.passages import SNIPPET_BYTES, Passage, Spotter, folded, opening, passage
from burnd.search.query import Only
from burnd.tokens.record_words import in_json, strings

# The records of a message that say most about it come first.
_TELLING: Final = {"text": 0, "summary": 1, "tool_use": 2, "tool_result": 3, "thinking": 4, "file": 5}
_POSITION, _LENGTH, _ROLE, _KIND = range(4, 8)  # in a row of _LINES
_LINES_SHOWN: Final = 2  # records of a message that a few lines can tell of
_ENOUGH: Final = 6 * (SNIPPET_BYTES + 16)  # bytes of JSON may say one: so much that what is cut is seen to be
_LOOKED_THROUGH: Final = 16 << 20  # characters of a record, for what to show of it
_FAR: Final = 1 << 20  # from a message to a title
_LOOKED_BACK: Final = 32  # messages, from a result to its call
_META: Final = ("title", "createdAt", "updatedAt", "messageCount", "source", "project")
GONE: Final = "content not retained"


_Place = tuple[int, str, int]  # a session's row, a rail, a message's number


class Hit(NamedTuple):
    """A message that was found, by its number along its rail; without one, it is the session's title that matched."""

    known: Known
    score: float
    rail: str | None = None
    msg_idx: int | None = None


class _Message(msgspec.Struct, frozen=True, gc=False):
    """A message to be shown, by whom it is, and where those of its records stand that are read for it."""

    msg_idx: int
    role: str
    spots: Sequence[Spot]
    is_match: bool


class _Block(msgspec.Struct, gc=False):
    type: Literal["text"]
    text: str


_blocks = msgspec.json.Decoder(list[_Block])


class _Unnamed(NamedTuple):
    """A result that matched, and the call it answers."""

    place: _Place
    call_id: str
    item: dict[str, Any]


class Windows:
    """Draws windows, so many messages before and after each hit. A message is in one window only: the nearest hit's."""

    def __init__(self, view: View, recall: Recall, spotter: Spotter, only: Only, before: int, after: int) -> None:
        self._view, self._recall, self._spotter, self._only = view, recall, spotter, only
        self._before, self._after = before, after
        self._short_ids: dict[str, str] = {}
        self._unnamed: list[_Unnamed] = []

    def around(self, hits: Sequence[Hit]) -> list[dict[str, Any]]:
        spans = [self._span(hit) for hit in hits]
        self._short_ids = short_ids(self._view, {hit.known.session_id for hit in hits})
        windows = self._windows(hits, spans)
        records = self._recall.records(
            (hit.known.session_id, [spot for message in window for spot in message.spots])
            for hit, window in zip(hits, windows, strict=True)
        )
        drawn = [
            self._drawn(hit, span, self._items(span, window, read))
            for hit, span, window, read in zip(hits, spans, windows, records, strict=True)
        ]
        self._name_results()
        return drawn

    def _windows(self, hits: Sequence[Hit], spans: Sequence[Span]) -> list[list[_Message]]:
        """For each hit the messages around it."""
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

    def _span(self, hit: Hit) -> Span:
        """What to show around a hit; of a session whose title matched, how it begins."""
        if hit.rail is not None and hit.msg_idx is not None:
            begin = max(hit.msg_idx - self._before, 0)
            return Span(hit.known.row, hit.rail, begin, hit.msg_idx + self._after + 1)
        rows = self._view.rows(_FIRST, (hit.known.row,))
        return Span(hit.known.row, rows[0][0] if rows else "", 0, self._after + 1)

    def _drawn(self, hit: Hit, span: Span, window: list[dict[str, Any]]) -> dict[str, Any]:
        facts = hit.known.facts
        drawn: dict[str, Any] = {
            "sessionId": hit.known.session_id,
            "shortId": self._short_ids[hit.known.session_id],
            "railId": span.rail or None,
            "msgIdx": hit.msg_idx,
            "score": hit.score,
            "meta": {name: facts[name] for name in _META},
            "window": window,
        }
        if hit.msg_idx is None:
            text = "\n".join(filter(None, (facts["title"], facts["summary"])))
            found = passage(text, self._spotter.spots(text))
            title = {"snippet": found.text, "highlights": found.highlights, "truncated": found.truncated}
            drawn |= {"msgIdx": 0 if span.rail else None, "matchedTitle": title}
        return drawn

    def _items(self, span: Span, messages: Sequence[_Message], read: Sequence[Content | None]) -> list[dict[str, Any]]:
        """What is shown of messages, given the records of them all in a row."""
        names = Names()
        names.learn(filter(None, read))
        items = []
        end = 0
        for message in messages:
            begin, end = end, end + len(message.spots)
            if message.is_match:
                items.append(self._matched(span, message, list(filter(None, read[begin:end])), names))
            elif end - begin == 1 and (record := read[begin]) is not None:
                items.append(_item(message, record, opening(told(record)), names))  # as most are
            else:
                items.append(_item(message, *_beginning(list(filter(None, read[begin:end]))), names))
        return items

    def _matched(self, span: Span, message: _Message, own: Sequence[Content], names: Names) -> dict[str, Any]:
        about, found = self._best(own)
        item = _item(message, about, found, names) | {"match": True, "highlights": found.highlights}
        if about is not None and about.tool_result is not None and "toolName" not in item:
            place = (span.session, span.rail, message.msg_idx)
            self._unnamed.append(_Unnamed(place, about.tool_result.tool_use_id, item))
        return item

    def _name_results(self) -> None:
        """Names the tools of results whose calls stand before their windows."""
        names: dict[str, str] = dict(self._view.keyed(_CALLS, [(*one.place, one.call_id) for one in self._unnamed]))
        for one in self._unnamed:
            if one.call_id in names:
                one.item["toolName"] = names[one.call_id]

    def _best(self, every: Sequence[Content]) -> tuple[Content | None, Passage]:
        """The record with most of what was looked for, and the passage where that is."""
        records = narrowed(every, self._only) or every
        best: tuple[Content | None, Passage] = (None, Passage(""))
        most = -1
        for record in sorted(records, key=lambda record: _telling(record.kind)) if len(records) > 1 else records:
            text = self._named(record)[:_LOOKED_THROUGH]
            spots = self._spotter.spots(text)
            different = len({folded(text[begin:end]) for begin, end in spots}) if len(records) > 1 else 0
            if different > most:
                best, most = (record, passage(text, spots)), different
        return best

    def _named(self, record: Content) -> str:
        """What a record says; where it is a tool's name that was looked for, behind that."""
        text, name = told(record), record.tool_use.name if record.tool_use is not None else ""
        return f"{clean(name)}\n{text}" if name and self._spotter.spots(name) else text


def _nearest(hits: Sequence[Hit], spans: Sequence[Span]) -> dict[_Place, int]:
    """For each message around hits the number of the one whose window it is in: so a window has no holes."""
    nearest: dict[_Place, tuple[int, int]] = {}
    for number, (hit, span) in enumerate(zip(hits, spans, strict=True)):
        for msg_idx in range(span.begin, span.end):
            place = (hit.known.row, span.rail, msg_idx)
            far = abs(msg_idx - hit.msg_idx) if hit.msg_idx is not None else _FAR
            nearest[place] = min(nearest.get(place, (far, number)), (far, number))
    return {place: number for place, (_, number) in nearest.items()}


def _message(msg_idx: int, own: Sequence[Row], *, is_match: bool) -> _Message:
    """What is read of a message: of one that matched all records, else how those begin that tell most of it."""
    role, at_most = own[0][_ROLE], None if is_match else _ENOUGH
    if len(own) > 1 and not is_match:
        own = sorted(own, key=lambda row: _telling(row[_KIND]))[:_LINES_SHOWN]
    return _Message(msg_idx, role, [Spot(row[_POSITION], row[_LENGTH], at_most) for row in own], is_match)


def _item(message: _Message, about: Content | None, found: Passage, names: Names) -> dict[str, Any]:
    """A message in a window, with what was found of it, and the record that this is about."""
    if about is None:
        return {"role": message.role, "msgIdx": message.msg_idx, "snippet": GONE, "truncated": False}
    item = {"role": about.role, "msgIdx": message.msg_idx, "snippet": found.text, "truncated": found.truncated}
    if name := names.of(about):
        item["toolName"] = name
    return item


def _beginning(records: Sequence[Content]) -> tuple[Content | None, Passage]:
    """How a message begins, and the record that says most of it."""
    if not records:
        return None, Passage("")
    return records[0], opening("\n".join(filter(None, map(told, records))))


def told(record: Content) -> str:
    """What a record says, as one text; the name of a tool stands beside it."""
    text: str
    if record.kind in ("text", "thinking"):
        text = record.text if isinstance(record.text, str) else ""
    elif record.tool_use is not None:
        text = "\n".join(in_json(record.tool_use.input))
    elif record.tool_result is not None and record.text is None and record.file is None:
        text = _answered(record.tool_result.content)
    else:
        text = "\n".join(strings(record))
    return text if text.isascii() else clean(text)


def _answered(content: msgspec.Raw) -> str:
    """What a call brought; of blocks of text, which many tools answer with, the texts alone."""
    if bytes(memoryview(content)[:1]) == b"[":
        with contextlib.suppress(msgspec.MsgspecError, ValueError, RecursionError):
            return "\n".join([block.text for block in _blocks.decode(content)])
    return "\n".join(in_json(content))


def _telling(kind: str) -> int:
    return _TELLING.get(kind, len(_TELLING))


_LINES = """
WITH wanted(window, session, rail, first, last) AS ({keys})
SELECT w.window, m.msg_idx, m.n, m.b, m.position, m.length, m.role, m.kind FROM wanted w
CROSS JOIN messages m ON m.session = w.session AND m.rail = w.rail AND m.msg_idx >= w.first AND m.msg_idx < w.last
"""
_CALLS = f"""
WITH wanted(session, rail, msg_idx, call_id) AS ({{keys}})
SELECT DISTINCT c.call_id, n.name FROM wanted w
CROSS JOIN messages m ON m.session = w.session AND m.rail = w.rail
  AND m.msg_idx >= w.msg_idx - {_LOOKED_BACK} AND m.msg_idx < w.msg_idx AND m.tool IS NOT NULL
CROSS JOIN sessions s ON s.id = w.session CROSS JOIN turns t ON t.source = s.source AND t.message_id = m.message_id
CROSS JOIN tool_calls c ON c.turn = t.id AND c.call_id = w.call_id JOIN names n ON n.id = c.name
"""
_FIRST = f"""
SELECT rail FROM messages WHERE session = ? AND rail <> '{NO_RAIL}' ORDER BY rail <> '{MAIN}', rail LIMIT 1
"""
