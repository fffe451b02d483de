"""`Client`: the connection to burnd behind every command and every Python program.

Its methods are those of `burnd.contract`, with parameters in snake_case. Answers are the dicts of the socket, typed in
`burnd.contract.results`. Errors are those of `burnctl.errors`.
"""

from __future__ import annotations

import time

from burnctl.connection import Wire
from burnctl.errors import Failed, NotRunning
from burnd import protocol
from burnd.contract import DEADLINE_S, LONG_S

TYPE_CHECKING = False
if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from types import TracebackType
    from typing import Any, Generic, ParamSpec, Protocol, Self, TypeVar

    from burnd.contract import Params, daemon, reports, sessions
    from burnd.contract.results.daemon import TailEvent

    P = ParamSpec("P")
    R_co = TypeVar("R_co", covariant=True)

    class _Answered(Protocol[R_co]):
        @property
        def answer(self) -> R_co: ...

    class Method(Generic[P, R_co]):
        def __init__(self, params: Callable[P, _Answered[R_co]]) -> None: ...

        def __get__(self, client: object, owner: object = None) -> Callable[P, R_co]: ...

    class MethodTable:
        """The methods of the socket for type checkers."""

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
        changes = Method(reports.ChangesParams)
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
        sessions_recording = Method(sessions.RecordingParams)
        content_prune = Method(sessions.PruneParams)
        content_forget = Method(sessions.ForgetParams)

        # `Client` has its own `stamp` and `stamps_remove`, which spool if burnd is down.

else:

    class MethodTable:
        """Every method of the socket by its name, with `_` for a dot; loads the table when needed."""

        def __getattr__(self, name):
            params = _params_of(name)
            if params is None:
                raise AttributeError(f"burnd has no method {name!r}")
            return lambda *values, **given: self.ask(params, _named(params, values) | given)


def _params_of(name: str) -> type[Params] | None:
    from burnd.contract import METHODS

    for module in (".reports", ".sessions", ".daemon"):
        __import__(f"burnd.contract{module}")
        for method, params in METHODS.items():
            if method.replace(".", "_") == name:
                return params
    return None


def _named(params: type[Params], values: tuple[Any, ...]) -> dict[str, Any]:
    """Maps positional arguments to the required parameters, in order."""
    required = [name for name, one in params.params.items() if one.is_required]
    if len(values) > len(required):
        raise TypeError(f"{params.method} takes {len(required)} arguments without a name")
    return dict(zip(required, values, strict=False))


def sent(method: type[Params], given: Mapping[str, Any]) -> dict[str, Any]:
    if unknown := given.keys() - method.params.keys():
        raise TypeError(f"{method.method} has no parameter {min(unknown)!r}")
    return {method.params[name].wire: value for name, value in given.items() if value is not None}


TIMEOUT_S = 30.0
_PAUSE_S = 0.1


