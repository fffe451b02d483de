"""Notes in the home about each push target: `push/NAME.json` with the last success and error, and a lock beside it.

Imports little at its top: `burnctl status` needs it.
"""

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


def absolute(url: str) -> str:
    return url if "://" in url else os.path.abspath(os.path.expanduser(url))


def state_file(url: str) -> str:
    import hashlib

    return os.path.join(state_folder(), f"{hashlib.sha256(absolute(url).encode()).hexdigest()[:16]}.json")


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


def write_state(url: str, feed: str | None, *, error: str = "") -> None:
    """Notes a success, or an error beside the last success. A note that cannot be written does not stop the push."""
    path = state_file(url)
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    state: dict[str, Any] = {"target": absolute(url), "cursor": feed, "at": None, "error": "", "errorAt": None}
    before = _read(path)
    state |= before if isinstance(before, dict) else {}
    state |= {"error": error, "errorAt": now} if error else {"cursor": feed, "at": now, "error": "", "errorAt": None}
    try:
        os.makedirs(state_folder(), mode=0o700, exist_ok=True)
        fd = os.open(f"{path}.part", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with open(fd, "w", encoding="utf-8") as file:
            file.write(quick_json.dumps(state))
        os.replace(f"{path}.part", path)
    except OSError:
        pass


class locked:  # noqa: N801 - used like a function, without contextlib, which status must not import
    """Locks the target against a second push of this home. The kernel releases the lock when the process ends."""

    def __init__(self, url: str) -> None:
        self._url, self._fd = url, -1

    def __enter__(self) -> None:
        import fcntl

        path = state_file(self._url).removesuffix(".json") + ".lock"
        try:
            os.makedirs(state_folder(), mode=0o700, exist_ok=True)
            self._fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise BurnctlError(f"{path}: {error.strerror}", "a push needs to write to the home") from None
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(self._fd)
            raise BurnctlError(f"another push to {self._url} is running", "wait for it, or stop it") from None

    def __exit__(self, *_: object) -> None:
        os.close(self._fd)


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
