"""Sessions over the socket: listed, read, searched, and written by programs that call models themselves."""

from __future__ import annotations

from typing import Any

from burnd.contract import DEADLINE_S
from burnd.contract.sessions import (
    MOST_HITS,
    AppendParams,
    ListParams,
    MemoryParams,
    MessagesParams,
    MetaParams,
    NewParams,
    SearchParams,
    SetParams,
)
from burnd.errors import NotNow
from burnd.extras import SEARCH, to_install
from burnd.harness.api import sessions as api_sessions
from burnd.harness.registry import PRODUCTS
from burnd.instructions.entries import Entry, Query, entries
from burnd.instructions.files import LARGEST_FILE, Found, Homes
from burnd.paths import user_home
from burnd.queries.messages import messages
from burnd.queries.openings import add_compaction_summary, name_all
from burnd.queries.projects import folders
from burnd.queries.search import search
from burnd.queries.sessions import exactly, list_sessions, meta
from burnd.queries.view import Refusal, View
from burnd.recording.projects import DetachedCall
from burnd.recording.source import UNKNOWN
from burnd.records.times import to_iso
from burnd.search.indexing import SearchIndexer
from burnd.server.method import AnyMethod, Method, Result
from burnd.server.service import Service

PATIENCE_S = 3.0  # for an index that is just being opened
_MANY_PENDING = 20  # sessions, more than live agents write at once
_MEMORY_BYTES = 1 << 20  # of all entries of an answer; the first is always included
_COPIES_SHOWN = 20


async def find(service: Service, params: SearchParams) -> Result:
    """Hits, and a note wherever there may be fewer of them than one would think."""
    indexer = service.search_indexer
    engine = await indexer.opened(PATIENCE_S)
    if engine is None:
        raise _not_searchable(indexer)
    from burnd.search.engine import Unusable  # noqa: PLC0415 - there is an engine, so there is tantivy
    from burnd.search.lookup import Lookup  # noqa: PLC0415

    pending = _pending(indexer)
    notes = _notes(service, pending)
    try:
        answer = await service.ask(
            lambda view: search(view, Lookup(engine), indexer.recall, params), project=params.project
        )
    except Unusable:
        indexer.damaged()
        raise _not_searchable(indexer) from None
    notes = [answer["note"], *notes] if "note" in answer else notes
    answer |= {"backfill": UNKNOWN} if pending else {}
    return answer | ({"note": "; ".join(notes)} if notes else {})


def _not_searchable(indexer: SearchIndexer) -> Exception:
    if indexer.is_missing:
        return Refusal(indexer.problem, f"install it with: {to_install(SEARCH)}; then: burnctl restart")
    return NotNow(indexer.problem or "search is being set right again", "", "try again in a moment")


def _pending(indexer: SearchIndexer) -> int:
    """The number of sessions that are not indexed yet; 0 if they are only those that live agents write."""
    status = indexer.status()
    return status.pending if status.state == "catching-up" or status.pending > _MANY_PENDING else 0


def _notes(service: Service, pending: int) -> list[str]:
    notes = []
    mode = service.pipeline.keeping.mode
    if mode != "full":
        notes.append(f"content is not kept (mode {mode}), so only what was said before that can be found")
    if pending:
        notes.append(f"{pending:,} sessions are still being indexed, the newest first")
    return notes


async def search_memory(service: Service, params: MemoryParams) -> Result:
    """The entries that match best, each whole. The files are read for this answer and nothing of them is stored."""
    query = Query(params.query)
    if not query.weights:
        return {"query": params.query[:1000], "entries": [], "note": "the query has no word to search for"}
    worked_in = await service.ask(folders)
    found = await service.memory_files.read(_homes(service), worked_in)
    # Not in a pool thread: the daemon would wait for it when it ends.
    matches = await DetachedCall(lambda: query.rank(entries(found.files))).result(DEADLINE_S)
    shown: list[dict[str, Any]] = []
    size = 0
    for entry, score in matches[: min(max(params.limit, 1), MOST_HITS)]:
        size += len(entry.text.encode("utf-8", "replace"))
        if shown and size > _MEMORY_BYTES:
            break
        shown.append(_entry(entry, score))
    answer = {"query": params.query[:1000], "entries": shown, "matches": len(matches), "files": len(found.files)}
    notes = _reading_notes(found)
    return answer | ({"note": "; ".join(notes)} if notes else {})


