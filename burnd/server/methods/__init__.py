"""The handlers of all methods by name."""

from __future__ import annotations

from burnd.server.method import AnyMethod
from burnd.server.methods import daemon, reports, sessions, status

_MODULES = (status, daemon, sessions, reports)

METHODS: dict[str, AnyMethod] = {handler.params.method: handler for module in _MODULES for handler in module.METHODS}
