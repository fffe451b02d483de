"""The settings as they are told: over the socket, and to `burnctl config show`, in the same shape."""

from __future__ import annotations

from typing import Any

from burnd.paths import Home
from burnd.settings.config import Settings
from burnd.settings.keys import KEYS, Key


def shown(home: Home, settings: Settings) -> dict[str, Any]:
    """Where the settings are, and each of them with where its value came from."""
    return {"path": str(home.config), "settings": [_setting(key, settings) for key in KEYS]}


def _setting(key: Key, settings: Settings) -> dict[str, Any]:
    return {
        "key": key.name,
        "value": settings.values[key.name],
        "default": key.default,
        "env": key.env or None,
        "fromEnv": key.name in settings.from_env,
        "says": key.says,
    }
