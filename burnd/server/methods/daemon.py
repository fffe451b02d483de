"""The daemon itself: its settings, recording everything at once, making the index anew, and the end."""

from __future__ import annotations

import anyio

from burnd.harness.supervisor import SourceSupervisor
from burnd.queries.view import Params, Refusal
from burnd.reclassify import reclassify
from burnd.server.method import LONG_S, AnyMethod, Caller, LongMethod, Method, NoParams, Result, telling
from burnd.server.service import Service
from burnd.settings.shown import shown


class FlushParams(Params, frozen=True):
    """Which session's open turns are to be settled; all of them unless one is named."""

    session: str | None = None


async def flush(service: Service, params: FlushParams) -> Result:
    """Makes every source record all readable logs; the answer lists those that could not, with the reason.

    While the daemon is starting, the call waits until it is ready.
    """
    await service.until_open()
    await service.spool.take_in()
    reasons: dict[str, str | None] = {}

    async def flush_one(kept: SourceSupervisor) -> None:
        reasons[kept.name] = await kept.flush(params.session)

    async with anyio.create_task_group() as tasks:
        for kept in service.sources.values():
            tasks.start_soon(flush_one, kept)
    if service.spool.waiting:
        await service.spool.take_in()  # again: stamps may name sessions that were just recorded
    sources: list[dict[str, object]] = []
    for name in service.sources:
        reason = reasons[name]
        because = {} if reason is None else {"reason": reason}
        sources.append({"name": name, "flushed": reason is None, **because})
    return {"flushed": all(reason is None for reason in reasons.values()), "sources": sources}


class RebuildParams(Params, frozen=True):
    """What is to be made anew: the index, or the labels of turns (with `force` also of those that have them)."""

    index: bool = False
    reclassify: bool = False
    force: bool = False


async def rebuild(service: Service, params: RebuildParams, caller: Caller) -> Result:
    """Tells how far it has come; the old index answers until the new one is whole."""
    if params.index == params.reclassify:
        raise Refusal("say what to rebuild: index, or reclassify", 'for example {"index": true}')
    pipeline = service.pipeline
    if pipeline.status.rebuilding is not None:
        raise Refusal("a rebuild is under way already", "status says how far it is")
    changed = 0
    async with telling(caller, lambda: pipeline.status.rebuilding):
        if params.index:
            await pipeline.rebuild_index()
        else:
            changed = (await reclassify(pipeline, force=params.force)).turns
    return {"rebuilt": "index" if params.index else "labels", "turns": changed}


async def show_config(service: Service, _params: NoParams) -> Result:
    """The settings this daemon was started with."""
    return shown(service.home, service.settings)


async def shutdown(service: Service, _params: NoParams) -> Result:
    service.stop()
    return {"stopping": True}


METHODS: dict[str, AnyMethod] = {
    "flush": Method(FlushParams, flush, within=LONG_S),
    "rebuild": LongMethod(RebuildParams, rebuild, within=None),
    "config.show": Method(NoParams, show_config),
    "shutdown": Method(NoParams, shutdown),
}
