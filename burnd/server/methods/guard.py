"""Methods of the guard: a hook's question before a tool call, and the user's choices."""

from __future__ import annotations

from functools import partial

from burnd.contract.daemon import AllowParams, CheckGuardParams, GuardStatusParams, SwitchGuardParams
from burnd.queries.guard import NextCall, Use, uses
from burnd.queries.names import row_of
from burnd.queries.view import View
from burnd.records.times import to_iso
from burnd.server.method import AnyMethod, Method, Result
from burnd.server.service import Service


async def check(service: Service, params: CheckGuardParams) -> Result:
    """Waits for no long question: without an answer in time the hook allows the call."""
    look = partial(service.ask, urgent=True)
    call = NextCall(params.tool, params.subject) if params.tool is not None else None
    return await service.guard.check(look, service.settings.guard_limits, params.session, params.source, call)


async def status(service: Service, params: GuardStatusParams) -> Result:
    """Limits with what is used of them; those of sessions only if one is given."""
    limits = service.settings.guard_limits

    def look(view: View) -> list[Use]:
        session = None if params.session is None else _id(view, params.session)
        by_key = {use.key: use for use in uses(view, limits, params.source, session)}
        return [by_key.get(key, Use(key, limit, None)) for key, limit in limits.items()]

    return service.guard.answer(await service.ask(look))


async def allow(service: Service, params: AllowParams) -> Result:
    # The first call of a session may be denied before the session is recorded.
    denied = {denial.session for denial in service.guard.denials if denial.session.startswith(params.session)}
    session = denied.pop() if len(denied) == 1 else await service.ask(lambda view: _id(view, params.session))
    until = 0 if params.seconds is None else service.now() + params.seconds * 1000
    await service.guard.allow(session, until)
    return {"sessionId": session, "until": to_iso(until) if until else None}


async def switch(service: Service, params: SwitchGuardParams) -> Result:
    await service.guard.switch(is_off=not params.on)
    return {"on": params.on}


def _id(view: View, given: str) -> str:
    """The whole id of the session that a client named."""
    ((session_id,),) = view.rows("SELECT session_id FROM sessions WHERE id = ?", (row_of(view, given),))
    return str(session_id)


METHODS: tuple[AnyMethod, ...] = (
    Method(CheckGuardParams, check),
    Method(GuardStatusParams, status),
    Method(AllowParams, allow),
    Method(SwitchGuardParams, switch),
)
