"""Hints for mistyped names: the command that does it, or the session whose id is nearest."""

from __future__ import annotations

from difflib import get_close_matches

from burnd.harness.registry import BY_SOURCE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

# Words that people type for something that has another name here.
_OTHER_WORDS = {
    **dict.fromkeys(("dashboard", "home", "ui", "web"), "the overview is: burnctl; the live view: burnctl top"),
    **dict.fromkeys(
        ("stats", "statistics", "usage", "report", "cost", "costs", "spend", "spent", "bill"),
        "see: burnctl, or burnctl summary --by project",
    ),
    **dict.fromkeys(("log", "logs"), "requests as they happen: burnctl tail; burnd's own log: burnctl doctor"),
    **dict.fromkeys(
        ("budget", "budgets", "alert"), "see: burnctl limits; set one with: burnctl config set budget.daily 20"
    ),
    **dict.fromkeys(
        ("update", "upgrade"), "newer prices: burnctl pricing update; after an upgrade of burnd: burnctl restart"
    ),
    **dict.fromkeys(("plan", "subscription"), "see: burnctl limits; set yours with: burnctl config set plan max20"),
    **dict.fromkeys(
        ("currency", "eur"), "set it with: burnctl config set currency EUR, and burnctl config set rate 0.92"
    ),
    **dict.fromkeys(("start", "daemon", "run-daemon"), "did you mean: burnctl up"),
    **dict.fromkeys(("stop", "kill", "quit"), "did you mean: burnctl down"),
    **dict.fromkeys(("list", "ls", "session", "history"), "did you mean: burnctl sessions"),
    **dict.fromkeys(("find", "grep"), "did you mean: burnctl search"),
    **dict.fromkeys(("watch", "follow"), "did you mean: burnctl tail"),
    **dict.fromkeys(("monitor", "htop"), "did you mean: burnctl top"),
    **dict.fromkeys(("tag", "label"), "did you mean: burnctl stamp; cost by tag: burnctl tags"),
    **dict.fromkeys(("week", "weeks"), "did you mean: burnctl weekly"),
    **dict.fromkeys(("day", "days"), "did you mean: burnctl daily"),
    **dict.fromkeys(("month", "months"), "did you mean: burnctl monthly"),
    **dict.fromkeys(("hourly", "hours"), "see: burnctl summary --by hour --since today"),
    **dict.fromkeys(("yesterday",), "see: burnctl daily --since 2d"),
    **dict.fromkeys(("window", "windows", "quota", "rate-limit"), "did you mean: burnctl limits"),
    **dict.fromkeys(("save", "savings", "optimize", "tips"), "did you mean: burnctl waste"),
    **dict.fromkeys(("cache", "misses"), "see: burnctl hotspots --by cache-miss"),
    **dict.fromkeys(("tools", "tool"), "did you mean: burnctl hotspots"),
    **dict.fromkeys(("files", "file"), "see: burnctl hotspots --by file"),
    **dict.fromkeys(("prompts", "prompt"), "see: burnctl hotspots --by prompt"),
    **dict.fromkeys(("branches", "branch"), "see: burnctl summary --by branch"),
    **dict.fromkeys(("prs", "pr", "pull-requests"), "see: burnctl summary --by pr"),
    **dict.fromkeys(("activity", "activities"), "see: burnctl summary --by activity"),
    **dict.fromkeys(("price", "prices"), "did you mean: burnctl pricing"),
    **dict.fromkeys(
        ("settings", "setup", "init", "configure"), "see: burnctl config show; the first start is: burnctl up"
    ),
    **dict.fromkeys(("install", "enable"), "start burnd at login with: burnctl service install"),
    **dict.fromkeys(("delete", "remove", "purge"), "erase a session's text with: burnctl forget SESSION"),
    **dict.fromkeys(("html", "pdf"), "see: burnctl report -o report.html"),
    "version": "did you mean: burnctl --version",
}
_ALIKE, _COMMAND_ALIKE = 0.6, 0.75  # a wrong guess is worse than none
_ANSWER_S = 2.0
_LOOKED_AT = 200  # the newest: an older one would hardly be typed by hand


def command(typed: str, verbs: Iterable[str]) -> str:
    """A hint for a word that is no command: the command that does it, a similar one, or the help."""
    names = list(verbs)
    if hint := _OTHER_WORDS.get(typed.lower()):
        return hint
    if typed.lower() in BY_SOURCE:
        return "run it with its session tagged: burnctl run -- PROGRAM; its cost: burnctl harnesses"
    near = get_close_matches(typed.lower(), names, 1, _COMMAND_ALIKE)
    return f"did you mean: burnctl {near[0]}" if near else "see: burnctl help"


def session(typed: str) -> str | None:
    """The session whose id is most similar: enough of its id to type, its title and its age."""
    import time

    from burnctl.client import Client
    from burnctl.errors import BurnctlError
    from burnctl.render.names import enough_of_id
    from burnctl.render.numbers import ago
    from burnctl.render.text import clean, cut

    try:
        with Client(timeout=_ANSWER_S) as client:
            sessions = client.sessions_list(limit=_LOOKED_AT)["sessions"]
    except BurnctlError:
        return None
    fronts = {one["sessionId"][: len(typed)]: one for one in reversed(sessions)}  # of those alike, the newest
    near = get_close_matches(typed, list(fronts), 1, _ALIKE)
    if not near:
        return None
    session_row = fronts[near[0]]
    about = [cut(clean(session_row["title"] or ""), 40), ago(session_row["updatedAt"], time.time() * 1000)]
    return f"{enough_of_id(session_row)} ({', '.join(filter(None, about))})"
