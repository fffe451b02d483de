"""Methods of the daemon: settings, flush, rebuild, shutdown, live turns, stamps, announcements, the guard."""

from __future__ import annotations

import os
from functools import partial
from typing import Any, cast

import anyio
import msgspec

from burnd import protocol
from burnd.clients.announcements import Announcement, announce, claimed_by
from burnd.contract import methods
from burnd.contract.daemon import (
    AllowParams,
    AnnounceParams,
    CheckGuardParams,
    ConfigParams,
    FlushParams,
    GuardStatusParams,
    ListStampsParams,
    MethodsParams,
    OneStamp,
    RebuildParams,
    RemoveStampsParams,
    ShutdownParams,
    SpoolParams,
    StampParams,
    SwitchGuardParams,
    TailParams,
)
from burnd.errors import IndexDamaged, NotNow
from burnd.harness.registry import BY_SOURCE
from burnd.harness.supervisor import SourceSupervisor
from burnd.index.query_pool import TookTooLong
from burnd.pricing import UNITS_PER_USD, PriceTable, Tokens, terms_text
from burnd.pricing.cost import figure_of
from burnd.queries.guard import NextCall, Use, uses
from burnd.queries.names import Project, future_project, no_such_session, resolve_stamp_sessions, row_of
from burnd.queries.sessions import list_stamps, time_of, unknown_keys
from burnd.queries.spending import budget_uses
from burnd.queries.view import Refusal, View
from burnd.reclassify import reclassify
from burnd.recording.candidate import Batch
from burnd.records import Selector, Stamp, TimeRange, Turn
from burnd.records.session import ContentMode
from burnd.records.times import canonical, to_iso
from burnd.server.method import AnyMethod, Caller, LongMethod, Method, Result, query, with_progress
from burnd.server.service import Notice, Service, TurnEvent
from burnd.settings.config import described


async def flush(service: Service, params: FlushParams) -> Result:
    """Makes every source record all readable logs; the answer lists those that could not."""
    await service.until_open()
    await service.spool.drain()
    reasons: dict[str, str | None] = {}

    async def flush_one(source: SourceSupervisor) -> None:
        reasons[source.name] = await source.flush(params.session)

    async with anyio.create_task_group() as tasks:
        for source in service.sources.values():
            tasks.start_soon(flush_one, source)
    if service.spool.waiting:
        await service.spool.drain()  # stamps may name sessions that were just recorded
    sources: list[dict[str, object]] = []
    for name in service.sources:
        reason = reasons[name]
        because = {} if reason is None else {"reason": reason}
        sources.append({"name": name, "flushed": reason is None, **because})
    return {"flushed": all(reason is None for reason in reasons.values()), "sources": sources}


async def rebuild(service: Service, params: RebuildParams, caller: Caller) -> Result:
    """The old index is used until the new one is complete."""
    if params.index == params.reclassify:
        raise Refusal("set either index or reclassify", 'for example {"index": true}')
    pipeline = service.pipeline
    if pipeline.status.rebuilding is not None:
        raise Refusal("a rebuild is already running", "see the progress with: burnctl status")
    changed = 0
    async with with_progress(caller, lambda: pipeline.status.rebuilding):
        if params.index:
            await pipeline.rebuild_index()
        else:
            changed = await reclassify(pipeline, force=params.force)
    return {"rebuilt": "index" if params.index else "labels", "turns": changed}


async def show_config(service: Service, _params: ConfigParams) -> Result:
    """Settings that need a restart are as they were at the start."""
    return described(service.home, service.settings)


async def shutdown(service: Service, _params: ShutdownParams) -> Result:
    service.stop()
    return {"stopping": True}


async def list_methods(_service: Service, _params: MethodsParams) -> Result:
    return {
        "methods": [
            {
                "name": method.method,
                "about": method.about(),
                "params": [
                    {
                        "name": one.wire,
                        "type": one.type,
                        "required": one.is_required,
                        "default": None if one.is_required else one.default,
                        "choices": [*one.choices, *filter(None, [one.others])],
                        "about": one.help,
                    }
                    for one in method.params.values()
                ],
                "errors": list(method.errors),
                "deadline": method.deadline,
                "progress": method.progress,
            }
            for method in methods().values()
        ]
    }


async def tail(service: Service, params: TailParams, caller: Caller) -> Result:
    """Answers at once, then notifies of each turn and each exceeded budget."""
    _ = service.pipeline  # raises NotNow
    project = None
    if (name := params.project) is not None:
        project = await service.ask(lambda view: future_project(view, name), project=name)
    with service.feed.following(lambda turn: is_wanted(turn, params, project)) as follower:
        await caller.answer({"following": True})
        for budget in await _exceeded_budgets(service):
            await caller.notify("tail", {"version": protocol.VERSION, "missed": 0, "budget": budget})
        while True:
            events, missed = await follower.take()
            prices = service.prices.table
            for event in events:
                await caller.notify("tail", shown(event, prices, missed))
                missed = 0


