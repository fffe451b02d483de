"""The lag of each push target, from the notes in the home. Imports little: `burnctl status` needs it."""

from __future__ import annotations

import os
import time

from burnctl import quick_json
from burnctl.errors import BurnctlError
from burnd.paths import home_folder

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from burnctl.client import Client


def state_folder() -> str:
    return os.path.join(home_folder(), "push")


def states() -> list[dict[str, Any]]:
    """Every target that this home has pushed to, with the last success and error."""
    try:
        names = sorted(os.listdir(state_folder()))
    except OSError:
        return []
    notes = [_read(os.path.join(state_folder(), name)) for name in names if name.endswith(".json")]
    return [note for note in notes if isinstance(note, dict) and isinstance(note.get("target"), str)]


def _read(path: str) -> Any:
    try:
        with open(path, "rb") as file:
            return quick_json.loads(file.read())
    except (OSError, ValueError):
        return None


def behind(client: Client) -> list[dict[str, Any]]:
    """Every target with the number of sessions that changed since its last push; None if the daemon cannot say."""
    from burnd.contract.reports import ChangesParams

    targets = []
    for state in states():
        try:
            left = client.ask(ChangesParams, {"cursor": state.get("cursor"), "limit": 0})["left"]
        except (BurnctlError, KeyError):
            left = None
        at, error = state.get("at"), state.get("error") or None
        targets.append({"target": state["target"], "at": at, "sessionsBehind": left, "error": error})
    return targets


def seconds_since(at: str | None) -> float | None:
    """The age of a time such as `2026-11-17T14:30:00Z`; None if there is none."""
    text = at or ""
    try:
        year, month, day, hour, minute, second = (
            int(text[begin:end]) for begin, end in ((0, 4), (5, 7), (8, 10), (11, 13), (14, 16), (17, 19))
        )
    except ValueError:
        return None
    # Days since 1970-01-01, with years that begin in March; `strptime` would import `re` and `datetime`.
    year, month = (year, month - 3) if month > 2 else (year - 1, month + 9)
    days = 365 * year + year // 4 - year // 100 + year // 400 + (153 * month + 2) // 5 + day - 719_469
    return max(0.0, time.time() - (days * 86_400 + hour * 3600 + minute * 60 + second))
