"""Hints for mistyped commands and session ids."""

from __future__ import annotations

from difflib import get_close_matches

from burnd.harness.registry import BY_SOURCE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

# Words that people type for other commands, with their hints.
_OTHER_WORDS = {
    word: hint
    for words, hint in (
        ("dashboard home ui gui web serve server open", "the overview is: burnctl; the live view: burnctl top"),
        (
            "stats statistics usage cost costs spend spent bill total totals money tokens",
            "see: burnctl, or burnctl summary --by project",
        ),
        ("log logs", "requests as they happen: burnctl tail; burnd's own log: burnctl doctor"),
        ("budget budgets alert alerts", "see: burnctl limits; set one with: burnctl config set budget.daily 20"),
        ("update upgrade", "newer prices: burnctl pricing update; after an upgrade of burnd: burnctl restart"),
        ("plan subscription", "see: burnctl limits; set yours with: burnctl config set plan max20"),
        ("currency eur", "set it with: burnctl config set currency EUR, and burnctl config set rate 0.92"),
        ("start daemon run-daemon", "did you mean: burnctl up"),
        ("stop kill quit exit", "did you mean: burnctl down"),
        ("list ls session history", "did you mean: burnctl sessions"),
        ("find grep", "did you mean: burnctl search"),
        ("read cat view messages transcript", "did you mean: burnctl show"),
        ("continue", "did you mean: burnctl resume"),
        ("watch follow turns requests", "as they happen: burnctl tail; all of them: burnctl export"),
        ("monitor htop", "did you mean: burnctl top"),
        ("tag label", "did you mean: burnctl stamp; cost by tag: burnctl tags"),
        ("week weeks", "did you mean: burnctl weekly"),
        ("day days", "did you mean: burnctl daily"),
        ("month months", "did you mean: burnctl monthly"),
        ("year years yearly", "see: burnctl monthly"),
        ("hour hours hourly", "see: burnctl summary --by hour --since today"),
        ("yesterday", "see: burnctl daily --since 2d"),
        ("window windows quota rate-limit 5h", "did you mean: burnctl limits"),
        ("save saving savings optimize tips advice", "did you mean: burnctl waste"),
        ("cache misses", "see: burnctl hotspots --by cache-miss"),
        ("context memory claude.md", "see: burnctl overhead, or burnctl flow for one session"),
        ("tools tool", "did you mean: burnctl hotspots"),
        ("files file", "see: burnctl hotspots --by file"),
        ("prompts prompt", "see: burnctl hotspots --by prompt"),
        ("branches branch", "see: burnctl summary --by branch"),
        ("prs pr pull-requests", "see: burnctl summary --by pr"),
        ("activity activities", "see: burnctl summary --by activity"),
        ("price prices rate rates", "did you mean: burnctl pricing"),
        ("settings setup init configure", "see: burnctl config show; the first start is: burnctl up"),
        ("install enable", "start burnd at login with: burnctl service install"),
        ("uninstall disable", "see: burnctl service uninstall"),
        ("delete remove purge", "erase a session's text with: burnctl forget SESSION"),
        ("prune clean cleanup", "see: burnctl content prune"),
        ("html pdf graph chart", "see: burnctl report -o report.html"),
        ("csv json", "add --json or --csv to a report, as in: burnctl daily --csv"),
        ("scan import sync refresh", "burnd reads new logs at once; without burnd: burnctl daily --scan"),
        ("hook hooks guardrail", "did you mean: burnctl guard"),
        ("check test ping info debug", "see: burnctl doctor, or burnctl status"),
        ("docs man about", "see: burnctl help"),
        ("version", "did you mean: burnctl --version"),
    )
    for word in words.split()
}
_ALIKE, _COMMAND_ALIKE = 0.6, 0.75  # no guess is better than a wrong one
_ANSWER_S = 2.0
_LOOKED_AT = 200  # the newest: older ids are hardly typed by hand


def near(typed: str, choices: Iterable[str], otherwise: str, alike: float = _ALIKE) -> str:
    """`did you mean: NAME` with the most similar choice, else `otherwise`."""
    close = get_close_matches(typed, list(choices), 1, alike)
    return f"did you mean: {close[0]}" if close else otherwise


def command(typed: str, verbs: Iterable[str]) -> str:
    """The command that does it, a similar one, or the help."""
    if hint := _OTHER_WORDS.get(typed.lower()):
        return hint
    if typed.lower() in BY_SOURCE:
        program = BY_SOURCE[typed.lower()].program
        return f"its cost: burnctl harnesses; run it tagged: burnctl run -- {program}"
    return near(typed.lower(), verbs, "see: burnctl help", _COMMAND_ALIKE).replace("mean: ", "mean: burnctl ")


def session(typed: str) -> str | None:
    """The most similar session: its id, title and age."""
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
    fronts = {one["sessionId"][: len(typed)]: one for one in reversed(sessions)}  # the newest of similar ones
    close = get_close_matches(typed, list(fronts), 1, _ALIKE)
    if not close:
        return None
    session_row = fronts[close[0]]
    about = [cut(clean(session_row["title"] or ""), 40), ago(session_row["updatedAt"], time.time() * 1000)]
    return f"{enough_of_id(session_row)} ({', '.join(filter(None, about))})"
