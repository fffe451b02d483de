"""How sessions look in a list: one line each, with what tells a person which is which."""

from __future__ import annotations

from burnctl.render.names import enough_of_id, last_name
from burnctl.render.numbers import ago, money
from burnctl.render.paragraphs import dimmed
from burnctl.render.tables import Column, table

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from burnctl.render.screen import Screen

_COLUMNS = (
    Column("session", style="cyan"),
    Column("last written", style="dim", drop=1),
    Column("project", least=10, drop=2),
    Column("source", drop=4, style="dim"),
    Column("agent", drop=5, style="dim"),
    Column("messages", "right", drop=3),
    Column("cost", "right"),
    Column("title", least=20),
)


def listed(answer: Mapping[str, Any], screen: Screen, now: float) -> str:
    """The page of sessions that `sessions.list` gave; nothing where there are none."""
    sessions = answer["sessions"]
    if not sessions:
        return ""
    rows = [[enough_of_id(session), *_row(session, now)] for session in sessions]
    said = [n for n in range(len(_COLUMNS)) if any(row[n] for row in rows)]
    text = table([_COLUMNS[n] for n in said], [[row[n] for n in said] for row in rows], screen)
    if answer.get("next"):
        text += "\n" + dimmed(f"There are more: --limit, or --next {answer['next']}", screen)
    return text


def _row(session: Mapping[str, Any], now: float) -> list[object]:
    return [
        ago(session["updatedAt"], now),
        last_name(session["project"]),
        session["source"],
        session["agent"],
        _count(session["messageCount"]),
        money(session.get("costUsd")),
        name_of(session),
    ]


def _count(messages: int | None) -> object:
    return f"{messages:,}" if messages else messages


def name_of(session: Mapping[str, Any]) -> object:
    """What a session is called; why it has no name that could be shown, dimmed."""
    if session["title"]:
        return session["title"]
    if session.get("summary"):
        return session["summary"]
    return ("content pruned", "dim") if session.get("content") == "pruned" else ""
