"""Searches sessions by words: the best message of each, with the messages around it. Bounded for any query.

Candidates of the search index are ranked together with their titles. It has the words of whole messages only, so
phrases, and words by author, are checked in the text.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from heapq import nlargest
from itertools import chain, groupby, islice
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

import msgspec

from burnd.content.recall import Recall, Spot
from burnd.contract.sessions import LAST_HIT, MOST_HITS, MOST_WINDOW, SearchParams
from burnd.index.schema import MESSAGES_BY_ID, is_message
from burnd.queries import names
from burnd.queries.messages import MessageSpan, RecordLine, lines_of, why_not_retained
from burnd.queries.names import check_source, short_ids
from burnd.queries.quotes import add_titles
from burnd.queries.sessions import SessionEntry, entries_of, find, times
from burnd.queries.view import View
from burnd.records import Content
from burnd.records.codec import clean
from burnd.records.content import MAIN, NO_RAIL
from burnd.records.times import to_ms
from burnd.search.documents import MessageName, Names, narrowed, session_key
from burnd.search.passages import SNIPPET_BYTES, Passage, Spotter, folded, opening, passage
from burnd.search.query import NO_SPREAD, Match, ParsedQuery, QueryTerms, SearchFilter, Spread, typed
from burnd.tokens.words import in_json, strings

# Limits on checking; the higher one applies until the first match.
_MOST_READ_CHARS, _SOON_S, _LATE_S = 64 << 20, 0.008, 0.04
_EDGE: Final = "\n"


_Records = list[tuple[int, int, str]]  # of a message: position, length and role of each


class Check:
    """Checks phrases and authors in the text of messages, within a limit."""

    def __init__(
        self, view: View, recall: Recall, spotter: Spotter, terms: QueryTerms, only: SearchFilter, pages: int
    ) -> None:
        self._view, self._recall, self._spotter, self._only = view, recall, spotter, only
        self._pages = pages
        self._has_phrases = bool(terms.phrases)
        self._read_chars = 0
        self._spent = 0.0
        self._passed = 0

    @property
    def is_needed(self) -> bool:
        return self._has_phrases or self._only.has_author

    @property
    def gave_up(self) -> bool:
        """There were too many candidates to check."""
        most = _SOON_S if self._passed else _LATE_S
        return self._read_chars >= _MOST_READ_CHARS * self._pages or self._spent > most * self._pages

    def verified(self, messages: Sequence[MessageName]) -> Sequence[MessageName]:
        """The messages that pass the check, and all titles."""
        if not self.is_needed:
            return messages
        started = time.thread_time()
        records = self._records([message for message in messages if message.message_id])
        unsure = [message for message, own in records.items() if self._has_phrases or not self._is_certain(own)]
        spots = [(message.session_id, [Spot(row[0], row[1]) for row in records[message]]) for message in unsure]
        wrong = {
            message
            for message, texts in zip(unsure, self._recall.records(spots), strict=True)
            if not self._matches([record for record in texts if record is not None])
        }
        self._passed += len(unsure) - len(wrong)
        self._spent += time.thread_time() - started
        return [message for message in messages if message not in wrong]

    def _records(self, messages: Sequence[MessageName]) -> dict[MessageName, _Records]:
        records: dict[MessageName, _Records] = {}
        for session_id, rail, message_id, *record in self._view.keyed(_RECORDS, messages):
            records.setdefault(MessageName(session_id, rail, message_id), []).append(tuple(record))
        return records

    def _matches(self, records: Sequence[Content]) -> bool:
        """Whether a message has the phrases and, by the requested author, one of the words."""
        text = _EDGE.join(text for record in narrowed(records, self._only) for text in strings(record))
        self._read_chars += len(text)
        return self._spotter.has_phrases(text) and (self._has_phrases or bool(self._spotter.spots(text)))

    def _is_certain(self, rows: _Records) -> bool:
        """The index is exact: the message has one author or one record."""
        return len(rows) == 1 or (self._only.tool is None and len({role for _, _, role in rows}) == 1)


_RECORDS = f"""
WITH wanted(session_id, rail, message_id) AS ({{keys}})
SELECT w.session_id, w.rail, w.message_id, max(m.position), m.length, m.role FROM wanted w
CROSS JOIN sessions s ON s.session_id = w.session_id
CROSS JOIN {MESSAGES_BY_ID} ON m.session = s.id AND {is_message("w.message_id")} AND m.rail = w.rail
GROUP BY w.session_id, w.rail, w.message_id, m.n, m.b ORDER BY w.session_id, w.rail, w.message_id, m.n, m.b
"""


if TYPE_CHECKING:
    from burnd.search.lookup import Lookup

_TITLES: Final = 200
_LOTS: Final = 3  # parts in which a batch is looked up; without a check the first usually suffices


class Candidate(msgspec.Struct, frozen=True, gc=False):
    """`score` includes title, summaries and other messages."""

    score: float
    match: Match
    is_title: bool = False


class _Existing(NamedTuple):
    """Sessions by id, and message numbers by session row, message and rail, for the candidates that exist."""

    sessions: dict[str, SessionEntry]
    numbers: dict[tuple[int, str, str], int]


class Candidates:
    """Candidates of one search by score, each looked up in the index, since it may have been deleted.

    `lot` is the number ranked together; with `each`, all messages of a session are hits, not only the best. The limit
    on checking grows with `pages`.
    """

    def __init__(
        self,
        view: View,
        lookup: Lookup,
        recall: Recall,
        terms: QueryTerms,
        only: SearchFilter,
        *,
        lot: int,
        each: bool,
        pages: int,
    ) -> None:
        self._view, self._lookup = view, lookup
        self._terms, self._only = terms, only
        self._lot, self._each = lot, each
        self.spotter = Spotter(terms.shown, terms.phrases)
        self.check = Check(view, recall, self.spotter, terms, only, pages)
        self._at_once = max(lot if self.check.is_needed else lot // _LOTS, 1)

    def lots(self) -> Iterator[list[Hit]]:
        """All hits, best first, as many at a time as are looked up together."""
        keys_shown: set[object] = set()
        sessions_shown: set[str] = set()
        ranked = self._ranked()
        while lot := list(islice(ranked, self._at_once)):
            messages = [self._lookup.message_name(candidate.match) for candidate in lot]
            existing = self._existing(self.check.verified(messages))
            hits = []
            for candidate, message in zip(lot, messages, strict=True):
                key = message if self._each else message.session_id
                # A title is a hit only if no message of the session is.
                is_shown = message.session_id in sessions_shown if candidate.is_title else key in keys_shown
                hit = self._hit(candidate, message, existing) if not is_shown else None
                if hit is not None:
                    keys_shown.add(key)
                    sessions_shown.add(message.session_id)
                    hits.append(hit)
            yield hits
            if self.check.gave_up:
                return

    def _ranked(self) -> Iterator[Candidate]:
        """A matching title raises all messages of its session."""
        pages = (self._lookup.sessions if self._is_by_session else self._lookup.messages)(self._terms, self._only)
        matches: list[Match] = []
        while len(matches) < self._lot and (page := next(pages, None)) is not None:
            matches += page
        found_in = {match.session for match in matches}
        # The best titles and compaction summaries, and those of the sessions with matches.
        best_titles = self._lookup.titles(self._terms, self._only, _TITLES, found_in)
        titles = {match.session: match for match in best_titles}
        about: dict[int, float] = {}
        for match in self._lookup.compactions(self._terms, self._only, _TITLES, found_in):
            about[match.session] = max(about.get(match.session, 0.0), match.score)
        for session, match in titles.items():
            about[session] = about.get(session, 0.0) + match.score
        spread = self._lookup.spread(self._terms, self._only) if self._is_by_session else NO_SPREAD
        candidates = _ranked(matches, about, spread)
        if others := self._to_look_into(about, spread, candidates):
            only = self._only._replace(sessions=frozenset(others))
            if self._is_by_session:
                more: Iterable[Match] = self._lookup.best_of(self._terms, only)
            else:
                every = chain.from_iterable(self._lookup.messages(self._terms, only))
                more = islice(every, self._lot + len(others))
            candidates += _ranked(more, about, spread)
        if not self._only.has_author:
            # Checked messages may fail; then the title remains.
            with_messages = {candidate.match.session for candidate in candidates} if self._is_by_session else set()
            candidates += [
                Candidate(m.score, m, is_title=True) for m in titles.values() if m.session not in with_messages
            ]
        yield from sorted(candidates, key=_order)
        for page in pages:
            yield from _ranked(page, about, spread)

    @property
    def _is_by_session(self) -> bool:
        """Only the best message of each session is needed, and needs no check."""
        return not self._each and not self.check.is_needed

    def _to_look_into(self, about: Mapping[int, float], spread: Spread, candidates: Sequence[Candidate]) -> list[int]:
        """Sessions that their title, summaries or other messages may raise above the candidates."""
        sessions = set() if self._each else {candidate.match.session for candidate in candidates}
        others = [session for session in dict.fromkeys([*about, *spread.several()]) if session not in sessions]
        last = least = 0.0
        if self._is_by_session and len(candidates) >= self._lot:
            # Sessions outside the matches have no better message than the last match.
            last = candidates[-1].match.score
            least = nlargest(self._at_once, [candidate.score for candidate in candidates])[-1]
        at_most = {session: _score(last, session, about, spread) for session in others}
        return nlargest(self._lot, [session for session in others if at_most[session] > least], key=at_most.__getitem__)

    def _existing(self, messages: Sequence[MessageName]) -> _Existing:
        sessions = entries_of(self._view, {message.session_id for message in messages})
        keys = [
            (sessions[message.session_id].row, message.message_id, message.rail)
            for message in messages
            if message.message_id and message.session_id in sessions
        ]
        return _Existing(sessions, {row[:3]: row[3] for row in self._view.keyed(_NUMBERS, keys)})

    def _hit(self, candidate: Candidate, message: MessageName, existing: _Existing) -> Hit | None:
        session = existing.sessions.get(message.session_id)
        if session is None:
            return None
        if candidate.is_title:
            return Hit(session, candidate.score) if self._title_matches(session) else None
        number = existing.numbers.get((session.row, message.message_id, message.rail))
        return Hit(session, candidate.score, message.rail, number) if number is not None else None

    def _title_matches(self, session: SessionEntry) -> bool:
        """The title still matches, and the session is in the requested time."""
        facts, only = session.facts, self._only
        started, ended = (to_ms(facts[name]) if facts[name] else 0 for name in ("createdAt", "updatedAt"))
        if (only.since is not None and ended < only.since) or (only.until is not None and started >= only.until):
            return False
        text = "\n".join(filter(None, (facts["title"], facts["summary"])))
        return bool(self.spotter.spots(text)) and self.spotter.has_phrases(text)


def _order(candidate: Candidate) -> tuple[float, int, int]:
    """Best first, then newest; the same in every index of the same content."""
    return -round(candidate.score, 3), -candidate.match.ts, candidate.match.session


def _ranked(matches: Iterable[Match], about: Mapping[int, float], spread: Spread) -> list[Candidate]:
    return [Candidate(_score(match.score, match.session, about, spread), match) for match in matches]


def _score(score: float, session: int, about: Mapping[int, float], spread: Spread) -> float:
    """The score of a message with its session's other messages, title and summaries."""
    return spread.worth(score, session) + about.get(session, 0.0)


