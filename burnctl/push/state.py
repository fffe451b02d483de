"""Notes in the home about each push target: `push/NAME.json` with the last success and error, and a lock beside it.

`push.lag` reads them for `status` and `doctor`. How to go on is decided by the cursor that the target has.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import time

from burnctl.errors import BurnctlError
from burnctl.push.lag import state_folder

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any


def state_file(url: str) -> str:
    """The file about a target, named by a hash of it: an URL is no file name."""
    return os.path.join(state_folder(), f"{hashlib.sha256(absolute(url).encode()).hexdigest()[:16]}.json")


def absolute(url: str) -> str:
    """The target from any working folder."""
    return url if "://" in url else os.path.abspath(os.path.expanduser(url))


def write_state(url: str, feed: str | None, *, error: str = "") -> None:
    """Notes a success, or an error beside the last success. Failing to write it is no reason to stop."""
    path = state_file(url)
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    state: dict[str, Any] = {"target": absolute(url), "cursor": feed, "at": None, "error": "", "errorAt": None}
    with contextlib.suppress(OSError, ValueError), open(path, encoding="utf-8") as file:
        state |= json.load(file)
    state |= {"error": error, "errorAt": now} if error else {"cursor": feed, "at": now, "error": "", "errorAt": None}
    with contextlib.suppress(OSError):
        os.makedirs(state_folder(), mode=0o700, exist_ok=True)
        fd = os.open(f"{path}.part", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with open(fd, "w", encoding="utf-8") as file:
            json.dump(state, file)
        os.replace(f"{path}.part", path)


@contextlib.contextmanager
def locked(url: str) -> Iterator[None]:
    """Keeps a second push to the same target from running. The kernel releases it when the process ends."""
    import fcntl

    path = state_file(url).removesuffix(".json") + ".lock"
    try:
        os.makedirs(state_folder(), mode=0o700, exist_ok=True)
        fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise BurnctlError(f"{path}: {error.strerror}", "a push needs to write to the home") from None
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise BurnctlError(f"another push to {url} is running", "wait for it, or stop it") from None
        yield
    finally:
        os.close(fd)
