"""Sessions over the socket: listed, read, searched, and written by programs that call models themselves."""

from __future__ import annotations

from burnd.clients import api_sessions
from burnd.clients.api_sessions import AppendParams, NewParams, SetParams
from burnd.errors import NotNow
from burnd.extras import SEARCH, to_install
from burnd.queries.messages import MessagesParams, messages
from burnd.queries.openings import name_all
from burnd.queries.search import SearchParams, search
from burnd.queries.sessions import ListParams, MetaParams, exactly, list_sessions, meta
from burnd.queries.view import Refusal, View
from burnd.search.indexing import SearchIndexer
from burnd.server.method import LONG_S, AnyMethod, Method, Result
from burnd.server.service import Service

PATIENCE_S = 3.0  # for an index that is just being opened
_MANY_PENDING = 20  # sessions, more than live agents write at once


async def find(service: Service, params: SearchParams) -> Result:
    """Hits, and a note wherever there may be fewer of them than one would think."""
    indexer = service.search_indexer
    engine = await indexer.opened(PATIENCE_S)
    if engine is None:
        raise _not_searchable(indexer)
    from burnd.search.engine import Unusable  # noqa: PLC0415 - there is an engine, so there is tantivy
    from burnd.search.lookup import Lookup  # noqa: PLC0415

    notes = _notes(service, indexer)
    try:
        answer = await service.ask(
            lambda view: search(view, Lookup(engine), indexer.recall, params), project=params.project
        )
    except Unusable:
        indexer.damaged()
        raise _not_searchable(indexer) from None
    notes = [answer["note"], *notes] if "note" in answer else notes
    return answer | ({"note": "; ".join(notes)} if notes else {})


def _not_searchable(indexer: SearchIndexer) -> Exception:
    if indexer.is_missing:
        return Refusal(indexer.problem, f"install it with: {to_install(SEARCH)}; then: burnctl restart")
    return NotNow(indexer.problem or "search is being set right again", "", "try again in a moment")


def _notes(service: Service, indexer: SearchIndexer) -> list[str]:
    notes = []
    mode = service.pipeline.keeping.mode
    if mode != "full":
        notes.append(f"content is not kept (mode {mode}), so only what was said before that can be found")
    status = indexer.status()
    if status.state == "catching-up" or status.pending > _MANY_PENDING:
        notes.append(f"{status.pending:,} sessions are still being taken in, those written last first")
    return notes


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
        return answer

    return await service.ask(facts)


async def read(service: Service, params: MessagesParams) -> Result:
    recall = service.search_indexer.recall
    return await service.ask(lambda view: messages(view, recall, params))


async def new(service: Service, params: NewParams) -> Result:
    """The session is durable when it returns."""
    return await _facts(service, await api_sessions.new(service.pipeline, service.ask, service.folders, params))


async def set_words(service: Service, params: SetParams) -> Result:
    return await _facts(service, await api_sessions.set_words(service.pipeline, service.ask, params))


async def append(service: Service, params: AppendParams) -> Result:
    """Durable when it returns. One at a time: each numbers its turns after those that are there."""
    async with service.appending:
        told = await api_sessions.append(service.pipeline, service.ask, service.search_indexer.recall, params)
    facts = await _facts(service, params.id)
    return {**told, "messageCount": facts["messageCount"], "updatedAt": facts["updatedAt"]}


async def _facts(service: Service, session_id: str) -> Result:
    known = await service.ask(lambda view: exactly(view, session_id))
    return known.facts if known is not None else {"sessionId": session_id}


METHODS: dict[str, AnyMethod] = {
    "sessions.list": Method(ListParams, listed),
    "sessions.meta": Method(MetaParams, known),
    "sessions.messages": Method(MessagesParams, read),
    "sessions.search": Method(SearchParams, find),
    "sessions.new": Method(NewParams, new),
    "sessions.append": Method(AppendParams, append, within=LONG_S),  # 16 MiB hold a year of messages
    "sessions.set": Method(SetParams, set_words),
}
