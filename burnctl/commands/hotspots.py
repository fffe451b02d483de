"""`burnctl hotspots` and `by-tool`: what the money went to, over all sessions."""

from __future__ import annotations

from burnctl import flags
from burnctl.daemon import reach
from burnctl.output import present
from burnctl.render.names import enough_of_id, harness_name, miss_words, pull_request_name, short_id, short_model, tilde
from burnctl.render.notes import add_caveats
from burnctl.render.numbers import NOTHING, bar, count, counted, date, money, number, percent
from burnctl.render.tables import Column, table, weight_style
from burnctl.render.text import width_of
from burnd.contract.reports import FLEET_DIMENSIONS, HotspotsParams
from burnd.protocol import NOT_COUNTED, NOT_MISSED, OTHER, UNKNOWN_AGENT

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable
    from typing import Any

    from burnctl.render.screen import Screen

HELP = (
    "shows what cost most over all sessions, by tool, file, command, MCP server, skill, subagent, prompt, project's "
    "system prompt or reason of a cache miss. A result costs when it is new, and again in every later request that "
    "sends it again. Everything else is in rows in parentheses, so that the costs add up to the bill. `by-tool` is the "
    "same"
)
EXAMPLES = (
    "burnctl hotspots",
    "burnctl hotspots --by file --since 7d",
    "burnctl hotspots --by command --rank rides",
    "burnctl hotspots --by cache-miss --project .",
)
READABLE = 30
_LEAST_NAME = 20  # names are cut before numbers are hidden
_WIDE_ENOUGH = 70  # columns, for the start of a prompt
_SECOND_NAMES: dict[str, Callable[[str], str]] = {
    "model": short_model,
    "source": harness_name,
    "pr": pull_request_name,
}
_CUT = {"file": "start", "prefix": "start", "tool": "middle"}
DELEGATES = ("Task", "Agent", "task", "spawn_agent")
_TITLES = {"prefix": "project", "cache-miss": "reason"}
_NONE_OF = {
    "file": "No call read or wrote a file.",
    "command": "No command was run.",
    "mcp": "No MCP server was called.",
    "skill": "No skill was used.",
    "subagent": "No subagent was started.",
    "cache-miss": "No request missed the cache.",
}
# Costs that belong to no row.
_OTHERS = {
    "prefix": "system prompt and tools",
    "answer": "answers",
    "prompt": "prompts",
    "thinking": "thinking",
    "summary": "compaction summaries",
    "attachment": "attached files",
    "reminder": "text added by the harness",
    "inherited": "earlier history",
    "unexplained": "not found in the log",
}
_SUBJECTS = {"prefix": "System prompts", "cache-miss": "Cache misses", "mcp": "MCP servers"}
_EACH = {"calls": "call", "requests": "request", "misses": "miss"}
_RESTS = (NOT_COUNTED, NOT_MISSED)  # not divided into new and re-sent tokens


def add_arguments(parser: argparse.ArgumentParser) -> None:
    flags.add(parser, HotspotsParams, usual={"limit": READABLE})
    flags.reading_rows(parser)
    flags.add(parser, flags.Fleet)
    parser.set_defaults(by="tool")


def run(options: argparse.Namespace) -> int:
    is_screen = not (options.json or options.csv)
    limit = options.limit or (READABLE if is_screen else None)
    client = reach(options, causes=True)
    by = f"tool,{options.by}" if options.by in FLEET_DIMENSIONS else options.by
    answer = flags.ask(client, HotspotsParams, options, by=by, limit=limit)
    return present(options, answer, drawn, rows=flat_rows, client=client)


def drawn(answer: dict[str, Any], screen: Screen) -> str:
    totals = answer["totals"]
    if not totals["turns"] and not totals["emptyTurns"]:
        return ""
    rows = answer["rows"]
    if any("proof" in row for row in rows):
        screen.note("Proved: the log leaves no other reason. Inferred: likely by times and sizes.")
        screen.note("What to do about each: burnctl waste --kind cache-miss")
    if answer["totals"]["openTurns"]:
        screen.note(f"{counted(answer['totals']['openTurns'], 'request')} still running.")
    if any(row["kind"] == OTHER and row["key"] == "prefix" for row in rows):
        screen.note("The system prompt, tools and memory files that sessions begin with: burnctl overhead")
    if any(row["kind"] == "tool" and row["key"] in DELEGATES for row in rows):
        screen.note("Calls of agents are without what the agents did: burnctl hotspots --by subagent has both.")
    add_caveats(answer, screen)
    by = answer["by"].partition(",")[0]
    none = by in _NONE_OF and all(row["kind"] == OTHER for row in answer["rows"])
    head = _NONE_OF[by] if none else _headline(answer, by, screen)
    return "\n\n".join(filter(None, [_pending(answer, screen), head, _table(answer, screen)]))


def _pending(answer: dict[str, Any], screen: Screen) -> str:
    """A yellow line while costs are not yet attributed."""
    is_short = any(row["key"] == NOT_COUNTED and row["kind"] == OTHER for row in answer["rows"])
    if not answer["pending"] or not (is_short or answer["by"] == "cache-miss"):
        return ""
    pending = counted(answer["pending"], "conversation")
    return screen.paragraph(f"Attribution pending for {pending}: try again in a moment.", "yellow")