_NUMBERS = f"""
WITH wanted(session, message_id, rail) AS ({{keys}})
SELECT w.session, w.message_id, w.rail, min(m.msg_idx) FROM wanted w
CROSS JOIN {MESSAGES_BY_ID} ON m.session = w.session AND {is_message("w.message_id")} AND m.rail = w.rail
GROUP BY 1, 2, 3
"""


_ALL_WORDS: Final = 8  # words of a query that are searched together
# Candidates ranked together: the same for every page and limit, so that pages of one query are consistent.
_RANKED: Final = 3 * MOST_HITS

Role = Literal["user", "assistant", "tool_result", "system"]


def search(view: View, lookup: Lookup, recall: Recall, params: SearchParams) -> dict[str, Any]:
    """The hits, best first, with a note if some may be missing."""
    query = typed(params.query)
    terms = lookup.understand(query)
    only = _narrowed(view, params)
    answer: dict[str, Any] = {"query": params.query[:1000], "hits": []}
    if not any(lookup.words(piece) for piece in (*query.pieces, *query.phrases)):
        return answer | {"note": "the query has no word to search for"}
    if terms.corrected:
        answer["corrected"] = terms.corrected
    limit = min(max(params.limit, 0), MOST_HITS)
    pages = 1 + params.offset // MOST_HITS
    candidates = Candidates(view, lookup, recall, terms, only, lot=_RANKED, each=params.all, pages=pages)
    end = params.offset + limit
    every: list[Hit] = []
    is_complete = True
    for lot in candidates.lots():
        every += lot
        if len(every) >= end:
            is_complete = False
            break
    hits = every[params.offset : end]
    answer |= _matches(lookup, candidates, terms, only, len(every), params, is_complete=is_complete)
    if 0 < limit == len(hits) and params.offset + limit < LAST_HIT:
        answer["next"] = params.offset + limit
    windows = Windows(view, recall, candidates.spotter, only, *window(params.before, params.after))
    answer["hits"] = windows.around(hits)
    facts = {hit.session.session_id: hit.session.facts for hit in hits}
    add_titles(view, recall, list(facts.values()))
    for row in answer["hits"]:
        row["meta"]["title"] = facts[row["sessionId"]]["title"]
    if hits and not _has_all_words(lookup, query, terms, only):
        answer["allWords"] = False
    if note := _note(view, params, candidates, hits):
        answer["note"] = note
    return answer


