"""What each prompt led to: all selected turns that worked on it, whatever they paid for."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from burnd.queries.periods import Stretch
from burnd.queries.reading import Reader
from burnd.queries.scanning import By, Scan, Table, during
from burnd.queries.selection import Selection
from burnd.queries.view import View
from burnd.records.times import to_iso

PromptKey = tuple[int, str]  # a session by its number, and the prompt's id in it
_TOKENS = ("input", "output", "reasoning", "cache_read", "cache_create_5m", "cache_create_1h", "searches")
_COLUMNS = {name: f"x.{name}" for name in ("session", "class", "place", "subagent")}
_TURNS = Table(
    "turns",
    _COLUMNS | {"turn": "x.id", "branch": "coalesce(x.branch, 0)", "activity": "coalesce(x.activity, -1)"},
    ("count(*)", *(f"sum(x.{name})" for name in _TOKENS)),
)
_BY_SESSION = By(("session",))


class Worked(NamedTuple):
    """What turns of one class that worked on one prompt paid, as a heap takes it: its calls are turns.

    What was paid in full has come in, what was read from the cache rode along.
    """

    prompt: PromptKey | None
    kind: int
    sums: tuple[int, ...]


def worked(view: View, selection: Selection, reader: Reader) -> Iterator[Worked]:
    if reader.begin >= reader.end:
        return
    scan = Scan(view, selection)
    terms = [during(Stretch(reader.begin, reader.end)), *scan.terms(_TURNS, selection.kinds)]
    rows = scan.plain(_TURNS, _BY_SESSION, terms, beside="x.prompt_id")
    rows += scan.mixed(_TURNS, _BY_SESSION, terms, beside="x.prompt_id")
    for session, kind, prompt, turns, *spent in rows:
        fresh, _, _, _, five, hour, _ = spent
        sums = (*spent, fresh + five + hour, turns, 0)
        yield Worked(None if prompt is None else (session, prompt), kind, sums)


def about(view: View, prompt: PromptKey) -> dict[str, Any]:
    """Where a prompt is found: its session, and the first turn that worked on it."""
    ((session_id, turn_index, ts),) = view.rows(_FIRST, prompt)
    return {"sessionId": session_id, "turnIndex": turn_index, "at": to_iso(ts)}


_FIRST = """
SELECT s.session_id, t.turn_index, t.ts FROM turns t JOIN sessions s ON s.id = t.session
WHERE t.session = ? AND t.prompt_id = ? ORDER BY t.turn_index, t.ts, t.message_id LIMIT 1
"""
