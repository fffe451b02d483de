"""Finds a session by the start of its id, a part of its title, the folder, or its cost."""

from __future__ import annotations

from burnctl import flags
from burnctl.errors import BurnctlError, Failed
from burnd import protocol
from burnd.contract import Params, param
from burnd.paths import working_folder

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterator

    from burnctl.client import Client
    from burnd.contract.results.sessions import SessionRow

_PAGE, _PAGES = 200, 10
_LISTED = 5


class SessionFlags(Params):
    session: str | None = param(
        default=None,
        help="the start of an id or a part of a title; by default the last session of this folder, else the last one",
        kind="session",
        flag="",
    )
    last: bool = param(default=False, help="the session that was active last, in any folder")
    costliest: bool = param(default=False, help="the most expensive session of all")


def add_session(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments that choose one session, for `chosen_session`."""
    flags.place(parser, SessionFlags, "session", nargs="?")
    flags.add(parser.add_mutually_exclusive_group(), SessionFlags)


def chosen_session(client: Client, given: argparse.Namespace) -> str:
    """The id of the chosen session. Raises BurnctlError for an unknown one."""
    if given.session is not None:
        if given.last or given.costliest:
            from burnctl.errors import UsageError

            flag = "--last" if given.last else "--costliest"
            raise UsageError(f"SESSION and {flag} both choose a session", "leave one of them out")
        return find_session(client, given.session)
    if given.costliest:
        ids = [row["key"] for row in client.summary(by="session", limit=1)["rows"] if row["key"]]
    else:
        sessions = [] if given.last else _last(client, working_folder())
        ids = [one["sessionId"] for one in sessions or _last(client, None)]
    if not ids:
        raise BurnctlError("no session is recorded yet", "burnctl status shows what burnd reads")
    return ids[0]


def find_session(client: Client, given: str) -> str:
    """The id that begins so, or else of the only session with this in its title."""
    try:
        return str(client.sessions_meta(given)["sessionId"])
    except Failed as error:
        if error.code == protocol.NO_SUCH_METHOD:
            return given
        if error.code != protocol.NOT_FOUND:
            raise
        sessions = [one for one in _titled(client) if given.casefold() in str(one["title"]).casefold()]
        if not sessions:
            from burnctl import suggestions

            near = suggestions.session(given)
            hint = f"did you mean: {near}" if near else "burnctl sessions lists them"
            raise BurnctlError(f"no session has an id or a title with {given[:80]!r}", hint) from None
    if len(sessions) > 1:
        from burnctl.render.names import enough_of_id
        from burnctl.render.text import clean, cut

        names = ", ".join(f"{enough_of_id(one)} ({cut(clean(one['title']), 40)})" for one in sessions[:_LISTED])
        more = f" and {len(sessions) - _LISTED:,} more" if len(sessions) > _LISTED else ""
        raise BurnctlError(
            f"{len(sessions):,} sessions have {given[:80]!r} in their title", f"use an id: {names}{more}"
        )
    return str(sessions[0]["sessionId"])


def whole_id(client: Client, given: str | None, unknown: Callable[[str], None] | None = None) -> str | None:
    """The id that begins so. Raises Failed if several do.

    An unknown one is returned as it is, and passed to `unknown`.
    """
    if not given:
        return given
    try:
        return str(client.sessions_meta(given)["sessionId"])
    except Failed as error:
        if error.code not in (protocol.NOT_FOUND, protocol.NO_SUCH_METHOD):
            raise
        if unknown is not None and error.code == protocol.NOT_FOUND:
            unknown(given)
        return given


def _last(client: Client, project: str | None) -> list[SessionRow]:
    """The last active sessions, without those that another session started."""
    try:
        sessions = client.sessions_list(project=project, limit=20)["sessions"]
    except Failed as error:
        if project is None or error.code != protocol.NOT_FOUND:
            raise
        return []
    return [one for one in sessions if not one["parentSessionId"]] or sessions


def _titled(client: Client) -> Iterator[SessionRow]:
    """The sessions with this in their title, the last active first."""
    place = None
    for _ in range(_PAGES):
        page = client.sessions_list(limit=_PAGE, next=place)
        yield from (one for one in page["sessions"] if one["title"])
        place = page.get("next")
        if place is None:
            return