class Client(MethodTable):
    """A connection to burnd, opened by the first request. Use it from one thread, and close it or use `with`.

    Without a `socket_path` it connects to `$BURND_SOCKET` or to the home. `timeout` is for each answer, in seconds; a
    busy burnd is asked again for `patience` seconds. Methods have their names: `client.sessions_list(limit=5)`.
    """

    def __init__(
        self,
        socket_path: str | os.PathLike[str] | None = None,
        *,
        timeout: float = TIMEOUT_S,
        patience: float = 0.0,
    ) -> None:
        self._path = socket_path
        self._timeout = timeout
        self._patience = patience
        self._wire: Wire | None = None
        self.progress: Callable[[dict[str, Any]], None] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Closes the connection; the next request opens a new one."""
        if self._wire is not None:
            self._wire.close()
            self._wire = None

    def connect(self, wait: float = 0.0) -> None:
        """Connects now. Raises NotRunning if no daemon listens within `wait` seconds."""
        if self._wire is not None and not self._wire.usable():
            self.close()
        deadline = time.monotonic() + wait
        while self._wire is None:
            try:
                self._wire = Wire(self.socket_path, self._timeout)
            except NotRunning:
                if time.monotonic() >= deadline:
                    raise
                time.sleep(0.02)

    @property
    def socket_path(self) -> str:
        if self._path is None:
            from burnd.paths import home_folder, socket_file

            try:
                self._path = socket_file(home_folder())
            except ValueError as error:
                raise NotRunning(str(error), "") from None
        return str(self._path)

    def ask(self, method: type[Params], given: Mapping[str, Any]) -> dict[str, Any]:
        """Calls a method; a parameter of None is left out.

        Progress is passed to `progress`, if that is set: `{"done": ..., "total": ...}`.
        """
        timeout = self._timeout if method.deadline == DEADLINE_S or method.method == "tail" else LONG_S + 10
        return self.call(method.method, sent(method, given), timeout=timeout)

    def call(
        self, method: str, params: Mapping[str, Any] | None = None, *, timeout: float | None = None
    ) -> dict[str, Any]:
        """Sends one request, with parameters as docs/protocol.md names them, and returns the answer."""
        until = time.monotonic() + self._patience
        while True:
            try:
                seconds = self._timeout if timeout is None else timeout
                self.connect()
                assert self._wire is not None  # noqa: S101 - what connect() promises
                return self._wire.ask(method, params or {}, seconds, self.progress)
            except BaseException as error:
                # A late answer must not be taken for the answer to the next request.
                self.close()
                busy = isinstance(error, Failed) and error.code == protocol.NOT_NOW
                if not busy or time.monotonic() >= until:
                    raise
            time.sleep(_PAUSE_S)

    def stream(self, method: str, params: Mapping[str, Any] | None = None) -> Iterator[Any]:
        """Subscribes now, and yields what burnd sends until it ends the connection (then raises NoAnswer)."""
        self.call(method, params)
        return self._events(method)

    def _events(self, method: str) -> Iterator[dict[str, Any]]:
        wire = self._wire
        try:
            while wire is not None:
                event = wire.receive(None)
                if event is not None and event.get("method") == method:
                    yield event.get("params") or {}
        finally:
            self.close()

    def tail(
        self, *, session: str | None = None, project: str | None = None, source: str | None = None
    ) -> Iterator[TailEvent]:
        """Yields turns as they are recorded, until the connection ends (then raises NoAnswer)."""
        arguments = {"session": session, "project": project, "source": source}
        return self.stream("tail", {name: value for name, value in arguments.items() if value is not None})

    def stamp(
        self,
        *,
        session: str | None = None,
        message: str | None = None,
        from_ts: str | None = None,
        to_ts: str | None = None,
        **tags: str,
    ) -> dict[str, Any]:
        """Tags a session, one message, or a session's turns from `from_ts` to before `to_ts` (ISO times).

        Durable when it returns: the answer's `state` is `recorded` or `spooled`.
        """
        from burnctl import delivery, stamp_record

        result = stamp_record.made(stamp_record.selector_of(session, message, from_ts, to_ts), tags)
        return delivery.stamps(self, [result]).answer()

    def stamps_remove(
        self,
        *keys: str,
        session: str | None = None,
        message: str | None = None,
        from_ts: str | None = None,
        to_ts: str | None = None,
    ) -> dict[str, Any]:
        """Removes tags by their keys from the same turns that `stamp` selects.

        Durable when it returns.
        """
        from burnctl import delivery, stamp_record

        result = stamp_record.removal(stamp_record.selector_of(session, message, from_ts, to_ts), keys)
        return delivery.removal(self, result).answer() | {"removes": result["removes"]}

    def stamp_many(self, stamps: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
        """Makes many stamps, each in one of the forms that `burnctl stamp --stdin` takes: all of them, or none."""
        from burnctl import delivery, stamp_record

        return delivery.stamps(self, stamp_record.from_objects(stamps)).answer()
