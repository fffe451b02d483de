"""What sums of causes are told apart by: a cause, the level at which its targets matter, and where its turns belong."""

from __future__ import annotations

from typing import Final, NamedTuple

from burnd.attribution.blocks import Group
from burnd.attribution.misses import Reason
from burnd.classify.tools import Kind as ToolKind
from burnd.classify.tools import kind as tool_kind

# At TOOL all targets of a tool are one. The others tell apart what only some questions ask for.
TOOL, FILE, COMMAND, NAMED, MISS = range(5)
MISSED: Final = "miss"  # the kind of what is no cause of its own, but paid again: in no sum with the others
EVERY: Final = 0  # place or activity

_LEVELS: Final[dict[ToolKind, int]] = {
    "edit": FILE,
    "read": FILE,
    "shell": COMMAND,
    "delegate": NAMED,
    "skill": NAMED,
}
_SUBJECTS: Final[dict[ToolKind, str]] = {
    "edit": "file",
    "read": "file",
    "shell": "command",
    "delegate": "agent",
    "skill": "skill",
}


class CauseKey(NamedTuple):
    """Causes that are summed up as one; `agent` is the type of the agent on whose rail they were paid, if any."""

    kind: str
    tool: str = ""
    target: str = ""
    agent: str = ""

    @property
    def level(self) -> int:
        if self.kind == MISSED:
            return MISS
        return _LEVELS.get(tool_kind(self.tool), TOOL) if self.kind == "call" else TOOL

    @property
    def whole(self) -> CauseKey:
        return self._replace(target="")

    @property
    def subject(self) -> CauseKey:
        """What it was about, whichever tool and agent: the file, the command, the agent, the skill."""
        if self.level in (TOOL, MISS):
            return self
        return CauseKey(_SUBJECTS[tool_kind(self.tool)], target=self.target)

    def at(self, level: int) -> CauseKey | None:
        """What it is summed up as at a level, where it is."""
        if level == TOOL:
            return self.whole if self.level != MISS else None
        return self.subject if self.level == level else None


class Numbered(NamedTuple):
    """A cause's number, that of all its tool's targets together, that of its subject, and its level."""

    id: int
    whole: int
    subject: int
    level: int

    def at(self, level: int) -> int | None:
        """The number it is summed up under at a level, where it is."""
        if level == TOOL:
            return self.whole if self.level != MISS else None
        return self.subject if self.level == level else None


def numbered(number: int, level: int, whole: int, subject: int) -> Numbered:
    """As a row of the index has it, where 0 stands for itself."""
    return Numbered(number, whole or number, subject or number, level)


class Dims(NamedTuple):
    """Where turns are counted, in the numbers of the index.

    Each is twice: among all activities (`EVERY`) by quarters of an hour, and by its own, where `bucket` is a day. To
    keep activities by quarters of an hour would take five times the room.
    """

    bucket: int
    kind: int
    place: int
    branch: int
    subagent: int
    activity: int = EVERY


# Causes with their texts, which stand for themselves in the table `names`.
NAMED_CAUSES: Final = """
SELECT c.id, c.kind, coalesce(t.name, ''), coalesce(g.name, ''), coalesce(a.name, '') FROM causes c
LEFT JOIN names t ON t.id = c.tool LEFT JOIN names g ON g.id = c.target LEFT JOIN names a ON a.id = c.agent
"""


def key_of(what: Group | Reason, agent: str) -> CauseKey:
    """What a group of causes is called, or a cache miss."""
    if isinstance(what, str):
        return CauseKey(MISSED, what, "", agent)
    key = CauseKey(what.kind, what.tool or "", what.target or "", agent)
    return key.whole if key.level == TOOL else key
