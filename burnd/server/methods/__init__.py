"""Every method of the socket by its name. A module of methods has a table `METHODS`; it is added to the list here."""

from __future__ import annotations

from burnd.server.method import AnyMethod
from burnd.server.methods import content, daemon, limits, reasons, reports, sessions, stamps, status, tail

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
