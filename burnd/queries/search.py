"""Finds sessions by their words: the best message of each, with the messages around it. Bounded for any query."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, Literal

from burnd.content.recall import Recall
from burnd.contract.sessions import LAST_HIT, MOST_HITS, MOST_WINDOW, SearchParams
from burnd.queries import projects
from burnd.queries.candidates import Candidates
from burnd.queries.messages import why_not_retained
from burnd.queries.naming import check_source
from burnd.queries.sessions import find, times
from burnd.queries.view import View
from burnd.queries.windows import Hit, Windows
from burnd.search.documents import session_key
from burnd.search.query import Only, Typed, Wanted, typed

if TYPE_CHECKING:
    from burnd.search.lookup import Lookup

_ALL_WORDS: Final = 8  # words of a query that are looked up together
# Candidates that are weighed together. The same for every page and limit, so that pages of one query fit together.
_WEIGHED: Final = 3 * MOST_HITS

Role = Literal["user", "assistant", "tool_result", "system"]


def search(view: View, lookup: Lookup, recall: Recall, params: SearchParams) -> dict[str, Any]:
    """The hits, best first."""
    asked = typed(params.query)
    wanted = lookup.understand(asked)
    only = _narrowed(view, params)
    answer: dict[str, Any] = {"query": params.query[:1000], "hits": []}
    if not any(lookup.words(piece) for piece in (*asked.pieces, *asked.phrases)):
        return answer | {"note": "the query has no word to search for"}
    if wanted.corrected:
        answer["corrected"] = wanted.corrected
    limit = min(max(params.limit, 0), MOST_HITS)
    pages = 1 + params.offset // MOST_HITS
    candidates = Candidates(view, lookup, recall, wanted, only, lot=_WEIGHED, each=params.all, pages=pages)
    hits = list(islice(candidates.hits(), params.offset, params.offset + limit))
    if 0 < limit == len(hits) and params.offset + limit < LAST_HIT:
        answer["next"] = params.offset + limit
    windows = Windows(view, recall, candidates.spotter, only, *window(params.before, params.after))
    answer["hits"] = windows.around(hits)
    if hits and not _has_all_words(lookup, asked, wanted, only):
        answer["allWords"] = False
    if note := _note(view, params, candidates, hits):
        answer["note"] = note
    return answer


def _has_all_words(lookup: Lookup, asked: Typed, wanted: Wanted, only: Only) -> bool:
    """Whether any message that passes the filters has every word of the query."""
    words = dict.fromkeys(word for piece in (*asked.pieces, *asked.phrases) for word in lookup.words(piece))
    if len(words) < 2:
        return True
    together = wanted._replace(musts=tuple(islice(words, _ALL_WORDS)))
    return any(next(lookup.messages(together, only), []))


def _note(view: View, params: SearchParams, candidates: Candidates, hits: Sequence[Hit]) -> str:
    """The reason for missing hits, if there is one."""
    if candidates.check.gave_up:
        return "too many messages have these words: only the best were checked"
    if params.session is not None and not hits:
        facts = find(view, params.session).facts
        return why_not_retained(facts) if facts["content"] != "yes" else ""
    return ""


def window(before: int, after: int) -> tuple[int, int]:
    """The number of messages to show before and after a hit, at most sixteen with the hit."""
    most = MOST_WINDOW - 1
    before, after = min(max(before, 0), most), min(max(after, 0), most)
    if before + after > most:
        before = min(before, max(most - after, (most + 1) // 2))
        after = most - before
    return before, after


def _narrowed(view: View, params: SearchParams) -> Only:
    """The filters of the parameters, with sessions by their keys in the index."""
    rows: set[int] | None = None
    if params.session is not None:
        rows = {find(view, params.session).row}
    if params.project is not None:
        own = projects.sessions(view, params.project)
        rows = own if rows is None else rows & own
    if params.source is not None:
        check_source(view, params.source)
        own = {row for (row,) in view.rows(_OF_SOURCE, (params.source,))}
        rows = own if rows is None else rows & own
    since, until = times(view, params.since, params.until, params.tz)
    return Only(
        sessions=_keys(view, rows) if rows is not None else None,
        since=since,
        until=until,
        role=params.role,
        tool=params.tool.lower() if params.tool else None,
    )


def _keys(view: View, rows: set[int]) -> frozenset[int]:
    found = view.keyed("SELECT session_id FROM sessions WHERE id IN ({keys})", [(row,) for row in rows])
    return frozenset(session_key(session_id) for (session_id,) in found)


_OF_SOURCE = "SELECT s.id FROM sessions s JOIN names n ON n.id = s.source WHERE n.name = ?"
