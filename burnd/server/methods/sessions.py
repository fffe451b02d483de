"""Methods of sessions: list, read, search, append, and prune or forget their content."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import msgspec

from burnd.content.recall import Recall, closed
from burnd.content.text_scan import TextScan
from burnd.contract import DEADLINE_S
from burnd.contract.sessions import (
    MOST_HITS,
    AppendParams,
    ForgetParams,
    ListParams,
    MemoryParams,
    MessagesParams,
    MetaParams,
    NewParams,
    PruneParams,
    ReadParams,
    RecordingParams,
    SearchParams,
    SetParams,
)
from burnd.errors import SEARCH, NotNow, to_install
from burnd.harness.api import sessions as api_sessions
from burnd.harness.registry import PRODUCTS
from burnd.instructions import LARGEST_FILE, Homes, Query, entries
from burnd.ledger.files import as_storage_error
from burnd.ledger.sidecars import Sidecars
from burnd.paths import user_home
from burnd.queries.messages import (
    Recorded,
    RecordingCursor,
    RecordPage,
    family,
    messages,
    of_project,
    page,
    recording,
    summaries,
)
from burnd.queries.names import folders
from burnd.queries.quotes import add_compaction_summary, add_titles, name_sessions
from burnd.queries.search import search
from burnd.queries.sessions import entries_of, exactly, list_sessions, meta
from burnd.queries.view import Refusal, View
from burnd.recording.projects import DetachedCall
from burnd.recording.retention import outdated, would_free
from burnd.recording.source import UNKNOWN
from burnd.records import Content
from burnd.records.times import DAY_MS, to_iso
from burnd.search.indexer import SearchIndexer
from burnd.server.method import AnyMethod, Caller, LongMethod, Method, Result, with_progress
from burnd.server.service import Service, Work

_OF_CONTENT = ("title", "summary", "messageCount", "contentMode", "content")
PATIENCE_S = 3.0  # for an index that is just being opened
_MANY_PENDING = 20  # sessions, more than live agents write at once
_MEMORY_BYTES = 1 << 20  # of an answer; the first entry is always included
_COPIES_SHOWN = 20


async def find(service: Service, params: SearchParams) -> Result:
    """Notes say if some messages cannot be found."""
    indexer = service.search_indexer
    index = await indexer.wait_open(PATIENCE_S)
    if index is None:
        raise _not_searchable(indexer)
    from burnd.search.index import Unusable  # noqa: PLC0415 - needs tantivy
    from burnd.search.lookup import Lookup  # noqa: PLC0415

    pending, mode = _pending(indexer), service.pipeline.modes.mode
    notes = [] if mode == "full" else [f"content is not stored (mode {mode}); only older messages can be found"]
    notes += [f"{pending:,} sessions are still being indexed, the newest first"] if pending else []
    try:
        answer = await service.ask(
            lambda view: search(view, Lookup(index), indexer.recall, params), project=params.project
        )
    except Unusable:
        indexer.report_damage()
        raise _not_searchable(indexer) from None
    notes = [answer["note"], *notes] if "note" in answer else notes
    answer |= {"backfill": UNKNOWN} if pending else {}
    return answer | ({"note": "; ".join(notes)} if notes else {})


def _not_searchable(indexer: SearchIndexer) -> Exception:
    if indexer.is_missing:
        return Refusal(indexer.problem, f"install it with: {to_install(SEARCH)}; then: burnctl restart")
    return NotNow(indexer.problem or "the search index is being repaired", "", "try again in a moment")


def _pending(indexer: SearchIndexer) -> int:
    """The number of sessions that are not indexed yet; 0 if they are only those that live agents write."""
    status = indexer.status()
    return status.pending if status.state == "catching-up" or status.pending > _MANY_PENDING else 0


async def search_memory(service: Service, params: MemoryParams) -> Result:
    """The entries that match best. Reads the files and stores nothing of them."""
    query = Query(params.query)
    if not query.weights:
        return {"query": params.query[:1000], "entries": [], "note": "the query has no word to search for"}
    user, settings = str(user_home(service.environ)), service.settings
    homes = {
        product.source: product.config_homes(
            service.environ, user, [*settings.roots_of(product), *service.roots.get(product.source, [])]
        )
        for product in PRODUCTS
    }
    read = await service.memory_files.read(Homes(user, homes), await service.ask(folders))
    # the daemon would wait for a pool thread when it ends
    matches = await DetachedCall(lambda: query.rank(entries(read.files))).result(DEADLINE_S)
    rows: list[dict[str, Any]] = []
    size = 0
    for entry, score in matches[: min(max(params.limit, 1), MOST_HITS)]:
        size += len(entry.text.encode("utf-8", "replace"))
        if rows and size > _MEMORY_BYTES:
            break
        rows.append(
            {
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
        )
    answer = {"query": params.query[:1000], "entries": rows, "matches": len(matches), "files": len(read.files)}
    notes = [f"{count:,} {_SKIPPED[why]}" for why, count in sorted(read.skipped.items())]
    if read.unanswered:
        notes.append(f"no answer from {', '.join(read.unanswered[:3])}")
    if not read.is_whole:
        notes.append("not all files were read: there are too many, or they took too long")
    return answer | ({"note": "; ".join(notes)} if notes else {})


_SKIPPED = {
    "foreign": "files of other users were not read",
    "large": f"files over {LARGEST_FILE >> 20} MB were not read",
    "links": "links that lead out of their project were not followed",
}


async def list_page(service: Service, params: ListParams) -> Result:
    recall = service.search_indexer.recall
    if params.gone:
        await service.lost_logs.check()
    has_totals = service.has_totals and params.is_of_totals
    answer = await service.ask(lambda view: list_sessions(view, params), project=params.project, totals=has_totals)

    def name(view: View) -> None:
        sessions = answer["sessions"]
        if has_totals:  # which have neither titles nor messages
            recorded = entries_of(view, [session["sessionId"] for session in sessions])
            for session in sessions:
                if (own := recorded.get(session["sessionId"])) is not None:
                    session |= {name: own.facts[name] for name in _OF_CONTENT}
        add_titles(view, recall, sessions)

    await service.ask(name)
    return answer


async def show_meta(service: Service, params: MetaParams) -> Result:
    recall = service.search_indexer.recall

    def facts(view: View) -> Result:
        answer = meta(view, params)
        add_titles(view, recall, [answer])
        add_compaction_summary(view, recall, answer)
        return answer

    return await service.ask(facts)


async def read_messages(service: Service, params: MessagesParams) -> Result:
    recall = service.search_indexer.recall

    def titled(view: View) -> Result:
        answer = messages(view, recall, params)
        name_sessions(view, recall, [answer])
        return answer

    return await service.ask(titled)


async def new(service: Service, params: NewParams) -> Result:
    """Durable when it returns."""
    return await _facts(service, await api_sessions.new(service.pipeline, service.ask, service.folders.resolve, params))


async def set_texts(service: Service, params: SetParams) -> Result:
    return await _facts(service, await api_sessions.set_texts(service.pipeline, service.ask, params))


async def append(service: Service, params: AppendParams) -> Result:
    """One at a time: each numbers its turns after the recorded ones."""
    async with service.appending:
        answer = await api_sessions.append(service.pipeline, service.ask, service.search_indexer.recall, params)
    facts = await _facts(service, params.id)
    return {**answer, "messageCount": facts["messageCount"], "updatedAt": facts["updatedAt"]}


async def _facts(service: Service, session_id: str) -> Result:
    session = await service.ask(lambda view: exactly(view, session_id))
    return session.facts if session is not None else {"sessionId": session_id}


LARGEST_RECORD = 1 << 20
_PAGE_BYTES = 4 << 20
_PAGE_CHARS = 1_500_000  # a character takes at most four bytes
_LISTED = 1000
_SEARCH_S = 30.0


async def read(service: Service, params: ReadParams) -> Result:
    """A page of records; a very long one is cut, and has `truncated`."""
    located = await service.ask(lambda view: page(view, params.session, params.message, params.offset, params.limit))
    records = await service.read_content(lambda recall: _read_page(recall, params.session, located))
    end = params.offset + len(records)
    return {
        "sessionId": params.session,
        "kept": located.state,
        "total": located.total,
        "records": records,
        "next": end if end < located.total and records else None,
    }


def _read_page(recall: Recall, session_id: str, located: RecordPage) -> list[msgspec.Raw]:
    """Empty if the sidecar was pruned meanwhile. Blocking."""
    records: list[msgspec.Raw] = []
    size = 0
    with recall.opened(session_id) as sidecar:
        for position, length in located.spans:
            try:
                beginning = sidecar.beginning(position, length, LARGEST_RECORD)
            except OSError as error:
                raise as_storage_error(error, Path(recall.path(session_id))) from error
            if beginning is None:
                break
            data = _record_json(*beginning)
            size += len(data)
            if records and size > _PAGE_BYTES:
                break
            records.append(msgspec.Raw(data))
    return records


def _record_json(record: Content, whole_bytes: int | None) -> bytes:
    """A long record has only the start of its content, as text.

    `whole_bytes` is the size of its content if only the start was read.
    """
    data = msgspec.json.encode(msgspec.structs.replace(record, line=None, parent=None, context=None))
    if len(data) <= LARGEST_RECORD and whole_bytes is None:
        return data
    size = len(data) if whole_bytes is None else whole_bytes + len(data) - LARGEST_RECORD
    cut = msgspec.json.decode(data)
    for owner, name in ((cut, "text"), *((cut.get(o, {}), n) for o, n in _BODIES)):
        if name in owner:
            value = owner[name]
            is_begun = whole_bytes is not None and name in ("input", "content")  # only the start of the JSON was read
            if is_begun and isinstance(value, str) and value[:1] == '"':
                value = msgspec.json.decode(closed(value.encode()))
            text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
            owner[name] = text.encode()[:LARGEST_RECORD].decode("utf-8", "ignore")
    return msgspec.json.encode(cut | {"truncated": True, "bytes": size})


_BODIES = (("toolUse", "input"), ("toolResult", "content"), ("file", "data"))


async def read_recording(service: Service, params: RecordingParams) -> Result:
    """A page of JSON lines: the session's responses, then its records; a line may continue in the next page."""
    after = RecordingCursor.parse(params.next)
    recorded = await service.ask(lambda view: recording(view, params.id, after))
    text, cursor = await service.read_content(lambda recall: _read_lines(recall, recorded, after.begin))
    return {"session": recorded.facts, "lines": text, "next": cursor and str(cursor)}


