"""What a person may have meant: the command or the session whose name is nearest to what was typed."""

from __future__ import annotations

from difflib import get_close_matches

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

# What other programs call it; by its letters alone nobody would guess it.
_CALLED_ELSEWHERE = {
    "start": "up",
    "stop": "down",
    "list": "sessions",
    "ls": "sessions",
    "find": "search",
    "grep": "search",
    "watch": "tail",
    "tag": "stamp",
    "report": "summary",
    "cost": "summary",
    "version": "--version",
}
_ALIKE = 0.6
_ANSWER_S = 2.0
_LOOKED_AT = 200  # the newest: an older one would hardly be typed by hand


def command(typed: str, verbs: Iterable[str]) -> str | None:
    """The verb that `typed` may have been meant for."""
    if typed in _CALLED_ELSEWHERE:
        return _CALLED_ELSEWHERE[typed]
    return next(iter(get_close_matches(typed, list(verbs), 1, _ALIKE)), None)


def session(typed: str) -> str | None:
    """A session that begins nearly so, as much of its id as may be typed, with what tells a person which it is."""
    import time

    from burnctl.client import Client
    from burnctl.errors import BurnctlError
    from burnctl.render.names import enough_of_id
    from burnctl.render.numbers import ago
    from burnctl.render.text import clean, cut

    try:
        with Client(timeout=_ANSWER_S) as client:
            listed = client.sessions_list(limit=_LOOKED_AT)["sessions"]
    except BurnctlError:
        return None
    fronts = {one["sessionId"][: len(typed)]: one for one in reversed(listed)}  # of those alike, the newest
    near = get_close_matches(typed, list(fronts), 1, _ALIKE)
    if not near:
        return None
    found = fronts[near[0]]
    about = [cut(clean(found["title"] or ""), 40), ago(found["updatedAt"], time.time() * 1000)]
    return f"{enough_of_id(found)} ({', '.join(filter(None, about))})"