def _matches(
    lookup: Lookup,
    candidates: Candidates,
    terms: QueryTerms,
    only: SearchFilter,
    seen: int,
    params: SearchParams,
    *,
    is_complete: bool,
) -> dict[str, Any]:
    """The number of hits, and whether there may be more: with phrases or authors only as many as were checked."""
    if is_complete or candidates.check.is_needed:
        number, is_minimum = seen, not is_complete or candidates.check.gave_up
    else:
        number, is_minimum = lookup.count(terms, only, each=params.all)
    return {"matches": max(number, seen)} | ({"matchesAtLeast": True} if is_minimum else {})


def _has_all_words(lookup: Lookup, query: ParsedQuery, terms: QueryTerms, only: SearchFilter) -> bool:
    words = dict.fromkeys(word for piece in (*query.pieces, *query.phrases) for word in lookup.words(piece))
    if len(words) < 2:
        return True
    together = terms._replace(musts=tuple(islice(words, _ALL_WORDS)))
    return any(next(lookup.messages(together, only), []))


def _note(view: View, params: SearchParams, candidates: Candidates, hits: Sequence[Hit]) -> str:
    if candidates.check.gave_up:
        return "too many messages have these words: only the best were checked"
    if params.session is not None and not hits:
        facts = find(view, params.session).facts
        return why_not_retained(facts) if facts["content"] != "yes" else ""
    return ""


