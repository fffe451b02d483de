"""What a person reads where nothing matches: in which time there is nothing, and how old the newest turn is."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse

    from burnctl.client import Client

_UNITS = {"m": ("minute", "min"), "h": ("hour", "h"), "d": ("day", "days"), "w": ("week", "weeks")}
_TIMES = ("since", "until")
_NARROWING = ("project", "session", "workflow", "agent", "tag", "source", "model", "provider", "branch", "activity")


def no_matches(client: Client, options: argparse.Namespace, lead: str = "") -> str:
    """One sentence: `lead`, or else that there are no turns; and where that is for the time asked for, the newest."""
    newest, when = client.summary(limit=1)["newest"], _when(options)
    if newest is None:
        # A session without an answered request has no turns, but can be listed and searched.
        if lead and client.sessions_list(limit=1)["sessions"]:
            return f"{lead}{when}."
        return "No turns are recorded yet. `burnctl status` says what burnd is reading."
    import time

    from burnctl.render.numbers import ago

    age = ago(newest, time.time() * 1000)
    if not lead:
        return f"{'No turns match' if _is_narrowed(options) else 'No turns'}{when}; the newest of all is from {age}."
    return f"{lead}{when}; the newest turn is from {age}." if when else f"{lead}."


def _is_narrowed(options: argparse.Namespace) -> bool:
    """Whether something else than the time was asked for."""
    return any(getattr(options, name, None) for name in _NARROWING)


def _when(options: argparse.Namespace) -> str:
    since, until = (getattr(options, name, None) for name in _TIMES)
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
