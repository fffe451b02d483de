"""The daemon itself: its settings, recording everything at once, making the index anew, and the end."""

from __future__ import annotations

import anyio

from burnd.contract import Params, methods
from burnd.contract.daemon import ConfigParams, FlushParams, MethodsParams, RebuildParams, ShutdownParams
from burnd.harness.supervisor import SourceSupervisor
from burnd.queries.view import Refusal
from burnd.reclassify import reclassify
from burnd.server.method import AnyMethod, Caller, LongMethod, Method, Result, with_progress
from burnd.server.service import Service
from burnd.settings.shown import shown


async def flush(service: Service, params: FlushParams) -> Result:
    """Makes every source record all readable logs; the answer lists those that could not, with the reason.

    While the daemon is starting, the call waits until it is ready.
    """
    await service.until_open()
    await service.spool.drain()
    reasons: dict[str, str | None] = {}

    async def flush_one(kept: SourceSupervisor) -> None:
        reasons[kept.name] = await kept.flush(params.session)

    async with anyio.create_task_group() as tasks:
        for kept in service.sources.values():
            tasks.start_soon(flush_one, kept)
    if service.spool.waiting:
        await service.spool.drain()  # again: stamps may name sessions that were just recorded
    sources: list[dict[str, object]] = []
    for name in service.sources:
        reason = reasons[name]
        because = {} if reason is None else {"reason": reason}
        sources.append({"name": name, "flushed": reason is None, **because})
    return {"flushed": all(reason is None for reason in reasons.values()), "sources": sources}


async def rebuild(service: Service, params: RebuildParams, caller: Caller) -> Result:
    """Tells how far it has come; the old index answers until the new one is whole."""
    if params.index == params.reclassify:
        raise Refusal("say what to rebuild: index, or reclassify", 'for example {"index": true}')
    pipeline = service.pipeline
    if pipeline.status.rebuilding is not None:
        raise Refusal("a rebuild is under way already", "status says how far it is")
    changed = 0
    async with with_progress(caller, lambda: pipeline.status.rebuilding):
        if params.index:
            await pipeline.rebuild_index()
        else:
            changed = await reclassify(pipeline, force=params.force)
    return {"rebuilt": "index" if params.index else "labels", "turns": changed}


async def show_config(service: Service, _params: ConfigParams) -> Result:
    """The settings this daemon was started with."""
    return shown(service.home, service.settings)


async def shutdown(service: Service, _params: ShutdownParams) -> Result:
    service.stop()
    return {"stopping": True}


async def list_methods(_service: Service, _params: MethodsParams) -> Result:
    return {"methods": [_listed(method) for method in methods().values()]}


def _listed(method: type[Params]) -> dict[str, object]:
    return {
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


METHODS: tuple[AnyMethod, ...] = (
    Method(FlushParams, flush),
    LongMethod(RebuildParams, rebuild),
    Method(ConfigParams, show_config),
    Method(ShutdownParams, shutdown),
    Method(MethodsParams, list_methods),
)
