"""`python -m burnd.settings.command`: what `burnctl config` hands over, since only burnd knows its settings."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any

from burnd import protocol
from burnd.errors import BurndError
from burnd.paths import Home, find_home
from burnd.settings import config
from burnd.settings.editing import set_value
from burnd.settings.shown import shown


def main(arguments: Sequence[str] | None = None) -> int:
    """Does `init`, `show`, `set KEY VALUE` or `path`, and prints what came of it as one JSON object."""
    action, *words = sys.argv[1:] if arguments is None else arguments
    try:
        said = _ACTIONS[action](find_home(), *words)
    except (BurndError, ValueError, OSError) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    sys.stdout.write(json.dumps({"version": protocol.VERSION, **said}) + "\n")
    return 0


def _path(home: Home) -> dict[str, Any]:
    return {"path": str(home.config)}


def _init(home: Home) -> dict[str, Any]:
    return {"path": str(config.init(home))}


def _set(home: Home, name: str, text: str) -> dict[str, Any]:
    change = set_value(home, name, text)
    overruled = change.key.env if os.environ.get(change.key.env) else None
    return {
        "path": str(home.config),
        "key": change.key.name,
        "before": change.before,
        "value": change.value,
        "overruledBy": overruled,
        "note": _note(home, change.key.name),
    }


def _note(home: Home, name: str) -> str:
    """What else has to be set, for a currency without its rate or a rate without its currency."""
    values = config.load(home).values
    code, rate = values["display.currency"], values["display.rate"]
    if name == "display.currency" and code != "USD" and not rate:
        return f"give its rate too, so many {code} for a dollar: burnctl config set rate 0.92"
    if name == "display.rate" and rate and code == "USD":
        return "give the currency too: burnctl config set currency EUR"
    return ""


def _show(home: Home) -> dict[str, Any]:
    """What holds for a daemon that would be started from here and now."""
    return shown(home, config.load(home))


_ACTIONS: dict[str, Callable[..., dict[str, Any]]] = {"init": _init, "show": _show, "set": _set, "path": _path}

if __name__ == "__main__":
    sys.exit(main())
