"""`burnctl sessions`: lists sessions, the newest or the costliest first."""

from __future__ import annotations

import time

from burnctl import flags
from burnctl.daemon import reach
from burnctl.output import present
from burnctl.render.names import enough_of_id, harness_name, last_name
from burnctl.render.numbers import ago, count, money
from burnctl.render.tables import Column, table, weight_style
from burnd.contract import Params, param
from burnd.contract.sessions import MOST_SESSIONS, ListParams

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping
    from typing import Any

    from burnctl.client import Client
    from burnctl.render.screen import Screen

HELP = (
    "lists sessions with their titles, the newest first: when they were last written, their project, messages and cost "
    "at API list prices. The ids can be typed as they are shown in `burnctl show`, `why` and `resume`"
)
EXAMPLES = (
    "burnctl sessions --project .",
    "burnctl sessions --sort cost --since 7d",
    "burnctl sessions --source opencode --csv",
    "burnctl sessions --gone",
)
_USUAL = 30
_FLAT = (
    *("sessionId", "source", "project", "agent", "title", "createdAt", "updatedAt", "messageCount"),
    *("turns", "costUsd", "parentSessionId", "goneAt", "goneBy"),
)


class SessionsFlags(Params):
    sort: str = param(default="time", help="the order: last written, or most expensive", choices=("time", "cost"))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    flags.add(parser, ListParams, SessionsFlags, usual={"limit": _USUAL})
    flags.reading_rows(parser)
    flags.add(parser, flags.Scan)
    parser.set_defaults(limit=_USUAL)


def run(options: argparse.Namespace) -> int:
    params = flags.given(options, ListParams)
    client = reach(options, totals=True)
    by_cost = options.sort == "cost"
    answer = _costliest(client, params) if by_cost else client.ask(ListParams, {**params, "costs": True})

    def draw(answer: dict[str, Any], screen: Screen) -> str:
        return drawn(answer, screen, time.time() * 1000)

    empty = "No session has lost its log" if options.gone else "No sessions"
    return present(options, answer, draw, rows=flat_rows, client=client, empty=empty, what="Results")


def _costliest(client: Client, chosen: dict[str, Any]) -> dict[str, Any]:
    sessions: list[dict[str, Any]] = []
    page: dict[str, Any] = {"next": None}
    while not sessions or page.get("next"):
        page = client.ask(ListParams, {**chosen, "limit": MOST_SESSIONS, "next": page["next"], "costs": True})
        sessions += page["sessions"]
        if not page["sessions"]:
            break
    sessions.sort(key=lambda session: -(session.get("costUsd") or 0))
    limit = chosen["limit"]
    rest = {name: value for name, value in page.items() if name != "next"}
    return rest | {"sessions": sessions[:limit], "more": max(len(sessions) - limit, 0)}


def drawn(answer: Mapping[str, Any], screen: Screen, now: float) -> str:
    sessions = answer["sessions"]
    if not sessions:
        return ""
    if answer.get("next"):
        limit = 2 * len(sessions)
        screen.hint(f"more: --limit {limit}" if limit <= MOST_SESSIONS else f"more: --next {answer['next']}")
    if answer.get("more"):
        screen.hint(f"{count(answer['more'])} more: --limit {len(sessions) + answer['more']}")
    if gone := answer.get("gone"):
        unknown = count(gone["unexplained"])
        screen.footnote(f"Logs that are gone: {count(gone['count'])}, of which no clean-up explains {unknown}.")
        screen.hint("burnctl restore SESSION writes a log again")
    if figures := [session["harnessCostUsd"] for session in sessions if session.get("harnessCostUsd") is not None]:
        screen.footnote(f"{money(sum(figures))} is the harness's own figure: no price list has its models.")
    most = max((session.get("costUsd") or 0 for session in sessions), default=0)
    columns = (
        Column("session", style="cyan"),
        Column("last written", style="dim", drop=1),
        Column("project", least=8, drop=2),
        Column("harness", drop=4, style="dim"),
        Column("log gone", style="yellow"),
        Column("agent", drop=5, style="dim"),
        Column("messages", "right", drop=3),
        Column("cost", "right"),
        Column("title", least=20),
    )
    rows: list[list[object]] = [
        [
            enough_of_id(session),
            ago(session["updatedAt"], now),
            last_name(session["project"]),
            harness_name(session["source"]),
            _gone(session, now),
            session["agent"],
            count(session["messageCount"]) if session["messageCount"] else "",
            (money(session.get("costUsd")), weight_style(session.get("costUsd"), most)),
            name_of(session),
        ]
        for session in sessions
    ]
    return table(columns, rows, screen)


def _gone(session: Mapping[str, Any], now: float) -> str:
    if not session.get("goneAt"):
        return ""
    return f"{ago(session['goneAt'], now)}, {'cleaned up' if session['goneBy'] == 'clean-up' else 'unexplained'}"


def name_of(session: Mapping[str, Any]) -> object:
    """The title or summary; a dim note if content was pruned."""
    if session["title"]:
        return session["title"]
    if session.get("summary"):
        return session["summary"]
    return ("content pruned", "dim") if session.get("content") == "pruned" else ""


def flat_rows(answer: dict[str, Any]) -> list[dict[str, Any]]:
    return [{name: session.get(name) for name in _FLAT} for session in answer["sessions"]]