def _read_lines(recall: Recall, recorded: Recorded, begin: int) -> tuple[str, RecordingCursor | None]:
    """Lines from character `begin` of the first one on, and where the next page begins. Blocking."""
    pieces: list[str] = []
    size = 0
    with recall.opened(recorded.session_id) as sidecar:
        for item in recorded.items:
            line = item.line
            if line is None:
                record = sidecar.whole(item.cursor.number, item.length)
                line = "" if record is None else msgspec.json.encode(record).decode() + "\n"
            piece = line[begin : begin + _PAGE_CHARS - size]
            pieces.append(piece)
            size += len(piece)
            if begin + len(piece) < len(line):
                return "".join(pieces), item.cursor._replace(begin=begin + len(piece))
            begin = 0
    return "".join(pieces), None


async def prune(service: Service, params: PruneParams) -> Result:
    """Deletes content of sessions whose newest record is older. Usage stays."""
    pipeline, days, older_than_ms = service.pipeline, params.older_than_days, service.settings.retention_ms
    if days is not None:
        if not 0 <= days < 1e6:
            raise Refusal("olderThanDays must be 0 or more days")
        older_than_ms = int(days * DAY_MS)
    if older_than_ms is None:
        raise Refusal("content.retention_days is forever", "give olderThanDays")
    if params.dry_run:
        session_ids = await outdated(pipeline.index, Sidecars(service.home.content), older_than_ms, service.now())
        pruned = await anyio.to_thread.run_sync(would_free, service.home, session_ids)
    else:
        pruned = await pipeline.prune_content(older_than_ms)
    return {"dryRun": params.dry_run, "files": pruned.files, "bytes": pruned.bytes}


