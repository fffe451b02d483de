"""What sessions began with, before anybody had said a word: what prefixes cost, for whoever knows what is in them.

The daemon reads no memory file: it says what a token of the prefix came to, and who asks has the files.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from statistics import median_low
from typing import Any

from burnd.pricing import usd
from burnd.queries import waste
from burnd.queries.bills import Pricer, total
from burnd.queries.selection import Chosen
from burnd.queries.spending import spent_in, unlogged_in
from burnd.queries.sums import By, Reader
from burnd.queries.view import View


def answer(view: View, seen: waste.Seen) -> dict[str, Any]:
    """The answer of the method `overhead`."""
    chosen = seen.chosen.in_view(view)
    prefixes = [one.prefix for one in seen.found if one.prefix is not None and one.prefix.spent]
    sources: dict[str, str] = dict(view.keyed(_SOURCES, [(prefix.session_id,) for prefix in prefixes]))
    by_source: defaultdict[str, list[waste.Prefix]] = defaultdict(list)
    for prefix in prefixes:
        by_source[sources.get(prefix.session_id) or ""].append(prefix)
    pricer = Pricer(view.prices)
    return {
        "filters": chosen.said,
        "totals": spent_in(view, chosen).answer(),
        "unlogged": unlogged_in(view, chosen),
        "sources": [_source(name, some, pricer) for name, some in sorted(by_source.items())],
        "servers": _servers(view, chosen),
    }


def _source(name: str, prefixes: list[waste.Prefix], pricer: Pricer) -> dict[str, Any]:
    """`usdPerToken` is what one token more in every one of these prefixes would have cost."""
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
    """The instruction files in logs, each with its size in the newest session that began with it."""
    sizes: dict[str, int] = {}
    sessions: defaultdict[str, int] = defaultdict(int)
    for prefix in sorted(prefixes, key=lambda one: (one.ts, one.session_id)):
        for path, size in prefix.instructions:
            sizes[path] = size
            sessions[path] += 1
    return [{"path": path, "bytes": sizes[path], "sessions": sessions[path]} for path in sorted(sizes)]


def _rides(prefixes: Iterable[waste.Prefix]) -> int:
    """In how many requests prefixes were paid for, in full or from the cache."""
    return sum(sum(spent.context for _, spent in prefix.spent) // prefix.tokens for prefix in prefixes)


def _servers(view: View, chosen: Chosen) -> list[dict[str, Any]]:
    """The MCP servers that were called in these sessions, the busiest first."""
    sessions = {keys for keys, *_ in Reader(view, chosen.selection, chosen.kinds).read(By(("session",)))}
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