def window(before: int, after: int) -> tuple[int, int]:
    """Limits the messages before and after a hit to sixteen with the hit."""
    most = MOST_WINDOW - 1
    before, after = min(max(before, 0), most), min(max(after, 0), most)
    if before + after > most:
        before = min(before, max(most - after, (most + 1) // 2))
        after = most - before
    return before, after


def _narrowed(view: View, params: SearchParams) -> SearchFilter:
    """With sessions by their keys in the search index."""
    rows: set[int] | None = None
    if params.session is not None:
        rows = {find(view, params.session).row}
    if params.project is not None:
        own = names.sessions(view, params.project)
        rows = own if rows is None else rows & own
    if params.source is not None:
        check_source(view, params.source)
        own = {row for (row,) in view.rows(_OF_SOURCE, (params.source,))}
        rows = own if rows is None else rows & own
    since, until = times(view, params.since, params.until, params.tz)
    sessions = None
    if rows is not None:
        ids = view.keyed("SELECT session_id FROM sessions WHERE id IN ({keys})", [(row,) for row in rows])
        sessions = frozenset(session_key(session_id) for (session_id,) in ids)
    return SearchFilter(
        sessions=sessions,
        since=since,
        until=until,
        role=params.role,
        tool=params.tool.lower() if params.tool else None,
    )


_OF_SOURCE = "SELECT s.id FROM sessions s JOIN names n ON n.id = s.source WHERE n.name = ?"


# Kinds of records by how well they describe a message.
_RANKS: Final = {"text": 0, "summary": 1, "tool_use": 2, "tool_result": 3, "thinking": 4, "file": 5}
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
    """Without a number, the title of the session matched."""

    session: SessionEntry
    score: float
    rail: str | None = None
    msg_idx: int | None = None


class _Message(msgspec.Struct, frozen=True, gc=False):
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
    """Makes windows of messages around each hit. A message is only in the window of the nearest hit."""

    def __init__(
        self, view: View, recall: Recall, spotter: Spotter, only: SearchFilter, before: int, after: int
    ) -> None:
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
        # Names the tools of results whose calls are before their windows.
        names: dict[str, str] = dict(self._view.keyed(_CALLS, [(*one.key, one.call_id) for one in self._unnamed]))
        for one in self._unnamed:
            if one.call_id in names:
                one.item["toolName"] = names[one.call_id]
        return answer

    def _windows(self, hits: Sequence[Hit], spans: Sequence[MessageSpan]) -> list[list[_Message]]:
        is_shared = len({(span.session, span.rail) for span in spans}) < len(spans)
        nearest = _nearest(hits, spans) if is_shared else {}
        windows: list[list[_Message]] = [[] for _ in hits]
        for number, lines in enumerate(lines_of(self._view, spans)):
            span = spans[number]
            for msg_idx, own in groupby(lines, key=lambda line: line.msg_idx):
                if not is_shared or nearest[span.session, span.rail, msg_idx] == number:
                    windows[number].append(_message(msg_idx, [*own], is_match=msg_idx == hits[number].msg_idx))
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
        """`read` has the records of all messages in order."""
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
                own = list(filter(None, read[begin:end]))
                text = "\n".join(filter(None, map(record_text, own)))
                items.append(_item(message, own[0] if own else None, opening(text), names))
        return items

    def _matched(self, span: MessageSpan, message: _Message, own: Sequence[Content], names: Names) -> dict[str, Any]:
        about, match = self._best(own)
        item = _item(message, about, match, names) | {"match": True, "highlights": match.highlights}
        if about is not None and about.tool_result is not None and "toolName" not in item:
            key = (span.session, span.rail, message.msg_idx)
            self._unnamed.append(_UnnamedResult(key, about.tool_result.tool_use_id, item))
        return item

    def _best(self, every: Sequence[Content]) -> tuple[Content | None, Passage]:
        records = narrowed(every, self._only) or every
        best: tuple[Content | None, Passage] = (None, Passage(""))
        most = -1
        for record in sorted(records, key=lambda record: _rank(record.kind)) if len(records) > 1 else records:
            text, name = record_text(record), record.tool_use.name if record.tool_use is not None else ""
            if name and self._spotter.spots(name):
                text = f"{clean(name)}\n{text}"
            text = text[:_MOST_CHARS]
            spots = self._spotter.spots(text)
            different = len({folded(text[begin:end]) for begin, end in spots}) if len(records) > 1 else 0
            if different > most:
                best, most = (record, passage(text, spots)), different
        return best


def _nearest(hits: Sequence[Hit], spans: Sequence[MessageSpan]) -> dict[_MessageKey, int]:
    """The number of the nearest hit for each message, so that windows have no gaps."""
    nearest: dict[_MessageKey, tuple[int, int]] = {}
    for number, (hit, span) in enumerate(zip(hits, spans, strict=True)):
        for msg_idx in range(span.begin, span.end):
            key = (hit.session.row, span.rail, msg_idx)
            distance = abs(msg_idx - hit.msg_idx) if hit.msg_idx is not None else _TITLE_DISTANCE
            nearest[key] = min(nearest.get(key, (distance, number)), (distance, number))
    return {key: number for key, (_, number) in nearest.items()}


def _message(msg_idx: int, own: Sequence[RecordLine], *, is_match: bool) -> _Message:
    """The records to read of a message: all if it matched, else the start of the most descriptive ones."""
    role, at_most = own[0].role, None if is_match else _ENOUGH
    if len(own) > 1 and not is_match:
        own = sorted(own, key=lambda line: _rank(line.kind))[:_LINES_SHOWN]
    return _Message(msg_idx, role, [Spot(line.position, line.length, at_most) for line in own], is_match)


def _item(message: _Message, about: Content | None, match: Passage, names: Names) -> dict[str, Any]:
    """A message in a window, its passage, and the record that the passage is from."""
    if about is None:
        return {"role": message.role, "msgIdx": message.msg_idx, "snippet": GONE, "truncated": False}
    item = {"role": about.role, "msgIdx": message.msg_idx, "snippet": match.text, "truncated": match.truncated}
    if name := names.of(about):
        item["toolName"] = name
    return item


def record_text(record: Content) -> str:
    """Without the name of its tool."""
    text: str
    if record.kind in ("text", "thinking"):
        text = record.text if isinstance(record.text, str) else ""
    elif record.tool_use is not None:
        text = "\n".join(in_json(record.tool_use.input))
    elif record.tool_result is not None and record.text is None and record.file is None:
        content, blocks = record.tool_result.content, None
        if bytes(memoryview(content)[:1]) == b"[":
            with contextlib.suppress(msgspec.MsgspecError, ValueError, RecursionError):
                blocks = _blocks.decode(content)  # many tools return text blocks, of which only the texts are read
        text = "\n".join(in_json(content) if blocks is None else [block.text for block in blocks])
    else:
        text = "\n".join(strings(record))
    return text if text.isascii() else clean(text)


def _rank(kind: str) -> int:
    return _RANKS.get(kind, len(_RANKS))


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