async def forget(service: Service, params: ForgetParams, caller: Caller) -> Result:
    """Erases content everywhere, or in a dry run lists it."""
    pipeline = service.pipeline
    session_ids = sorted(await _sessions_of(service, params, caller))
    rows = await service.ask(lambda view: summaries(view, session_ids[:_LISTED]))
    clean = None
    if params.dry_run:
        size = await anyio.to_thread.run_sync(would_free, service.home, session_ids)
    else:
        size = await pipeline.forget(session_ids)
        clean = await _has_left_search(service) if session_ids else True
    return {
        "dryRun": params.dry_run,
        "files": size.files,
        "bytes": size.bytes,
        "count": len(session_ids),
        "clean": clean,
        "sessions": rows,
    }


async def _has_left_search(service: Service) -> bool:
    """A very large search index is rewritten in the background."""
    if service.search_indexer.problem:
        return not await anyio.Path(service.home.search).exists()
    with anyio.move_on_after(_SEARCH_S):
        await service.search_indexer.caught_up()
        return True
    return False


async def _sessions_of(service: Service, params: ForgetParams, caller: Caller) -> set[str]:
    names = [name for name in ("session", "project", "match") if getattr(params, name) is not None]
    if len(names) != 1:
        raise Refusal("give one of session, project and match")
    if not getattr(params, names[0]):
        raise Refusal(f"{names[0]} is empty")
    if params.session is not None:
        return await service.ask(lambda view: family(view, str(params.session)))
    if params.project is not None:
        return await service.ask(lambda view: of_project(view, str(params.project)), project=params.project)
    work = Work("searching")
    matching = TextScan(service.home, str(params.match), work.report)
    try:
        async with with_progress(caller, lambda: (work.done, work.total)):
            # not awaited when the client disconnects: it stops before the next file
            return await anyio.to_thread.run_sync(matching.run, abandon_on_cancel=True)
    finally:
        matching.stop()


METHODS: tuple[AnyMethod, ...] = (
    Method(ListParams, list_page),
    Method(MetaParams, show_meta),
    Method(MessagesParams, read_messages),
    Method(SearchParams, find),
    Method(MemoryParams, search_memory),
    Method(NewParams, new),
    Method(AppendParams, append),
    Method(SetParams, set_texts),
    Method(ReadParams, read),
    Method(RecordingParams, read_recording),
    Method(PruneParams, prune),
    LongMethod(ForgetParams, forget),
)