def is_wanted(turn: Turn, params: TailParams, project: Project | None) -> bool:
    if params.session not in (None, turn.session_id) or params.source not in (None, turn.source):
        return False
    return project is None or project.covers(turn.project, turn.project_key)


async def _exceeded_budgets(service: Service) -> list[dict[str, Any]]:
    """Empty while the index cannot be queried."""
    budgets = service.settings.budgets
    if not budgets:
        return []
    try:
        current = await service.ask(lambda view: budget_uses(view, budgets))
    except (NotNow, IndexDamaged, TookTooLong):
        return []
    return [standing.answer() for standing in current if standing.crossed]


def shown(event: TurnEvent | Notice, prices: PriceTable, missed: int) -> dict[str, Any]:
    """The parameters of a `tail` notification."""
    if isinstance(event, Notice):
        return {"version": protocol.VERSION, "missed": missed, **event.fields}
    turn, usage = event.turn, event.turn.usage
    tokens = Tokens(
        usage.input, usage.output, usage.reasoning, usage.cache_read, usage.cache_create_5m, usage.cache_create_1h
    )
    figure = figure_of(round((turn.stated_usd or 0) * UNITS_PER_USD), sum(tokens))
    terms = terms_text(turn.speed, turn.service_tier, turn.inference_geo, figure)
    return {
        "version": protocol.VERSION,
        "open": event.open,
        "missed": missed,
        "costUsd": prices.turn_usd(turn.model, turn.provider, tokens, terms=terms, searches=turn.searches),
        "turn": msgspec.to_builtins(turn),
    }


async def stamp(service: Service, params: StampParams) -> Result:
    """Durable when it returns."""
    if params.stamps is not None:
        if any(part is not None for part in (params.selector, params.enrichment, params.ts)):
            raise Refusal("with stamps, give selector, enrichment and ts in each of them")
        requests = params.stamps
    elif params.selector is None or params.enrichment is None:
        raise Refusal("a stamp needs a selector and an enrichment", 'for several: {"stamps": [...]}')
    else:
        requests = [OneStamp(selector=params.selector, enrichment=params.enrichment, ts=params.ts)]
    now = to_iso(service.now())
    stamps = [_as_stamp(one, now, n if params.stamps else None) for n, one in enumerate(requests)]
    stamps = await _for_known_sessions(service, stamps)
    new = await service.pipeline.commit(Batch(entries=list(stamps)))
    return {"stamped": len(stamps), "new": new}


async def remove_stamps(service: Service, params: RemoveStampsParams) -> Result:
    """Durable when it returns. Reads the spool first: the stamp that set a key may be there."""
    if not params.keys:
        raise Refusal("no key to remove", "name at least one in `keys`")
    keys = list(dict.fromkeys(params.keys))
    one = OneStamp(selector=params.selector, enrichment={}, removes=keys, ts=params.ts)
    removal = _as_stamp(one, to_iso(service.now()), None)
    await service.spool.drain()
    stamps = await _for_known_sessions(service, [removal])
    if unknown := await service.ask(lambda view: unknown_keys(view, keys), urgent=True):
        raise Refusal(f"no stamp has the key {unknown[0][:40]!r}", "nothing was removed; see: burnctl stamps list")
    new = await service.pipeline.commit(Batch(entries=list(stamps)))
    return {"removed": keys, "new": new}


async def _for_known_sessions(service: Service, stamps: list[Stamp]) -> list[Stamp]:
    """Completes session ids. Raises Refusal, or NotNow while the session may still be found."""
    names = {one.selector.session_id for one in stamps if one.selector.session_id is not None}
    backfill = service.backfill()
    sessions: dict[str, str] = {}
    answer = await service.ask(
        lambda view: resolve_stamp_sessions(view.db, names, is_growing=backfill.is_growing), urgent=True
    )
    for name, session_id in answer.items():
        if isinstance(session_id, Refusal):
            raise session_id
        if session_id is None and not backfill.done:
            raise NotNow("old logs are still being read, and none so far has the session", name, "try again later")
        if session_id is None:
            raise Refusal(no_such_session(name), "nothing was recorded; list sessions with: burnctl sessions")
        sessions[name] = session_id
    return [one.of_session(sessions.get(one.selector.session_id or "")) for one in stamps]


