"""The sentence for a report without a row: the time it was asked for, and the age of the last request."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse

    from burnctl.client import Client

_UNITS = {"m": ("minute", "min"), "h": ("hour", "h"), "d": ("day", "days"), "w": ("week", "weeks")}
_FILTERS = (
    "project",
    "session",
    "workflow",
    "agent",
    "tags",
    "source",
    "model",
    "provider",
    "branch",
    "activity",
    "version",
)


def no_matches(client: Client, options: argparse.Namespace, lead: str = "") -> str:
    """One sentence: `lead`, or else that there are no requests; for a time that was asked for also the last one."""
    newest, when = client.summary(limit=1)["newest"], _when(options)
    if newest is None:
        # A session without an answered request has no turns, but can be listed and searched.
        if lead and client.sessions_list(limit=1)["sessions"]:
            return f"{lead}{when}."
        return "Nothing is recorded yet. `burnctl status` shows what burnd is reading."
    import time

    from burnctl.render.numbers import ago

    age = ago(newest, time.time() * 1000)
    if not lead:
        is_filtered = any(getattr(options, name, None) for name in _FILTERS)
        return f"{'No requests match' if is_filtered else 'No requests'}{when}; the last one of all was {age}."
    return f"{lead}{when}; the last request was {age}." if when else f"{lead}."


def _when(options: argparse.Namespace) -> str:
    since, until = (getattr(options, name, None) for name in ("since", "until"))
    if since and until:
        return f" from {since} to {until}"
    if until:
        return f" up to {until}"
    if not since:
        return ""
    count, unit = since[:-1], since[-1:]
    if not count.isdecimal() or unit not in _UNITS:
        return f" {since}" if since == "today" else f" since {since}"
    return f" in the last {_UNITS[unit][0] if count == '1' else f'{count} {_UNITS[unit][1]}'}"
