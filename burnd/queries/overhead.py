"""Cost of prefixes: the system prompt, tools and memory files that every session starts with.

Gives the cost of one token of a prefix; the client reads the files. The daemon reads no memory file.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from statistics import median_low
from typing import Any

from burnd.pricing import usd
from burnd.queries import waste
from burnd.queries.bills import Pricer, total
from burnd.queries.selection import Scope
from burnd.queries.spending import totals_of
from burnd.queries.sums import By, Reader
from burnd.queries.view import View


def answer(view: View, seen: waste.WasteFindings) -> dict[str, Any]:
    """The answer of the method `overhead`."""
    scope = seen.scope.in_view(view)
    prefixes = [one.prefix for one in seen.families if one.prefix is not None and one.prefix.spent]
    sources: dict[str, str] = dict(view.keyed(_SOURCES, [(prefix.session_id,) for prefix in prefixes]))
    by_source: defaultdict[str, list[waste.Prefix]] = defaultdict(list)
    for prefix in prefixes:
        by_source[sources.get(prefix.session_id) or ""].append(prefix)
    pricer = Pricer(view.prices)
    return {
        "filters": scope.filters,
        **totals_of(view, scope),
        "sources": [_source(name, some, pricer) for name, some in sorted(by_source.items())],
        "servers": _servers(view, scope),
    }


def _source(name: str, prefixes: list[waste.Prefix], pricer: Pricer) -> dict[str, Any]:
    """`usdPerToken` is the cost of one more token in every one of these prefixes."""
    costs = [(prefix.tokens, pricer.of(dict(prefix.spent))) for prefix in prefixes]
    sizes = [tokens for tokens, _ in costs]
    per_token = sum(cost.units / tokens for tokens, cost in costs)
    whole = total([cost for _, cost in costs])
    return {
        "source": name,
        "sessions": len(prefixes),
        "prefix": {"median": median_low(sizes), "smallest": min(sizes), "largest": max(sizes)},
        "rides": _rides(prefixes),
        **whole.answer(),
        "usdPerToken": float(usd(round(per_token))) if whole.is_priced else None,
        "instructions": _instructions(prefixes),
    }


def _instructions(prefixes: Iterable[waste.Prefix]) -> list[dict[str, Any]]:
    """Instruction files in logs, with their size in the newest session that started with each."""
    sizes: dict[str, int] = {}
    sessions: defaultdict[str, int] = defaultdict(int)
    for prefix in sorted(prefixes, key=lambda one: (one.ts, one.session_id)):
        for path, size in prefix.instructions:
            sizes[path] = size
            sessions[path] += 1
    return [{"path": path, "bytes": sizes[path], "sessions": sessions[path]} for path in sorted(sizes)]


def _rides(prefixes: Iterable[waste.Prefix]) -> int:
    """The number of requests that paid for a prefix, in full or from the cache."""
    return sum(sum(tokens.context for _, tokens in prefix.spent) // prefix.tokens for prefix in prefixes)


def _servers(view: View, scope: Scope) -> list[dict[str, Any]]:
    """The MCP servers called in these sessions, the busiest first."""
    sessions = {keys for keys, *_ in Reader(view, scope.selection, scope.kinds).read(By(("session",)))}
    calls: defaultdict[str, int] = defaultdict(int)
    for name, times in view.keyed(_CALLED, sessions):
        calls[name.split("__")[1]] += times
    return [{"server": name, "calls": calls[name]} for name in sorted(calls, key=lambda name: (-calls[name], name))]


_SOURCES = """
SELECT s.session_id, n.name FROM sessions s JOIN names n ON n.id = s.source WHERE s.session_id IN ({keys})
"""
_CALLED = """
WITH w(session) AS ({keys}) SELECT n.name, count(*) FROM w CROSS JOIN turns t ON t.session = w.session
CROSS JOIN tool_calls c ON c.turn = t.id CROSS JOIN names n ON n.id = c.name AND n.name GLOB 'mcp__?*__*'
GROUP BY n.name
"""