def _as_stamp(one: OneStamp, now: str, number: int | None) -> Stamp:
    """Canonical times make the same stamp the same line. Raises Refusal."""
    span = one.selector.range
    selector = Selector(
        session_id=one.selector.session_id,
        message_id=one.selector.message_id,
        range=TimeRange(from_ts=span.from_ts, to_ts=span.to_ts) if span else None,
    )
    removes = tuple(dict.fromkeys(one.removes))
    stamp = Stamp(ts=one.ts or now, selector=selector, enrichment=one.enrichment, removes=removes)
    if (problem := stamp.problem()) is not None:
        which = "" if number is None else f"stamp {number}: "
        raise Refusal(which + problem, "nothing was stamped" if number is not None else "")
    if span:
        within = TimeRange(from_ts=canonical(span.from_ts), to_ts=canonical(span.to_ts))
        selector = msgspec.structs.replace(selector, range=within)
    return msgspec.structs.replace(stamp, ts=canonical(stamp.ts), selector=selector)


async def announce_session(service: Service, params: AnnounceParams) -> Result:
    """In effect when it returns."""
    if not params.session_id:
        raise Refusal("sessionId is empty")
    if params.source not in BY_SOURCE:
        raise Refusal(f"unknown source {params.source!r}", f"one of: {', '.join(sorted(BY_SOURCE))}")
    if not all(map(os.path.isabs, params.roots)):
        raise Refusal("roots must be absolute paths")
    announcement = Announcement(
        params.session_id,
        params.source,
        service.now() if params.ts is None else time_of(params.ts, "ts"),
        cast("ContentMode | None", params.content_mode),
        tuple(dict.fromkeys(params.roots)),
        is_new=params.is_new,
    )
    await announce(service.pipeline, announcement)
    service.add_roots(announcement.source, list(announcement.roots))
    return {"sessionId": params.session_id, "contentMode": service.pipeline.modes.mode_of(params.session_id)}


async def read_spool(service: Service, params: SpoolParams) -> Result:
    drained = await service.spool.drain()
    claims: list[dict[str, str | None]] = [
        {"claim": name, "sessionId": session_id} for name, session_id in drained.claimed.items()
    ]
    claims += [{"claim": name, "sessionId": None} for name in drained.pending]
    if params.claim is not None:
        session_id = await claimed_by(service.pipeline.index, params.claim)
        claims = [{"claim": params.claim, "sessionId": session_id}]
    counts = {"stamps": drained.stamps, "announcements": drained.announcements, "bad": drained.bad}
    return {**counts, "claims": claims}


async def check_call(service: Service, params: CheckGuardParams) -> Result:
    """Must be quick: after a timeout the hook allows the call."""
    look = partial(service.ask, urgent=True)
    call = NextCall(params.tool, params.subject) if params.tool is not None else None
    return await service.guard.check(look, service.settings.guard_limits, params.session, params.source, call)


async def guard_status(service: Service, params: GuardStatusParams) -> Result:
    limits = service.settings.guard_limits

    def look(view: View) -> list[Use]:
        session = None if params.session is None else _session_id(view, params.session)
        by_key = {use.key: use for use in uses(view, limits, params.source, session)}
        return [by_key.get(key, Use(key, limit, None)) for key, limit in limits.items()]

    return service.guard.answer(await service.ask(look))


async def allow_session(service: Service, params: AllowParams) -> Result:
    # a session's first call may be denied before the session is recorded
    denied = {denial.session for denial in service.guard.denials if denial.session.startswith(params.session)}
    session = denied.pop() if len(denied) == 1 else await service.ask(lambda view: _session_id(view, params.session))
    until = 0 if params.seconds is None else service.now() + params.seconds * 1000
    await service.guard.allow(session, until)
    return {"sessionId": session, "until": to_iso(until) if until else None}


async def switch_guard(service: Service, params: SwitchGuardParams) -> Result:
    await service.guard.switch(is_off=not params.on)
    return {"on": params.on}


def _session_id(view: View, given: str) -> str:
    ((session_id,),) = view.rows("SELECT session_id FROM sessions WHERE id = ?", (row_of(view, given),))
    return str(session_id)


METHODS: tuple[AnyMethod, ...] = (
    Method(FlushParams, flush),
    LongMethod(RebuildParams, rebuild),
    Method(ConfigParams, show_config),
    Method(ShutdownParams, shutdown),
    Method(MethodsParams, list_methods),
    LongMethod(TailParams, tail),
    Method(StampParams, stamp),
    query(ListStampsParams, list_stamps),
    Method(RemoveStampsParams, remove_stamps),
    Method(AnnounceParams, announce_session),
    Method(SpoolParams, read_spool),
    Method(CheckGuardParams, check_call),
    Method(GuardStatusParams, guard_status),
    Method(AllowParams, allow_session),
    Method(SwitchGuardParams, switch_guard),
)
