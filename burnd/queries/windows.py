"""The messages around a hit: what each says in a few lines, none of them twice."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby, islice
from operator import attrgetter
from typing import Any, Final, NamedTuple

from burnd.queries.messages import Line, Span, lines_of
from burnd.queries.sessions import Known
from burnd.queries.view import View
from burnd.recall import Recall, Spot
from burnd.records import Content
from burnd.records.codec import clean
from burnd.search.documents import Names, narrowed, strings
from burnd.search.folding import folded
from burnd.search.passages import SNIPPET_BYTES, Passage, Spotter, opening, passage
from burnd.search.wanted import Only

_TELLING: Final = ("text", "summary", "tool_use", "tool_result", "thinking", "file")
_LINES_SHOWN: Final = 2  # records of a message that a few lines can tell of
_ENOUGH: Final = 2 * SNIPPET_BYTES
_LOOKED_THROUGH: Final = 16 << 20  # characters of a record, for what to show of it
_META: Final = ("title", "createdAt", "updatedAt", "messageCount", "source", "project")
GONE: Final = "content not retained"


class Hit(NamedTuple):
    """A message that was found, by its number along its rail; without one, it is the session's title that matched."""

    known: Known
    score: float
    rail: str | None = None
    msg_idx: int | None = None


class _Message(NamedTuple):
    """A message to be shown: its first record, and those of its records that are read for it."""

    line: Line
    spots: list[Spot]
    is_match: bool = False


class Windows:
    """Draws windows, so many messages before and after each hit. A message is in one window only: the best hit's."""

    def __init__(self, view: View, recall: Recall, spotter: Spotter, only: Only, before: int, after: int) -> None:
        self._view, self._recall, self._spotter, self._only = view, recall, spotter, only
        self._before, self._after = before, after
        self._shown: set[tuple[int, str, int | None]] = set()

    def around(self, hits: Sequence[Hit]) -> list[dict[str, Any]]:
        spans = [self._span(hit) for hit in hits]
        self._shown = {(hit.known.row, span.rail, hit.msg_idx) for hit, span in zip(hits, spans, strict=True)}
        lines = lines_of(self._view, spans)
        pairs = zip(hits, spans, lines, strict=True)
        messages = [list(self._messages(hit, span.rail, own)) for hit, span, own in pairs]
        records = self._recall.records(
            [
                (hit.known.session_id, [spot for message in own for spot in message.spots])
                for hit, own in zip(hits, messages, strict=True)
            ]
        )
        return [
            self._drawn(hit, span, self._items(own, iter(read)))
            for hit, span, own, read in zip(hits, spans, messages, records, strict=True)
        ]

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
            drawn |= {"msgIdx": window[0]["msgIdx"] if window else None, "matchedTitle": title}
        return drawn

    def _messages(self, hit: Hit, rail: str, lines: Sequence[Line]) -> Iterator[_Message]:
        """A window's messages, as far as no other window has them, and what is to be read of each."""
        for msg_idx, group in groupby(lines, key=attrgetter("msg_idx")):
            own = list(group)
            place = (hit.known.row, rail, msg_idx)
            if msg_idx == hit.msg_idx:
                yield _Message(own[0], [Spot(line.position, line.length) for line in own], is_match=True)
            elif place not in self._shown:
                self._shown.add(place)
                telling = _telling(own) if len(own) > 1 else own
                yield _Message(own[0], [Spot(line.position, line.length, _ENOUGH) for line in telling])

    def _items(self, messages: Sequence[_Message], read: Iterator[Content | None]) -> list[dict[str, Any]]:
        """What is shown of messages, given the records of them all in a row."""
        items = []
        names = Names()
        for message in messages:
            records = [record for record in islice(read, len(message.spots)) if record is not None]
            names.learn(records)
            items.append((self._match if message.is_match else _neighbour)(message.line, records, names))
        return items

    def _match(self, line: Line, records: Sequence[Content], names: Names) -> dict[str, Any]:
        about, found = self._best(narrowed(records, self._only) or records)
        return _item(line, about, found, names) | {"match": True, "highlights": found.highlights}

    def _best(self, records: Sequence[Content]) -> tuple[Content | None, Passage]:
        """The record with most of what was looked for, and the passage where that is."""
        best: tuple[Content | None, Passage] = (None, Passage(""))
        most = -1
        for record in _by_telling(records):
            text = told(record)[:_LOOKED_THROUGH]
            spots = self._spotter.spots(text)
            different = len({folded(text[begin:end]) for begin, end in spots})
            if different > most:
                best, most = (record, passage(text, spots)), different
        return best


def _neighbour(line: Line, records: Sequence[Content], names: Names) -> dict[str, Any]:
    text = told(records[0]) if len(records) == 1 else "\n".join(filter(None, map(told, records)))
    return _item(line, records[0] if records else None, opening(text), names)


def _item(line: Line, about: Content | None, found: Passage, names: Names) -> dict[str, Any]:
    item: dict[str, Any] = {
        "role": about.role if about is not None else line.role,
        "msgIdx": line.msg_idx,
        "snippet": found.text if about is not None else GONE,
        "truncated": found.truncated,
    }
    if about is not None and (name := names.of(about)):
        item["toolName"] = name
    return item


def told(record: Content) -> str:
    """What a record says, as one text; the name of a tool stands beside it."""
    if record.kind in ("text", "thinking"):
        text = record.text if isinstance(record.text, str) else ""
        return text if text.isascii() else clean(text)
    texts = list(strings(record))
    return clean("\n".join(texts[1:] if record.tool_use is not None else texts))


def _telling(lines: Sequence[Line]) -> list[Line]:
    """The records that say most about a message in a few lines."""
    return sorted(lines, key=lambda line: _TELLING.index(line.kind) if line.kind in _TELLING else 9)[:_LINES_SHOWN]


def _by_telling(records: Sequence[Content]) -> list[Content]:
    return sorted(records, key=lambda record: _TELLING.index(record.kind) if record.kind in _TELLING else 9)


_FIRST = "SELECT rail FROM messages WHERE session = ? AND rail <> '' ORDER BY rail <> 'main', rail LIMIT 1"