def _homes(service: Service) -> Homes:
    """The folders with this user's own instruction files, of each harness."""
    environ, settings, user = service.environ, service.settings, str(user_home(service.environ))
    folders = {
        product.source: product.config_homes(
            environ, user, [*settings.roots_of(product), *service.roots.get(product.source, [])]
        )
        for product in PRODUCTS
    }
    return Homes(user, folders)


def _entry(entry: Entry, score: float) -> dict[str, Any]:
    return {
        "path": entry.file.path,
        "kind": entry.file.kind,
        "project": entry.file.project,
        "heading": entry.heading or None,
        "line": entry.line,
        "modifiedAt": to_iso(entry.file.modified_ms),
        "score": round(score, 4),
        "alsoIn": list(entry.copies[:_COPIES_SHOWN]),
        "text": entry.text,
    }


def _reading_notes(found: Found) -> list[str]:
    """Notes on files that were not searched."""
    notes = [f"{count:,} {_SKIPPED[why]}" for why, count in sorted(found.skipped.items())]
    if found.unanswered:
        notes.append(f"no answer from {', '.join(found.unanswered[:3])}")
    if not found.is_whole:
        notes.append("not all files were read: there are too many, or they took too long")
    return notes


_SKIPPED = {
    "foreign": "files of other users were not read",
    "large": f"files over {LARGEST_FILE >> 20} MB were not read",
    "links": "links that lead out of their project were not followed",
}


async def listed(service: Service, params: ListParams) -> Result:
    recall = service.search_indexer.recall

    def page(view: View) -> Result:
        answer = list_sessions(view, params)
        name_all(view, recall, answer["sessions"])
        return answer

    return await service.ask(page, project=params.project)


async def known(service: Service, params: MetaParams) -> Result:
    recall = service.search_indexer.recall

    def facts(view: View) -> Result:
        answer = meta(view, params)
        name_all(view, recall, [answer])
        add_compaction_summary(view, recall, answer)
        return answer

    return await service.ask(facts)


async def read(service: Service, params: MessagesParams) -> Result:
    recall = service.search_indexer.recall
    return await service.ask(lambda view: messages(view, recall, params))


async def new(service: Service, params: NewParams) -> Result:
    """The session is durable when it returns."""
    return await _facts(service, await api_sessions.new(service.pipeline, service.ask, service.folders.resolve, params))


async def set_texts(service: Service, params: SetParams) -> Result:
    return await _facts(service, await api_sessions.set_texts(service.pipeline, service.ask, params))


async def append(service: Service, params: AppendParams) -> Result:
    """Durable when it returns. One at a time: each numbers its turns after those that are there."""
    async with service.appending:
        told = await api_sessions.append(service.pipeline, service.ask, service.search_indexer.recall, params)
    facts = await _facts(service, params.id)
    return {**told, "messageCount": facts["messageCount"], "updatedAt": facts["updatedAt"]}


async def _facts(service: Service, session_id: str) -> Result:
    known = await service.ask(lambda view: exactly(view, session_id))
    return known.facts if known is not None else {"sessionId": session_id}


METHODS: tuple[AnyMethod, ...] = (
    Method(ListParams, listed),
    Method(MetaParams, known),
    Method(MessagesParams, read),
    Method(SearchParams, find),
    Method(MemoryParams, search_memory),
    Method(NewParams, new),
    Method(AppendParams, append),  # 16 MiB hold a year of messages
    Method(SetParams, set_texts),
)
