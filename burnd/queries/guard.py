"""Use of a session, the day and the 5-hour window, and which limit of the guard it reaches."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import dropwhile, takewhile
from typing import Any, Final, NamedTuple

from burnd.classify.shell import verb
from burnd.classify.tools import kind
from burnd.pricing import usd
from burnd.queries.limits import running_window
from burnd.queries.money import Tally
from burnd.queries.names import below
from burnd.queries.spending import Spending, period_of
from burnd.queries.view import View
from burnd.records.times import HOUR_MS, to_ms

SCOPES: Final = {"session": "this session", "day": "today", "window": "the 5-hour window"}
_CALLS: Final = 200  # the newest calls of a session that may repeat a failure


class Use(NamedTuple):
    """A limit and its use. `key` is the setting without "guard."."""

    key: str
    limit: float
    used: float | None  # None if not requested
    call: str = "the same call"  # that failed

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
        used = self.used or 0
        if self.unit == "failures":
            return f"{self.call} failed {used:.0f} times in a row (limit {self.limit:g})"
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


class NextCall(NamedTuple):
    """The call that a harness is about to make: its tool, and the command or path in its arguments."""

    tool: str
    subject: str | None = None

    def equals(self, tool: str, target: str | None) -> bool:
        """Shells may have other names in hooks than in logs."""
        if kind(self.tool) == kind(tool) == "shell":
            return self.subject is None or verb(self.subject) == target
        return self.tool == tool and (self.subject is None or target in (None, self.subject))


def uses(
    view: View, limits: Mapping[str, float], source: str, session: str | None, call: NextCall | None = None
) -> list[Use]:
    """Without a session, only of the day's and the window's limits.

    A session is counted with its root session and all of that one's children. Repeated failures count only if `call`
    would repeat them, or all if that is None.
    """
    used: dict[str, float] = {}
    failing = ""
    if any(key.startswith("day_") for key in limits):
        today = period_of("daily", view.now)
        used |= _used("day", Spending(view).within(today.begin, today.end))
    if any(key.startswith("window_") for key in limits):
        window = running_window(view, source, "5h")
        spending = Spending(view, source)
        tally = Tally() if window is None else spending.within(to_ms(window["from"]), to_ms(window["to"]))
        used |= _used("window", tally)
    if session is not None:
        family = below(view, [number for (number,) in view.rows(_ROW, (line_of(view, session)[-1],))])
        if "session_usd" in limits or "session_tokens" in limits:
            used |= _used("session", Spending(view).of_rows(family))
        if "session_subagents" in limits:
            ((agents, children),) = view.rows(_SUBAGENTS.format(keys=",".join(map(str, family))))
            used["session_subagents"] = agents + max(children - 1, 0)
        if "failing_calls" in limits:
            used["failing_calls"], failing = _failures(view, family, call)
    return [
        Use(key, limit, used[key], *([failing] if key == "failing_calls" and failing else []))
        for key, limit in limits.items()
        if key in used
    ]


def _used(scope: str, spent: Tally) -> dict[str, float]:
    return {f"{scope}_usd": float(usd(spent.units)), f"{scope}_tokens": sum(spent.tokens)}


def line_of(view: View, session: str) -> list[str]:
    """This session, the one that started it, and so on up to the root."""
    line = [session]
    while (rows := view.rows(_PARENT, (line[-1],))) and rows[0][0] not in line:
        line.append(rows[0][0])
    return line


def _failures(view: View, family: Iterable[int], call: NextCall | None) -> tuple[int, str]:
    """The longest run of equal calls at the end of a rail that all failed; pending calls are skipped."""
    rails: dict[tuple[int, str], list[tuple[str, str | None, bool | None]]] = {}
    sql = _NEWEST_CALLS.format(keys=",".join(map(str, family)))
    for session, rail, tool, target, failed in view.rows(sql, (view.now - HOUR_MS, _CALLS)):
        rails.setdefault((session, rail), []).append((tool, target, failed))
    longest, name = 0, ""
    for calls in rails.values():
        ended = [*dropwhile(lambda one: one[2] is None, calls)]  # the newest first
        run = [*takewhile(lambda one: one == (*ended[0][:2], True), ended)]  # noqa: B023
        if len(run) > longest and (call is None or call.equals(*run[0][:2])):
            tool, target, _ = run[0]
            longest, name = len(run), f"{tool} {target}" if target else tool
    return longest, name


_ROW = "SELECT id FROM sessions WHERE session_id = ?"
_PARENT = "SELECT parent_session_id FROM sessions WHERE session_id = ? AND parent_session_id IS NOT NULL"
_SUBAGENTS = """
SELECT (SELECT count(DISTINCT subagent) FROM sums WHERE session IN ({keys}) AND subagent <> 0),
  (SELECT count(*) FROM sessions WHERE id IN ({keys}))
"""
_NEWEST_CALLS = """
SELECT t.session, t.rail, n.name, g.name, c.is_error
FROM turns t JOIN tool_calls c ON c.turn = t.id JOIN names n ON n.id = c.name LEFT JOIN names g ON g.id = c.target
WHERE t.session IN ({keys}) AND t.ts > ?
ORDER BY t.ts DESC, t.turn_index DESC, c.n DESC LIMIT ?
"""
