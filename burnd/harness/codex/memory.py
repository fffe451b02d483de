"""A Codex reader's memory: the state it carries, where it is in its log, and what has come out since."""

from __future__ import annotations

import copy
from typing import Final

import msgspec

from burnd.harness.codex.state import KEPT_BLOCKS, KEPT_HOLDINGS, SOURCE, Place, Prompt, State, dump_state
from burnd.logfiles.log_reader import NEVER, Reading, iso
from burnd.recording.candidate import Candidate
from burnd.records import Block, Content, Event, File, ToolResult, ToolUse
from burnd.records.content import MAIN, Kind, Role
from burnd.records.times import to_iso, to_ms

_UUID_PARTS: Final = [8, 4, 4, 4, 12]
_AGES_S: Final = 10_000_000_000


class Spot(msgspec.Struct, frozen=True, gc=False):
    """Where a line stands: its time, and a name that no other line of its file has."""

    ts: str
    name: str


class Memory:
    """What is known so far, and what is to be given away with the next reading."""

    def __init__(self, place: Place, state: State) -> None:
        self.place = place
        self.state = state
        self.out = Reading()
        self.touched: dict[str, Candidate] = {}

    @property
    def session_id(self) -> str:
        """The session that the log's first line names, or else its path."""
        about = self.state.about
        if about.session_id is None:
            about.session_id = self.place.session_id
        return about.session_id

    @property
    def root(self) -> str:
        return self.state.about.root or self.session_id

    @property
    def current(self) -> Candidate | None:
        return self.state.candidates.get(self.state.current or "")

    @property
    def prompt(self) -> Prompt | None:
        return self.state.prompts[-1] if self.state.prompts else None

    def stamp(self, when: str | float | None) -> str:
        """A line's own time in canonical form, or the last one seen where it has none that can be read."""
        ts = iso(when) if when is None or isinstance(when, str) else to_iso(_milliseconds(when))
        if ts is None:
            return self.state.stamp or NEVER
        self.state.stamp = ts
        return ts

    def repeats(self, ts: str) -> bool:
        """Whether what is read now was copied here from another session's log: it is older than this session.

        A fork's log repeats its parent's lines with the times of copying, but a task's id tells when it was begun.
        """
        born = self.state.about.created_ms
        if born is None:
            return False
        begun = born_at(self.state.task)
        return (to_ms(ts) if begun is None else begun) < born

    def repeats_parent(self, ts: str) -> bool:
        """Whether it is an agent's log that repeats the session that started it.

        One session may start hundreds, each with all of its past: that is context they were given, and no copies.
        """
        return self.state.about.subagent is not None and self.repeats(ts)

    def touch(self, candidate: Candidate) -> None:
        """Keep a candidate that was made or changed, and give it away with the next reading."""
        self.touched[candidate.message_id] = candidate
        kept = self.state.candidates
        kept.pop(candidate.message_id, None)
        kept[candidate.message_id] = candidate
        if len(kept) > KEPT_HOLDINGS:
            del kept[next(name for name in kept if name != self.state.current)]

    def settle(self, candidate: Candidate | None) -> None:
        if candidate is not None and not candidate.settled:
            candidate.settled = True
            self.touch(candidate)

    def enter(self, *blocks: Block) -> None:
        """What the next response will be given besides all before."""
        entering = self.state.entering
        entering += blocks
        if len(entering) > KEPT_BLOCKS:
            # So much at once is rare: what is oldest is told as one.
            spare = entering[: len(entering) - KEPT_BLOCKS + 1]
            entering[: len(spare)] = [Block(kind="reminder", bytes=sum(block.bytes for block in spare))]

    def keep(
        self,
        spot: Spot,
        message_id: str,
        role: Role,
        kind: Kind,
        text: str | None = None,
        *,
        n: int = 0,
        b: int = 0,
        tool_use: ToolUse | None = None,
        tool_result: ToolResult | None = None,
        file: File | None = None,
    ) -> None:
        """Content, but for what an agent's log repeats of the session that started it."""
        if self.repeats_parent(spot.ts):
            return
        if self.repeats(spot.ts):
            self.out.copied.append(message_id)
        self.out.content.append(
            Content(
                session_id=self.session_id,
                rail_id=MAIN,
                message_id=message_id,
                n=n,
                b=b,
                ts=spot.ts,
                role=role,
                kind=kind,
                text=text,
                tool_use=tool_use,
                tool_result=tool_result,
                file=file,
            )
        )

    def note(self, spot: Spot, what: str) -> None:
        """Record that something happened beside the turns, unless another log's past is being repeated."""
        if self.repeats(spot.ts):
            return
        self.out.events.append(
            Event(
                source=SOURCE,
                session_id=self.session_id,
                rail_id=MAIN,
                id=spot.name,
                ts=spot.ts,
                name=what,
                message_id=self.state.current,
            )
        )

    def take(self) -> Reading:
        out = self.out
        out.candidates = [copy.copy(candidate) for candidate in self.touched.values()]
        out.session_id = self.state.about.session_id
        out.state = dump_state(self.state)
        self.out, self.touched = Reading(), {}
        return out


def _milliseconds(number: float) -> int:
    """A time as a number: of seconds, or of milliseconds where that many seconds are ages away."""
    return int(number if abs(number) > _AGES_S else number * 1000)


def is_uuid(text: str | None) -> bool:
    """Whether an id is unique by itself; some releases and clients only number their tasks."""
    return text is not None and [len(part) for part in text.split("-")] == _UUID_PARTS


def born_at(thread_or_task: str | None) -> int | None:
    """When a thread or a task was begun, in milliseconds: newer ids are UUIDs that tell. None for any other."""
    if thread_or_task is None or not is_uuid(thread_or_task) or thread_or_task[14] != "7":
        return None
    try:
        return int(thread_or_task[:8] + thread_or_task[9:13], 16)
    except ValueError:
        return None
