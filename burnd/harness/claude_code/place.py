"""What the path of a Claude Code transcript tells: whose session it is, and which agent's rail."""

from __future__ import annotations

import re
from typing import Final

import msgspec

from burnd.records.foreign_json import Rejected, Repaired, SafeDecoder

_ENDING: Final = ".jsonl"
_AGENT: Final = "agent-"
_SUBAGENTS: Final = "subagents"
_WORKFLOWS: Final = "workflows"
_NO_SESSIONS: Final = frozenset({"memory", "journal"})
_NO_LOGS: Final = frozenset({"memory", "tool-results"})  # folders, but for that of a project, which may have any name


class Meta(msgspec.Struct, frozen=True, rename="camel"):
    """The `agent-<id>.meta.json` beside a sub-agent's transcript.

    A teammate has its `name` and its team's, and no call.
    """

    agent_type: str | None = None
    tool_use_id: str | None = None
    name: str | None = None
    team_name: str | None = None

    @property
    def teammate_id(self) -> str | None:
        """The id by which the call that started a teammate names it."""
        return f"{self.name}@{self.team_name}" if self.name and self.team_name else None


class Place(msgspec.Struct, frozen=True):
    """Where a transcript stands.

    `session_id` is None where only the lines know it, `rail_id` is None for a main transcript. `stem` stands
    in for a session id that neither the path nor any line tells. A `word` is the session's name if lines have one.
    `run_id` is the workflow run that an agent belongs to.
    """

    stem: str
    session_id: str | None = None
    rail_id: str | None = None
    meta: Meta | None = None
    word: str | None = None
    run_id: str | None = None


_metas: Final = SafeDecoder(Meta)
# Files that other tools made may stand in a folder for each session and all be called `chat`.
_WORD: Final = re.compile(r"[A-Za-z_-]{1,11}")


def place_of(relative_path: str) -> Place | None:
    """The place of a file given by its path below `projects/`, or None where it is no transcript."""
    *folders, name = relative_path.split("/")
    stem = name.removesuffix(_ENDING)
    if stem in ("", name, _AGENT, *_NO_SESSIONS) or stem.startswith(".") or _NO_LOGS.intersection(folders[1:]):
        return None
    rail_id = stem.removeprefix(_AGENT) if stem.startswith(_AGENT) else None
    if _SUBAGENTS in folders[2:]:
        if rail_id is None:
            return None
        run_id = folders[-1] if folders[-2] == _WORKFLOWS else None
        session_id = folders[folders.index(_SUBAGENTS, 2) - 1]
        return Place(stem=stem, session_id=session_id, rail_id=rail_id, run_id=run_id)
    if rail_id is None and len(folders) > 1 and _WORD.fullmatch(stem):
        return Place(stem=folders[-1], word=stem)
    return Place(stem=stem, session_id=stem if rail_id is None else None, rail_id=rail_id)


def meta_path(relative_path: str) -> str | None:
    """Where a sub-agent's facts would stand; None for a transcript that has none."""
    place = place_of(relative_path)
    if place is None or place.rail_id is None:
        return None
    return relative_path.removesuffix(_ENDING) + ".meta.json"


def with_meta(place: Place, data: bytes) -> Place:
    """The same place with the facts of its meta file; what cannot be read changes nothing."""
    found = _metas.decode(data, 0)
    if isinstance(found, Rejected):
        return place
    meta = found.value if isinstance(found, Repaired) else found
    return msgspec.structs.replace(place, meta=meta)
