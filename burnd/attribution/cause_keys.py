"""Keys of the sums of causes: kind, tool, target, and the type of the subagent that paid."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from typing import Final, NamedTuple

from burnd.attribution.misses import MissGroup
from burnd.attribution.row import CauseGroup
from burnd.classify.tools import Kind as ToolKind
from burnd.classify.tools import kind as tool_kind
from burnd.index.store import keyed

# Levels are the reports that need the target of a cause. MISS and PROMPT describe the same tokens a second time (cache
# misses by reason, turns by prompt) and are in no sum with the others.
TOOL, FILE, COMMAND, NAMED, MISS, PROMPT = LEVELS = range(6)
PAID_LEVELS: Final = (TOOL, FILE, COMMAND, NAMED)  # together, every token once
MISSED: Final = "miss"
PROMPTED: Final = "prompted"

_LEVEL_OF: Final[dict[ToolKind, int]] = {
    "edit": FILE,
    "read": FILE,
    "shell": COMMAND,
    "delegate": NAMED,
    "skill": NAMED,
}
_SUBJECT_OF: Final[dict[ToolKind, str]] = {
    "edit": "file",
    "read": "file",
    "shell": "command",
    "delegate": "agent",
    "skill": "skill",
}


class CauseKey(NamedTuple):
    kind: str
    tool: str = ""
    target: str = ""
    agent: str = ""

    @property
    def level(self) -> int:
        if self.kind == MISSED:
            return MISS
        if self.kind == PROMPTED:
            return PROMPT
        return _LEVEL_OF.get(tool_kind(self.tool), TOOL) if self.kind == "call" else TOOL

    @property
    def whole(self) -> CauseKey:
        """For all targets of the tool."""
        return self._replace(target="") if self.level in PAID_LEVELS else self

    @property
    def subject(self) -> CauseKey:
        """For all tools and agents."""
        if self.level not in (FILE, COMMAND, NAMED):
            return self
        return CauseKey(_SUBJECT_OF[tool_kind(self.tool)], target=self.target)


class CauseNumber(NamedTuple):
    id: int
    level: int
    whole: int  # the number of its whole tool


def key_of(group: CauseGroup | MissGroup, agent: str) -> CauseKey:
    if isinstance(group, MissGroup):
        return CauseKey(MISSED, group.reason, group.proof, agent)
    key = CauseKey(group.kind, group.tool or "", group.target or "", agent)
    return key.whole if key.level == TOOL else key


def number_causes(db: sqlite3.Connection, keys: Iterable[CauseKey]) -> dict[CauseKey, CauseNumber]:
    """Creates rows of causes, their tools and subjects. Must run in a transaction."""
    causes = set(keys)
    wholes = {key.whole for key in causes}
    subjects = {key.subject for key in causes | wholes} - causes - wholes
    texts = {(text,) for key in causes | wholes | subjects for text in key[1:] if text}
    db.executemany("INSERT OR IGNORE INTO names(name) VALUES(?)", sorted(texts))
    names = {"": 0, **dict(keyed(db, "SELECT name, id FROM names WHERE name IN ({keys})", texts))}
    numbers: dict[CauseKey, CauseNumber] = {}
    for some in (subjects, wholes, causes - wholes):
        columns = {(key.kind, *(names[text] for text in key[1:])): key for key in sorted(some)}
        rows = [
            (*row, key.level, *(numbers[part].id if part in numbers else 0 for part in (key.whole, key.subject)))
            for row, key in columns.items()
        ]
        db.executemany(_INSERT, rows)
        numbers |= {columns[row[:4]]: CauseNumber(*row[4:]) for row in keyed(db, _SELECT, columns)}
    return {key: numbers[key] for key in causes}


_INSERT = "INSERT OR IGNORE INTO causes(kind, tool, target, agent, level, whole, subject) VALUES(?,?,?,?,?,?,?)"
_SELECT = """
WITH w(kind, tool, target, agent) AS ({keys})
SELECT c.kind, c.tool, c.target, c.agent, c.id, c.level, iif(c.whole, c.whole, c.id) FROM w
CROSS JOIN causes c ON c.kind = w.kind AND c.tool = w.tool AND c.target = w.target AND c.agent = w.agent
"""
NAMED_CAUSES: Final = """
SELECT c.id, c.kind, coalesce(t.name, ''), coalesce(g.name, ''), coalesce(a.name, '') FROM causes c
LEFT JOIN names t ON t.id = c.tool LEFT JOIN names g ON g.id = c.target LEFT JOIN names a ON a.id = c.agent
"""
