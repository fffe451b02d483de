"""Stamps given, listed and removed, and what else a spawner says: sessions announced, and the spool taken in."""

from __future__ import annotations

import os
from typing import cast

import msgspec

from burnd.clients.announcements import Announcement, announce, claimed_by
from burnd.contract.daemon import (
    AnnounceParams,
    ListStampsParams,
    OneStamp,
    RemoveStampsParams,
    SpoolParams,
    StampParams,
)
from burnd.errors import NotNow
from burnd.harness.registry import BY_SOURCE
from burnd.queries.session_ids import no_such_session, stamped_sessions
from burnd.queries.stamps import list_stamps, time_of, unknown_keys
from burnd.queries.view import Refusal
from burnd.recording.candidate import Batch
from burnd.records import Selector, Stamp, TimeRange
from burnd.records.session import ContentMode
from burnd.records.times import canonical, to_iso
from burnd.server.method import AnyMethod, Method, Result, query
from burnd.server.service import Service


async def stamp(service: Service, params: StampParams) -> Result:
    """Durable when it returns."""
    given = _given(params)
    now = to_iso(service.now())
    stamps = [_as_stamp(one, now, n if params.stamps else None) for n, one in enumerate(given)]
    stamps = await _for_known_sessions(service, stamps)
    new = await service.pipeline.commit(Batch(entries=list(stamps)))
    return {"stamped": len(stamps), "new": new}


async def remove(service: Service, params: RemoveStampsParams) -> Result:
    """Durable when it returns. Reads the spool first: the stamp that gave a tag may still wait there."""
    if not params.keys:
        raise Refusal("no key to remove", "name at least one in `keys`")
    keys = list(dict.fromkeys(params.keys))
    given = OneStamp(selector=params.selector, enrichment={}, removes=keys, ts=params.ts)
    removal = _as_stamp(given, to_iso(service.now()), None)
    await service.spool.drain()
    stamps = await _for_known_sessions(service, [removal])
    if unknown := await service.ask(lambda view: unknown_keys(view, keys)):
        raise Refusal(f"no stamp has the key {unknown[0][:40]!r}", "nothing was removed; burnctl stamps list shows all")
    new = await service.pipeline.commit(Batch(entries=list(stamps)))
    return {"removed": keys, "new": new}


async def _for_known_sessions(service: Service, stamps: list[Stamp]) -> list[Stamp]:
    """The stamps with their sessions' ids in full. Raises Refusal, or NotNow while the session may still turn up."""
    named = {one.selector.session_id for one in stamps if one.selector.session_id is not None}
    backfill = service.backfill()
    sessions: dict[str, str] = {}
    answer = await service.ask(lambda view: stamped_sessions(view.db, named, is_growing=backfill.is_growing))
    for given, found in answer.items():
        if isinstance(found, Refusal):
            raise found
        if found is None and not backfill.done:
            raise NotNow("old logs are still being read, so the session is not known yet", given, "try again later")
        if found is None:
            raise Refusal(no_such_session(given), "nothing was recorded; burnctl sessions lists them")
        sessions[given] = found
    return [one.of_session(sessions.get(one.selector.session_id or "")) for one in stamps]


def _given(params: StampParams) -> list[OneStamp]:
    single = (params.selector, params.enrichment, params.ts)
    if params.stamps is not None:
        if any(part is not None for part in single):
            raise Refusal("stamps stand alone: selector, enrichment and ts belong into each of them")
        return params.stamps
    if params.selector is None or params.enrichment is None:
        raise Refusal("a stamp has a selector and an enrichment", 'or give many as {"stamps": [...]}')
    return [OneStamp(selector=params.selector, enrichment=params.enrichment, ts=params.ts)]


def _as_stamp(given: OneStamp, now: str, number: int | None) -> Stamp:
    said, span = given.selector, given.selector.range
    selector = Selector(
        session_id=said.session_id,
        message_id=said.message_id,
        range=TimeRange(from_ts=span.from_ts, to_ts=span.to_ts) if span else None,
    )
    removes = tuple(dict.fromkeys(given.removes))
    made = Stamp(ts=given.ts or now, selector=selector, enrichment=given.enrichment, removes=removes)
    if (problem := made.problem()) is not None:
        which = "" if number is None else f"stamp {number}: "
        raise Refusal(which + problem, "nothing was stamped" if number is not None else "")
    return _canonical(made)


def _canonical(made: Stamp) -> Stamp:
    """With all times in the ledger's own form, so that the same stamp is the same line."""
    span = made.selector.range
    within = TimeRange(from_ts=canonical(span.from_ts), to_ts=canonical(span.to_ts)) if span else None
    selector = msgspec.structs.replace(made.selector, range=within)
    return msgspec.structs.replace(made, ts=canonical(made.ts), selector=selector)


async def announce_session(service: Service, params: AnnounceParams) -> Result:
    """Holds from the moment it returns."""
    if not params.session_id:
        raise Refusal("a session's id must not be empty")
    if params.source not in BY_SOURCE:
        raise Refusal(f"{params.source!r} is no source", "known are " + ", ".join(sorted(BY_SOURCE)))
    if not all(map(os.path.isabs, params.roots)):
        raise Refusal("roots are absolute paths")
    said = Announcement(
        params.session_id,
        params.source,
        service.now() if params.ts is None else time_of(params.ts, "ts"),
        cast("ContentMode | None", params.content_mode),
        tuple(dict.fromkeys(params.roots)),
        is_new=params.is_new,
    )
    await announce(service.pipeline, said)
    service.add_roots(said.source, list(said.roots))
    return {"sessionId": params.session_id, "contentMode": service.pipeline.keeping.mode_of(params.session_id)}


async def take_spool(service: Service, params: SpoolParams) -> Result:
    """Takes in what clients left while the daemon was away, now rather than within seconds."""
    taken = await service.spool.drain()
    claims: list[dict[str, str | None]] = [
        {"claim": name, "sessionId": session_id} for name, session_id in taken.claimed.items()
    ]
    claims += [{"claim": name, "sessionId": None} for name in taken.pending]
    if params.claim is not None:
        session_id = await claimed_by(service.pipeline.index, params.claim)
        claims = [{"claim": params.claim, "sessionId": session_id}]
    counts = {"stamps": taken.stamps, "announcements": taken.announcements, "bad": taken.bad}
    return {**counts, "claims": claims}


METHODS: tuple[AnyMethod, ...] = (
    Method(StampParams, stamp),
    query(ListStampsParams, list_stamps),
    Method(RemoveStampsParams, remove),
    Method(AnnounceParams, announce_session),
    Method(SpoolParams, take_spool),
)
