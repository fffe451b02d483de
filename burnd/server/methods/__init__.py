"""Every method of the socket by its name. A module of methods has a table `METHODS`; it is added to the list here."""

from __future__ import annotations

from burnd.server.method import AnyMethod, with_backfill
from burnd.server.methods import content, daemon, limits, reasons, reports, sessions, stamps, status, tail

_BACKFILL = (  # methods whose answers depend on which logs have been read
    "summary",
    "compare",
    "export",
    "why",
    "hotspots",
    "by_tool",
    "waste",
    "overhead",
    "flow",
    "limits",
    "statusline",
    "sessions.list",
    "sessions.meta",
    "sessions.messages",
    "sessions.search",
    "search_memory",
    "content.read",
)

METHODS: dict[str, AnyMethod] = {
    **status.METHODS,
    **daemon.METHODS,
    **stamps.METHODS,
    **tail.METHODS,
    **content.METHODS,
    **sessions.METHODS,
    **reports.METHODS,
    **reasons.METHODS,
    **limits.METHODS,
}
METHODS |= {name: with_backfill(METHODS[name]) for name in _BACKFILL}
