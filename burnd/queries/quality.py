"""Quality of work: one-shot rates of prompts, and outcomes of sessions."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Hashable
from functools import cache, partial
from math import sqrt
from typing import Any, Final

from burnd.queries.dimensions import Dimension
from burnd.queries.selection import Scope
from burnd.queries.sums import Reader
from burnd.queries.tally import Tally
from burnd.queries.view import View

OUTCOMES: Final = ("completed", "abandoned", "errored", "unknown")
QUIET_MS: Final = 600_000  # a session with a turn this recent may continue
Outcomes = dict[str, int]  # sessions by outcome
_DONE = frozenset(("end_turn", "stop", "stop_sequence"))
_WAITING = frozenset(("tool_use", "tool-calls"))
_REFUSED = frozenset(("refusal", "content-filter", "content_filter", "error"))
_Z = 1.959963984540054  # 95 % of a normal distribution lies within this many deviations


def quality(turns: Tally, outcomes: Outcomes | None) -> dict[str, Any]:
    """The rates of a row and the outcomes of its sessions."""
    return {
        "editTurns": turns.edits,
        "oneShotTurns": turns.one_shots,
        "oneShotRate": rate(turns.one_shots, turns.edits),
        "editPrompts": turns.prompts,
        "oneShotPrompts": turns.one_shot_prompts,
        "oneShotPromptRate": rate(turns.one_shot_prompts, turns.prompts),
        "oneShotInterval": wilson(turns.one_shot_prompts, turns.prompts),
        "sessions": outcomes or dict.fromkeys(OUTCOMES, 0),
    }


def outcomes(view: View, reader: Reader, scope: Scope, dimension: Dimension) -> dict[Hashable, Outcomes]:
    """Outcomes of the sessions whose last turn is selected, by row."""
    by_row: defaultdict[Hashable, Outcomes] = defaultdict(lambda: dict.fromkeys(OUTCOMES, 0))
    ended = cache(partial(_ended, view))  # many sessions have few distinct endings
    for keys, number, facts, (count,) in reader.endings(dimension.by, _FACTS.format(view.now - QUIET_MS)):
        kind = scope.kinds[number]
        by_row[dimension.label(keys, kind)][ended(facts, kind.is_open)] += count
    return by_row


def in_all(outcomes: Collection[Outcomes]) -> Outcomes:
    return {name: sum(one[name] for one in outcomes) for name in OUTCOMES}


def _ended(view: View, facts: int, is_open: bool) -> str:
    """The outcome of a session, by the number made by `_FACTS`."""
    rest, quality = divmod(facts, len(_QUALITIES))
    reasons, is_recent = divmod(rest, 2)
    stop, event = (_name(view, number) for number in divmod(reasons, _NAMES))
    return outcome(stop, event, quality=_QUALITIES[quality], may_go_on=is_open or bool(is_recent))


def _name(view: View, number: int) -> str | None:
    rows = view.rows("SELECT name FROM names WHERE id = ?", (number,))
    return rows[0][0] if rows else None


def outcome(stop: str | None, event: str | None, *, quality: str, may_go_on: bool) -> str:
    """The outcome of a session by its last stop reason and what followed. docs/reports.md has the rules."""
    if event in ("api_error", "refusal") or stop in _REFUSED:
        return "errored"
    if event is not None:
        return "abandoned"
    if may_go_on and stop not in _DONE:
        return "unknown"
    if quality == "empty":
        return "errored"
    if stop in _WAITING:
        return "abandoned"
    return "completed" if stop in _DONE and quality == "final" else "unknown"


def rate(part: int, whole: int) -> float | None:
    return part / whole if whole else None


def wilson(part: int, whole: int) -> list[float] | None:
    """The 95 % Wilson score interval of a rate, valid for small samples and rates near 0 and 1."""
    if not whole:
        return None
    share, square = part / whole, _Z * _Z
    middle = share + square / (2 * whole)
    spread = _Z * sqrt(share * (1 - share) / whole + square / (4 * whole * whole))
    scale = 1 + square / whole
    return [max(0.0, (middle - spread) / scale), min(1.0, (middle + spread) / scale)]


# Stop reason, later event, recency and quality in one number: grouping by it is much faster than by four columns.
_QUALITIES = ("final", "partial", "empty")
_NAMES = 1 << 31  # above every name id
_FACTS = (
    f"((coalesce(x.stop_reason, 0) * {_NAMES} + coalesce(e.event, 0)) * 2 + (x.ts >= {{}})) * {len(_QUALITIES)}"
    f" + CASE x.quality WHEN 'final' THEN 0 WHEN 'partial' THEN 1 ELSE 2 END"
)
