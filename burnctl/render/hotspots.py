"""How hotspots look: a row for each thing, what is none of them below, and a total that is the bill."""

from __future__ import annotations

from burnctl.render import misses
from burnctl.render.caveats import API_PRICES, caveats, turns_are
from burnctl.render.chart import bar
from burnctl.render.names import short_id, tilde
from burnctl.render.numbers import NOTHING, day, money, number, percent
from burnctl.render.paragraphs import dimmed, wrapped
from burnctl.render.tables import Column, table
from burnctl.render.text import clean, width_of
from burnd.protocol import NOT_COUNTED, NOT_MISSED, OTHER, UNKNOWN_AGENT

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from burnctl.render.screen import Screen

_LEAST_NAME = 20  # names give way before numbers do
_WHOLE_NAMES = ("prompt", "cache-miss")  # theirs are short
DELEGATES = ("Task", "Agent", "task", "spawn_agent")
_CUT = {"file": "start", "prefix": "start", "tool": "middle"}
_NONE_OF = {
    "file": "No call was about a file.",
    "command": "No command was run.",
    "mcp": "No MCP server was called.",
    "skill": "No skill was used.",
    "subagent": "No subagent was started.",
    "cache-miss": "No turn missed the cache.",
}
_PREFIX, _OTHER_TOOLS = "prefix", "other tools"
_RESTS = (NOT_COUNTED, NOT_MISSED)  # of these it is not known what came in and what rode


def shown(answer: dict[str, Any], screen: Screen) -> str:
    """All of it, for a person; nothing where no turn matches."""
    totals = answer["totals"]
    if not totals["turns"] and not totals["emptyTurns"]:
        return ""
    notes = [line for note in _notes(answer) for line in wrapped(clean(note), screen.width)]
    notes.append(dimmed(API_PRICES, screen))
    return "\n\n".join([_table(answer, screen), "\n".join(notes)])


def _table(answer: dict[str, Any], screen: Screen) -> str:
    by, rows = answer["by"], answer["rows"]
    longest = max((width_of(_label(row, by)) for row in rows), default=0)
    counts = "misses" if by == "cache-miss" else "turns" if by == "prompt" else "calls"
    columns = [
        Column(by, least=longest if by in _WHOLE_NAMES else _LEAST_NAME, where=_CUT.get(by, "end")),
        Column(counts, "right", drop=1),
        Column("failed", "right", drop=1),
        Column("entered", "right", drop=2),
        Column("paid again" if by == "cache-miss" else "rode", "right", drop=2),
        Column("output", "right", drop=6),
        Column("a call" if counts == "calls" else "each", "right", drop=3),
        Column("cost", "right"),
        Column("share", "right"),
        Column("", drop=7),
    ]
    most = max((row["share"] or 0 for row in rows), default=0)
    cells = [_cells(row, by, most) for row in rows]
    totals = answer["totals"]
    spoken = totals["usage"]["output"] + totals["usage"]["reasoning"]
    footer = ["total", "", "", "", "", number(spoken), "", money(totals["costUsd"]), "", ""]
    told = [n for n, _ in enumerate(columns) if n == 0 or any(row[n] for row in cells)]
    return table(
        [columns[n] for n in told],
        [[row[n] for n in told] for row in cells],
        screen,
        footer=[footer[n] for n in told],
    )


def _cells(row: dict[str, Any], by: str, most: float) -> list[object]:
    usage, share = row["usage"], row["share"]
    style = "dim" if row["kind"] == OTHER else ""
    is_rest = row["kind"] == OTHER and row["key"] in _RESTS
    return [
        (_label(row, by), style),
        number(row["calls"]) if row["calls"] else "",
        number(row["errors"]) if row["errors"] else "",
        "" if is_rest or by == "cache-miss" else number(row["entered"]),
        "" if is_rest else number(row["rideTokens"]),
        "" if by == "cache-miss" else number(usage["output"] + usage["reasoning"]),
        money(row["costPerCall"]) if row["costPerCall"] is not None else "",
        money(row["costUsd"]),
        percent(share) if share is not None and share >= 0 else NOTHING,
        bar(max(share or 0, 0), most, 12),
    ]


def _label(row: dict[str, Any], by: str) -> str:
    label = str(row["key"])
    if row["kind"] == "cache-miss":
        return misses.words(label)
    if row["kind"] == "subagent" and label == UNKNOWN_AGENT:
        return "type not known"
    if row["kind"] == "prompt":
        agent = f" subagent {short_id(row['railId'])}" if row["railId"] != "main" else ""
        return f"{short_id(row['sessionId'])}{agent} turn {row['turnIndex']}, {day(row['at'])}"
    if by in ("file", "prefix"):
        label = tilde(label)
    if by == "prefix" and row["kind"] == OTHER and label == _OTHER_TOOLS:
        label = "tools"
    return f"({label})" if row["kind"] == OTHER else label


def _notes(answer: dict[str, Any]) -> list[str]:
    totals, notes = answer["totals"], []
    if answer["by"] in _NONE_OF and all(row["kind"] == OTHER for row in answer["rows"]):
        notes.append(_NONE_OF[answer["by"]])
    if any(row["kind"] == OTHER and row["key"] == _PREFIX for row in answer["rows"]):
        notes.append("(prefix) is what sessions begin with: system prompt, tools, memory files. See: burnctl overhead")
    is_short = any(row["key"] == NOT_COUNTED and row["kind"] == OTHER for row in answer["rows"])
    if answer["pending"] and (is_short or answer["by"] == "cache-miss"):
        count = answer["pending"]
        some = "1 conversation" if count == 1 else f"{count:,} conversations"
        notes.append(f"Attribution is pending for {some}: ask again in a moment. See: burnctl status")
    if any(row["kind"] == "tool" and row["key"] in DELEGATES for row in answer["rows"]):
        notes.append("Calls of agents are here without what the agents did: `burnctl hotspots --by subagent` has both.")
    if totals["openTurns"]:
        notes.append(f"{turns_are(totals['openTurns'])} still open and may yet use more.")
    return notes + caveats(answer)


def flat_rows(answer: dict[str, Any]) -> list[dict[str, Any]]:
    """The rows with one value a column, for a spreadsheet; they add up to the total."""
    where = ("sessionId", "railId", "turnIndex", "at") if answer["by"] == "prompt" else ()
    names = ("key", "kind", *where, "calls", "errors", "entered", "rideTokens")
    return [
        {
            **{name: row.get(name) for name in names},
            **row["usage"],
            "costUsd": row["costUsd"],
            "costPerCall": row["costPerCall"],
            "share": row["share"],
        }
        for row in answer["rows"]
    ]
