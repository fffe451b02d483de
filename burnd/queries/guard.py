"""Limits of the guard: how much a session, the day and the 5-hour window have used, and which limit is reached."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from burnd.pricing import usd
from burnd.queries.limits import running_window
from burnd.queries.session_ids import below
from burnd.queries.spending import Spending, period_of
from burnd.queries.tally import Tally
from burnd.queries.view import View
from burnd.records.times import HOUR_MS, to_ms

SCOPES: Final = {"session": "this session", "day": "today", "window": "the 5-hour window"}
_CALLS: Final = 200  # the newest calls of a session that may repeat a failure


class Use(NamedTuple):
    """A limit and how much of it is used. `key` is the setting without "guard."."""

    key: str
    limit: float
    used: float | None  # None if not requested

    @property
    def scope(self) -> str:
        return "session" if self.key == "failing_calls" else self.key.partition("_")[0]

    @property
    def unit(self) -> str:
        return "failures" if self.key == "failing_calls" else self.key.partition("_")[2]

    @property
    def is_reached(self) -> bool:
        return self.used is not None and self.used >= self.limit

    def sentence(self) -> str:
        """Use and limit as a clause, for the agent and the user."""
        used = self.used or 0
        if self.unit == "failures":
            return f"the same call failed {used:.0f} times in a row (limit {self.limit:g})"
        if self.unit == "subagents":
            return f"{SCOPES[self.scope]} started {used:.0f} subagents (limit {self.limit:g})"
        if self.unit == "tokens":
            return f"{SCOPES[self.scope]} used {used:,.0f} tokens (limit {self.limit:,.0f})"
        return f"{SCOPES[self.scope]} cost ${used:,.2f} at API prices (limit ${self.limit:,.2f})"

    def answer(self) -> dict[str, Any]:
        return {
            "key": f"guard.{self.key}",
            "scope": self.scope,
            "unit": self.unit,
            "limit": self.limit,
            "used": None if self.used is None else round(self.used, 6),
            "reached": self.is_reached,
        }


def uses(view: View, limits: Mapping[str, float], source: str, session: str | None, tool: str | None) -> list[Use]:
    """The use of each limit; without a session, only of the day's and the window's.

    A session is counted with its root session and all of that one's children. Repeated failures count for `tool`, or
    for any tool if that is None.
    """
    spending = Spending(view)
    used: dict[str, float] = {}
    if any(key.startswith("day_") for key in limits):
        today = period_of("daily", view.now)
        used |= _used("day", spending.within(today.begin, today.end))
    if any(key.startswith("window_") for key in limits):
        window = running_window(view, source, "5h")
        tally = Tally() if window is None else spending.within(to_ms(window["from"]), to_ms(window["to"]))
        used |= _used("window", tally)
    if session is not None:
        family = below(view, [number for (number,) in view.rows(_ROW, (root_of(view, session),))])
        used |= _used("session", spending.of_rows(family))
        if "session_subagents" in limits:
            used["session_subagents"] = _subagents(view, family)
        if "failing_calls" in limits:
            used["failing_calls"] = _failures(view, family, tool)
    return [Use(key, limit, used[key]) for key, limit in limits.items() if key in used]


def _used(scope: str, spent: Tally) -> dict[str, float]:
    return {f"{scope}_usd": float(usd(spent.units)), f"{scope}_tokens": sum(spent.tokens)}


def root_of(view: View, session: str) -> str:
    """The session that started this one, through all levels."""
    visited = {session}
    while (rows := view.rows(_PARENT, (session,))) and rows[0][0] not in visited:
        session = rows[0][0]
        visited.add(session)
    return session


def _subagents(view: View, family: Iterable[int]) -> int:
    """Subagents and child sessions."""
    keys = ",".join(map(str, family))
    ((agents, children),) = view.rows(_SUBAGENTS.format(keys=keys))
    return int(agents) + max(int(children) - 1, 0)


def _failures(view: View, family: Iterable[int], tool: str | None) -> int:
    """The longest run of equal calls at the end of a rail that all failed; pending calls are skipped."""
    keys = ",".join(map(str, family))
    rails: dict[tuple[int, str], list[tuple[str, str, bool | None]]] = {}
    for session, rail, name, target, failed in view.rows(_NEWEST_CALLS.format(keys=keys), (view.now - HOUR_MS, _CALLS)):
        rails.setdefault((session, rail), []).append((name, target, failed))
    return max((sum(1 for _ in _run(calls, tool)) for calls in rails.values()), default=0)


def _run(calls: Iterable[tuple[str, str, bool | None]], tool: str | None) -> Iterator[tuple[str, str]]:
    """The failed calls that equal the newest one; `calls` has the newest first."""
    newest = None
    for name, target, failed in calls:
        if failed is None and newest is None:
            continue
        newest = newest or (name, target)
        if not failed or (name, target) != newest or tool not in (None, name):
            return
        yield name, target


_ROW = "SELECT id FROM sessions WHERE session_id = ?"
_PARENT = "SELECT parent_session_id FROM sessions WHERE session_id = ? AND parent_session_id IS NOT NULL"
_SUBAGENTS = """
SELECT (SELECT count(DISTINCT subagent) FROM sums WHERE session IN ({keys}) AND subagent <> 0),
  (SELECT count(*) FROM sessions WHERE id IN ({keys}))
"""
_NEWEST_CALLS = """
SELECT t.session, t.rail, n.name, coalesce(c.target, 0), c.is_error
FROM turns t JOIN tool_calls c ON c.turn = t.id JOIN names n ON n.id = c.name
WHERE t.session IN ({keys}) AND t.ts > ?
ORDER BY t.ts DESC, t.turn_index DESC, c.n DESC LIMIT ?
"""
