"""Content over the socket: reading some of it, and making it go, by its age or because somebody must forget it."""

from __future__ import annotations

from typing import Any

import anyio
import anyio.to_thread
import msgspec

from burnd.content.cut_json import closed
from burnd.content.matching import Matching
from burnd.contract.sessions import ForgetParams, PruneParams, ReadParams
from burnd.ledger.content import ContentStore
from burnd.ledger.files import as_storage_error
from burnd.ledger.sidecars import Sidecars
from burnd.queries.content import Page, family, of_project, page, summaries
from burnd.queries.view import Refusal
from burnd.recording.retention import outdated, would_free
from burnd.records import Content
from burnd.records.times import DAY_MS
from burnd.server.method import AnyMethod, Caller, LongMethod, Method, Result, with_progress
from burnd.server.service import Service, Work

LARGEST_RECORD = 1 << 20
_PAGE_BYTES = 4 << 20
_LISTED = 1000
_SEARCH_S = 30.0


async def read(service: Service, params: ReadParams) -> Result:
    """A page of what was said, in its original text; very long pieces are cut, and say so."""
    found = await service.ask(lambda view: page(view, params.session, params.message, params.offset, params.limit))
    records = await service.read_content(lambda store: _read_page(store, params.session, found))
    end = params.offset + len(records)
    return {
        "sessionId": params.session,
        "kept": found.kept,
        "total": found.total,
        "records": records,
        "next": end if end < found.total and records else None,
    }


def _read_page(store: ContentStore, session_id: str, found: Page) -> list[msgspec.Raw]:
    """As many of the records as make a page, as JSON; blocking. A sidecar that was pruned meanwhile has none."""
    records: list[msgspec.Raw] = []
    size = 0
    try:
        for record, whole in store.beginnings_at(session_id, found.places, LARGEST_RECORD) if found.places else ():
            shown = _shown(record, whole)
            size += len(shown)
            if records and size > _PAGE_BYTES:
                break
            records.append(msgspec.Raw(shown))
    except (FileNotFoundError, ValueError):
        return records
    except OSError as error:
        raise as_storage_error(error, store.sidecars.path(session_id)) from error
    return records


def _shown(record: Content, whole_bytes: int | None) -> bytes:
    """A record as JSON; `whole_bytes` is the size of its content if it was cut."""
    shown = msgspec.json.encode(record)
    if len(shown) <= LARGEST_RECORD and whole_bytes is None:
        return shown
    size = len(shown) if whole_bytes is None else whole_bytes + len(shown) - LARGEST_RECORD
    return msgspec.json.encode(_cut(msgspec.json.decode(shown), size, is_begun=whole_bytes is not None))


def _cut(shown: dict[str, Any], size: int, *, is_begun: bool) -> dict[str, Any]:
    """The record with only the beginning of its content: text as it is, anything else as JSON text.

    `is_begun`: only the beginning of the JSON was read; if it is a string, it is closed again.
    """
    for owner, name in ((shown, "text"), *((shown.get(o, {}), n) for o, n in _BODIES)):
        if name in owner:
            value = owner[name]
            if is_begun and name in ("input", "content") and isinstance(value, str) and value[:1] == '"':
                value = msgspec.json.decode(closed(value.encode()))
            text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
            owner[name] = text.encode()[:LARGEST_RECORD].decode("utf-8", "ignore")
    return shown | {"truncated": True, "bytes": size}


_BODIES = (("toolUse", "input"), ("toolResult", "content"), ("file", "data"))


async def prune(service: Service, params: PruneParams) -> Result:
    """Deletes the content of sessions whose newest record is older than that. Usage stays for ever."""
    older_than_ms = _age(service, params.older_than_days)
    pipeline = service.pipeline
    if params.dry_run:
        going = await outdated(pipeline.index, Sidecars(service.home.content), older_than_ms, service.now())
        pruned = await anyio.to_thread.run_sync(would_free, service.home, going)
    else:
        pruned = await pipeline.prune_content(older_than_ms)
    return {"dryRun": params.dry_run, "files": pruned.files, "bytes": pruned.bytes}


def _age(service: Service, days: float | None) -> int:
    if days is None:
        if (kept_ms := service.settings.retention_ms) is None:
            raise Refusal("content is kept for ever here", "say olderThanDays")
        return kept_ms
    if not 0 <= days < 1e6:
        raise Refusal("olderThanDays is a number of days, 0 or more")
    return int(days * DAY_MS)


async def forget(service: Service, params: ForgetParams, caller: Caller) -> Result:
    """Erases content at once, everywhere, or tells what would go; the search for a text tells how far it has come."""
    pipeline = service.pipeline
    session_ids = sorted(await _meant(service, params, caller))
    listed = await service.ask(lambda view: summaries(view, session_ids[:_LISTED]))
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
        "sessions": listed,
    }


async def _has_left_search(service: Service) -> bool:
    """Whether the words are out of the search index as well; a very large one is written anew in the background."""
    if service.search_indexer.problem:
        return not await anyio.Path(service.home.search).exists()
    with anyio.move_on_after(_SEARCH_S):
        await service.search_indexer.calm()
        return True
    return False


async def _meant(service: Service, params: ForgetParams, caller: Caller) -> set[str]:
    said = [name for name in ("session", "project", "match") if getattr(params, name) is not None]
    if len(said) != 1:
        raise Refusal("say one of session, project and match")
    if not getattr(params, said[0]):
        raise Refusal(f"{said[0]} must not be empty")
    if params.session is not None:
        return await service.ask(lambda view: family(view, str(params.session)))
    if params.project is not None:
        return await service.ask(lambda view: of_project(view, str(params.project)), project=params.project)
    return await _with_text(service, str(params.match), caller)


async def _with_text(service: Service, text: str, caller: Caller) -> set[str]:
    work = Work("looking")
    matching = Matching(service.home, text, work.tell)
    try:
        async with with_progress(caller, lambda: (work.done, work.total)):
            # Not waited for when the client goes: it notices by itself, at the next file.
            return await anyio.to_thread.run_sync(matching.run, abandon_on_cancel=True)
    finally:
        matching.stop()


METHODS: tuple[AnyMethod, ...] = (
    Method(ReadParams, read),
    Method(PruneParams, prune),
    LongMethod(ForgetParams, forget),
)
