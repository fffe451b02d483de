"""The methods of the socket as methods of the client, made from the table in `burnd.contract`.

Keyword arguments are the parameters in snake_case; those that are None are not sent. Answers are the dicts of the
socket, with their `version`; `burnd.contract.results` has their types. Errors are raised as `burnctl.errors`.
"""

from __future__ import annotations

from burnd.contract import daemon, reports, sessions

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from typing import Any, Generic, ParamSpec, Protocol, TypeVar

    from burnd.contract import Params
    from burnd.contract.results.daemon import TailEvent

    P = ParamSpec("P")
    R_co = TypeVar("R_co", covariant=True)

    class _Answered(Protocol[R_co]):
        @property
        def answer(self) -> R_co: ...

    class Method(Generic[P, R_co]):
        """A method with the parameters and the answer of the table."""

        def __init__(self, params: Callable[P, _Answered[R_co]]) -> None: ...

        def __get__(self, client: object, owner: object = None) -> Callable[P, R_co]: ...

else:

    class Method:
        """A method with the parameters of the table."""

        def __init__(self, params):
            self.params = params

        def __get__(self, client, owner=None):
            if client is None:
                return self
            return lambda *values, **given: client.ask(self.params, _named(self.params, values) | given)


def _named(params: type[Params], values: tuple[Any, ...]) -> dict[str, Any]:
    """Arguments without a name are the required parameters, in their order."""
    required = [name for name, one in params.params.items() if one.is_required]
    if len(values) > len(required):
        raise TypeError(f"{params.method} takes {len(required)} arguments without a name")
    return dict(zip(required, values, strict=False))


def sent(method: type[Params], given: Mapping[str, Any]) -> dict[str, Any]:
    """Parameters as the socket names them."""
    if unknown := given.keys() - method.params.keys():
        raise TypeError(f"{method.method} has no parameter {min(unknown)!r}")
    return {method.params[name].wire: value for name, value in given.items() if value is not None}


class Methods:
    """Every method of the socket but `stamp` and `stamps.remove`.

    The client itself has these: they must not be lost when burnd is down.
    """

    status = Method(daemon.StatusParams)
    methods = Method(daemon.MethodsParams)
    flush = Method(daemon.FlushParams)
    rebuild = Method(daemon.RebuildParams)
    config_show = Method(daemon.ConfigParams)
    shutdown = Method(daemon.ShutdownParams)
    stamps_list = Method(daemon.ListStampsParams)
    announce = Method(daemon.AnnounceParams)
    spool = Method(daemon.SpoolParams)
    guard_check = Method(daemon.CheckGuardParams)
    guard_status = Method(daemon.GuardStatusParams)
    guard_allow = Method(daemon.AllowParams)
    guard_switch = Method(daemon.SwitchGuardParams)

    summary = Method(reports.SummaryParams)
    compare = Method(reports.CompareParams)
    export = Method(reports.ExportParams)
    pricing_show = Method(reports.PricingParams)
    why = Method(reports.WhyParams)
    hotspots = Method(reports.HotspotsParams)
    by_tool = Method(reports.ByToolParams)
    waste = Method(reports.WasteParams)
    overhead = Method(reports.OverheadParams)
    flow = Method(reports.FlowParams)
    limits = Method(reports.LimitsParams)
    statusline = Method(reports.StatuslineParams)
    quota = Method(reports.QuotaParams)

    sessions_list = Method(sessions.ListParams)
    sessions_meta = Method(sessions.MetaParams)
    sessions_messages = Method(sessions.MessagesParams)
    sessions_search = Method(sessions.SearchParams)
    search_memory = Method(sessions.MemoryParams)
    sessions_new = Method(sessions.NewParams)
    sessions_append = Method(sessions.AppendParams)
    sessions_set = Method(sessions.SetParams)
    content_read = Method(sessions.ReadParams)
    content_prune = Method(sessions.PruneParams)
    content_forget = Method(sessions.ForgetParams)

    def tail(
        self, *, session: str | None = None, project: str | None = None, source: str | None = None
    ) -> Iterator[TailEvent]:
        """Yields turns as they are recorded, until the connection ends (then raises NoAnswer)."""
        given = {"session": session, "project": project, "source": source}
        return self.stream("tail", sent(daemon.TailParams, given))

    def stream(self, method: str, params: Mapping[str, Any]) -> Iterator[Any]:
        raise NotImplementedError
