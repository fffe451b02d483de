"""The handlers of all methods by name. A module of methods has a tuple `METHODS`, which is added here."""

from __future__ import annotations

from burnd.server.method import AnyMethod
from burnd.server.methods import content, daemon, limits, reasons, reports, sessions, stamps, status, tail

_MODULES = (status, daemon, stamps, tail, content, sessions, reports, reasons, limits)

METHODS: dict[str, AnyMethod] = {handler.params.method: handler for module in _MODULES for handler in module.METHODS}