def _headline(answer: dict[str, Any], by: str, screen: Screen) -> str:
    """`Tools caused $0.94 of $2.45 (38%). Everything else is in parentheses.`"""
    whole = answer["totals"]["costUsd"]
    if not whole:
        return ""
    rest = sum(row["costUsd"] or 0 for row in answer["rows"] if row["kind"] == OTHER and not _is_more(row))
    if not rest:
        number_of = sum(row["kind"] != OTHER for row in answer["rows"]) + answer["moreRows"]
        return f"{counted(number_of, by)} for {money(whole)}."
    part, others = whole - rest, " Everything else is in parentheses."
    subject = _SUBJECTS.get(by, f"{by.capitalize()}s")
    return screen.paragraph(f"{subject} caused {money(part)} of {money(whole)} ({percent(part / whole)}).{others}")


def _is_more(row: dict[str, Any]) -> bool:
    return str(row["key"]).endswith(" more")


def _table(answer: dict[str, Any], screen: Screen) -> str:
    (by, _, second), rows = answer["by"].partition(","), answer["rows"]
    is_prompt = by == "prompt"
    counts = "misses" if by == "cache-miss" else "requests" if is_prompt else "calls"
    least = 36 if is_prompt and screen.width >= _WIDE_ENOUGH else _LEAST_NAME
    longest = max((width_of(_label(row, by)) for row in rows), default=0)
    columns = [
        Column(_TITLES.get(by, by), least=longest if by == "cache-miss" else least, where=_CUT.get(by, "end")),
        Column("proof", drop=4),
        Column(second),
        Column("session", drop=1, style="cyan"),
        Column("date", drop=8, style="dim"),
        Column(counts, "right", drop=1),
        Column("failed", "right", drop=1),
        Column("new tokens", "right", drop=2),
        Column("re-sent", "right", drop=2),
        Column("output", "right", drop=6),
        Column(f"cost/{_EACH[counts]}", "right", drop=3),
        Column("cost", "right"),
        Column("share", "right"),
        Column("", drop=7, style="cyan"),
    ]
    most = max((row["share"] or 0 for row in rows), default=0)
    most_cost = max((row["costUsd"] or 0 for row in rows), default=0)
    cells = [_cells(row, by, second, most, most_cost) for row in rows]
    totals = answer["totals"]
    output = number(totals["usage"]["output"] + totals["usage"]["reasoning"])
    footer = ["total", *[""] * 8, output, "", money(totals["costUsd"]), "", ""]
    return table(columns, cells, screen, footer=footer)


def _cells(row: dict[str, Any], by: str, second: str, most: float, most_cost: float) -> list[object]:
    usage, share = row["usage"], row["share"]
    is_rest, is_prompt = row["kind"] == OTHER and row["key"] in _RESTS, row["kind"] == "prompt"
    name = _SECOND_NAMES.get(second, tilde)(row.get("keys", {}).get(second) or NOTHING) if second else ""
    agent = f" {short_id(row['railId'])}" if is_prompt and row["railId"] != "main" else ""
    return [
        (_label(row, by), "dim" if row["kind"] == OTHER else ""),
        row.get("proof", "") if by == "cache-miss" else "",
        name,
        f"{enough_of_id(row)}{agent}" if is_prompt else "",
        date(row["at"]) if is_prompt else "",
        count(row["calls"]) if row["calls"] else "",
        (count(row["errors"]), "red") if row["errors"] else "",
        "" if is_rest or by == "cache-miss" else number(row["entered"]),
        "" if is_rest else number(row["rideTokens"]),
        "" if by == "cache-miss" else number(usage["output"] + usage["reasoning"]),
        money(row["costPerCall"]) if row["costPerCall"] is not None else "",
        (money(row["costUsd"]), weight_style(row["costUsd"], most_cost)),
        percent(share) if share is not None and share >= 0 else NOTHING,
        bar(max(share or 0, 0), most, 12).rstrip(),
    ]


def _label(row: dict[str, Any], by: str) -> str:
    label = str(row["key"])
    if row["kind"] == "cache-miss":
        return miss_words(label, row.get("proof"))
    if row["kind"] == "subagent" and label == UNKNOWN_AGENT:
        return "(unknown type)"
    if row["kind"] == "prompt":
        return row.get("quote") or f"request {row['turnIndex']}"
    if row["kind"] == OTHER:
        return f"({label} tools)" if by == "tool" and _is_more(row) else f"({_OTHERS.get(label, label)})"
    return tilde(label) if by in ("file", "prefix") else label


def flat_rows(answer: dict[str, Any]) -> list[dict[str, Any]]:
    where: tuple[str, ...] = ("sessionId", "railId", "turnIndex", "at") if answer["by"] == "prompt" else ()
    where += ("proof",) if answer["by"].startswith("cache-miss") else ()
    names = ("key", "kind", *where, "calls", "errors", "entered", "rideTokens")
    return [
        {
            **{name: row.get(name) for name in names},
            **row.get("keys", {}),
            **row["usage"],
            "costUsd": row["costUsd"],
            "costPerCall": row["costPerCall"],
            "share": row["share"],
        }
        for row in answer["rows"]
    ]
