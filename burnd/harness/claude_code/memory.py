"""Memory of a transcript's reader: the tree of lines, open messages and prompts, and the output."""

from __future__ import annotations

import re
from collections.abc import Callable
from copy import copy
from operator import itemgetter
from typing import Final, Literal, TypeVar

import msgspec

from burnd.harness.anthropic import Bill, UsageObject
from burnd.harness.claude_code.lines import ClaudeLine, LineHead, LogPath
from burnd.harness.claude_code.state import (
    MAX_CANDIDATES,
    MAX_ENTRIES,
    MAX_GENERATIONS,
    MAX_LINKS,
    MAX_PROMPTS,
    MAX_RAILS,
    ClaudePrompt,
    ClaudeRail,
    ClaudeReading,
    ClaudeState,
    ContextLine,
    Entry,
    History,
    LineRows,
    Link,
    dump_state,
)
from burnd.logfiles.log_reader import NEVER, AgentLink, iso
from burnd.recording.candidate import Candidate, with_iterations
from burnd.recording.ownership import number_on_rail
from burnd.records import Block, Content, File, ToolResult, ToolUse
from burnd.records.content import MAIN, Kind, Role
from burnd.records.times import to_ms

_INSTANT_MS: Final = 1000
_LONGEST_CHAIN: Final = 1024
_PLAIN: Final = re.compile(r"[A-Za-z0-9_-]+")
V = TypeVar("V")


class Spot(msgspec.Struct, frozen=True, gc=False):
    """A line and its position: its rail, the link above it, its time.

    `name` is the line's uuid, or made from its offset; `above` is the newest line of the rail before it. `is_copied`:
    it was copied from another session (see `Memory.repeats`), by more than a second, since some lines are always
    slightly older than the first of their file. `is_strange`: see `Memory.is_strange`.
    """

    line: ClaudeLine
    rail: ClaudeRail
    parent: Link | None
    ts: str
    offset: int
    name: str
    above: str | None = None
    is_copied: bool = False
    is_strange: bool = False


class Memory:
    """The memory of a reader: its state, the rows since the last reading, and older rows while they are needed."""

    def __init__(
        self, path: LogPath, state: ClaudeState, history: History | None, read_again: Callable[[], LineRows]
    ) -> None:
        self.path = path
        self.state = state
        state.session_id = state.session_id or path.session_id
        self.history = history
        self._read_again = read_again
        self._has_past = history is not None and bool(state.rails)
        self._past: LineRows | None = None
        self.out = ClaudeReading()
        self._rows = LineRows()
        self._touched: dict[str, Candidate] = {}
        self.newest: Candidate | None = None  # the last one that was touched, as at most lines
        self.bill: tuple[UsageObject | None, Bill] = (None, Bill())  # the last one: most lines of a message repeat it

    @property
    def session_id(self) -> str:
        """The session of the path, else the first that a line names; it never changes once it was used."""
        if self.state.session_id is None:
            self.state.session_id = self.path.stem
        return self.state.session_id

    def send_meta(self) -> None:
        """Outputs an agent's meta file once; the file may appear after the transcript."""
        path = self.path
        if path.meta is None or path.rail_id is None or path.session_id is None or self.state.meta_sent:
            return
        self.state.meta_sent = True
        self.add_agent(
            path.rail_id,
            "meta",
            session_id=path.session_id,
            tool_use_id=path.meta.tool_use_id,
            type=path.meta.agent_type,
            group_id=path.meta.teammate_id,
        )

    # Lines.

    def locate(self, line: ClaudeLine, offset: int) -> Spot:
        state, path = self.state, self.path
        ts, birth, links = self.time_of(line.timestamp), state.birth, self._rows.links
        uuid = line.parent_uuid
        parent = None
        if uuid is not msgspec.UNSET and uuid is not None:
            parent = links.get(uuid) or state.links.get(uuid) or self.link(uuid)
        rail_id = path.rail_id or MAIN
        if line.is_sidechain and path.rail_id is None:
            rail_id = line.uuid or MAIN
            if parent is not None and parent.rail != MAIN:
                rail_id = parent.rail
            elif parent is None and uuid is not None:
                rail_id = next((rail for rail in reversed(state.rails) if rail != MAIN), rail_id)
        rail = state.rails.get(rail_id)
        if rail is None or len(state.rails) > 1:
            rail = self._rail(rail_id)
        if uuid is msgspec.UNSET or (parent is not None and parent.rail != rail_id):
            parent = self.link(rail.last)
        elif parent is None and uuid is not None:
            last = self.link(rail.last)
            turn, prompt = (last.turn, last.prompt) if last is not None else (None, None)
            parent = links[uuid] = Link(uuid, rail_id, offset, rail.last, turn, prompt)
        # Agents have files of their own, so the offset is unique within the session.
        name = line.uuid or (f"@{offset}" if rail_id == MAIN else f"{rail_id}@{offset}")
        is_early = birth is not None and ts < birth and to_ms(ts) < to_ms(birth) - _INSTANT_MS
        is_strange = line.session_id != path.session_id and self.is_strange(line)
        is_copied = is_early or is_strange or line.forked_from is not None
        return Spot(line, rail, parent, ts, offset, name, rail.last, is_copied, is_strange)

    def link(self, uuid: str | None) -> Link | None:
        if uuid is None:
            return None
        link = self._rows.links.get(uuid) or self.state.links.get(uuid)
        if link is None and self._has_past and (link := self.past(uuid).links.get(uuid)) is not None:
            self._rows.links[uuid] = link  # the next lines need it too
        return link

    def past(self, name: str | None = None) -> LineRows:
        """The rows of all lines before this reading, or none if no line has this name."""
        if self._past is None and self._has_past and self.history is not None:
            # A name that was made from an offset, or may be escaped in the log, cannot be searched for.
            if name is not None and _PLAIN.fullmatch(name) and not self.history.mentions(name.encode()):
                return _NO_ROWS
            self._past = self._read_again()
        return self._past or _NO_ROWS

    def add_link(
        self,
        spot: Spot,
        *,
        turn: str | None,
        prompt: str | None,
        is_response: bool = False,
        blocks: tuple[Block, ...] = (),
    ) -> None:
        parent = spot.parent.uuid if spot.parent is not None and not is_response else None
        rail = spot.rail
        self._rows.links[spot.name] = Link(spot.name, rail.id, spot.offset, parent, turn, prompt, is_response, blocks)
        if self.path.rail_id is None:
            self.out.offsets[spot.name] = spot.offset
        rail.last = spot.name

    def follow(self, spot: Spot, blocks: tuple[Block, ...] = ()) -> None:
        """Links a line that is neither message nor prompt: it continues the turn and prompt above it."""
        parent = spot.parent
        if parent is None:
            self.add_link(spot, turn=None, prompt=None, blocks=blocks)
        else:
            self.add_link(spot, turn=parent.turn, prompt=parent.prompt, blocks=blocks)

    def time_of(self, text: str | None) -> str:
        """A line's time in canonical form, or the last readable one."""
        state = self.state
        if text is not None and text == state.stamp:
            return text
        ts = iso(text)
        if ts is None:
            return state.stamp or NEVER
        state.stamp = ts
        if state.birth is None:
            state.birth = ts
        return ts

    def repeats(self, spot: Spot) -> bool:
        """Whether a line was copied from another session: it is marked, or older than the file."""
        birth, line = self.state.birth, spot.line
        return line.forked_from is not None or self.is_strange(line) or (birth is not None and spot.ts < birth)

    def is_strange(self, line: LineHead) -> bool:
        """Whether a line names another session than its file, as in a desktop app's fork."""
        return bool(line.session_id) and self.path.session_id not in (None, line.session_id)

    # Context of the next message.

    def add_entry(
        self,
        spot: Spot,
        blocks: tuple[Block, ...],
        answers: tuple[str, ...] = (),
        *,
        is_attachment: bool = False,
        text_key: str | None = None,
    ) -> None:
        if not blocks:
            return
        rail, parent = spot.rail, spot.parent.uuid if spot.parent is not None else None
        entry = Entry(spot.name, parent, spot.offset, rail.next_index, blocks, answers, is_attachment, text_key)
        rail.recent.append(entry)
        if len(rail.recent) > MAX_ENTRIES:
            del rail.recent[0]

    def original_of(self, spot: Spot, blocks: tuple[Block, ...], text_key: str | None) -> Link | None:
        for entry in spot.rail.recent:
            is_same = entry.blocks == blocks if text_key is None else entry.text_key == text_key
            if is_same and entry.uuid != spot.name:
                return self.link(entry.uuid)
        return None

    def new_context(self, rail: ClaudeRail, parent: Link | None) -> tuple[Block, ...]:
        """The blocks between a new message and the one above it: those on the chain, other results for the same message
        (parallel calls fork the chain), and attachments below them.
        """
        chain: dict[str, Link] = {}
        link = parent
        while link is not None and not link.is_response and link.uuid not in chain and len(chain) < _LONGEST_CHAIN:
            chain[link.uuid] = link
            link = self.link(link.parent)
        entries = [(link.offset, link.blocks) for link in chain.values() if link.blocks]
        included = set(chain)
        turn = parent.turn if parent is not None else None
        for entry in rail.recent:
            if entry.uuid in included:
                continue
            if turn in entry.answers or (entry.is_attachment and entry.parent in included):
                included.add(entry.uuid)
                entries.append((entry.offset, entry.blocks))
        entries.sort(key=itemgetter(0))
        return tuple([block for _, blocks in entries for block in blocks])

    def begin(self, rail: ClaudeRail, message_id: str) -> int:
        """Makes a message the newest of the rail, and drops entries that no later one can reach; returns its number."""
        if rail.open is not None:
            self.settle(rail.open)
        rail.open, place = message_id, rail.next_index
        rail.next_index += 1
        oldest = place - MAX_GENERATIONS
        if rail.recent and rail.recent[0].generation < oldest:
            rail.recent = [entry for entry in rail.recent if entry.generation >= oldest]
        if not rail.has_turns or self.history is None:
            return place
        recorded = self.history.turn_index(self.session_id, rail.id, message_id)
        number = number_on_rail(place, recorded, max(place + rail.ahead, self.state.counted.get(rail.id, 0)))
        rail.ahead = max(rail.ahead, number - place)
        return number

    # Messages, prompts, rails and agents.

    def candidate(self, message_id: str | None, rail: ClaudeRail | None = None) -> Candidate | None:
        """The candidate of a message; with a rail, the message may be new there."""
        if message_id is None:
            return None
        state, rows = self.state, self._rows
        if (newest := state.candidates.get(message_id)) is not None:
            return newest
        for candidates in (self._touched, state.unsettled, rows.candidates):
            if (candidate := candidates.get(message_id)) is not None:
                return candidate
        if not self._has_past or self.history is None:
            return None
        if rail is not None and self.history.turn_index(self.session_id, rail.id, message_id) is None:
            return None
        return self.past().candidates.get(message_id)

    def touch(self, candidate: Candidate) -> None:
        self.newest = candidate
        state, message_id = self.state, candidate.message_id
        if not candidate.restored:
            self._touched[message_id] = candidate
        if next(reversed(state.candidates), None) == message_id:
            return
        state.unsettled.pop(message_id, None)
        oldest = keep(state.candidates, message_id, candidate, MAX_CANDIDATES)
        if oldest is not None and not oldest.settled:
            state.unsettled[oldest.message_id] = oldest

    def without_output(self, read: Callable[[], str | None]) -> str | None:
        """Reads a restored line: it is remembered like any other, but all of it is recorded already."""
        out, before = self.out, self._touched
        self.out, self._touched, self.newest = ClaudeReading(counts=out.counts), {}, None
        try:
            return read()
        finally:
            for name, candidate in self._touched.items():
                candidate.settled = candidate.restored = True
                self._rows.candidates[name] = candidate
            self.out, self._touched, self.newest = out, before, None
            self.state.context.clear()

    def settle(self, message_id: str | None) -> None:
        candidate = self.candidate(message_id)
        if candidate is not None and not candidate.settled:
            candidate.settled = True
            self.touch(candidate)

    def prompt(self, prompt_id: str | None) -> ClaudePrompt | None:
        if prompt_id is None:
            return None
        prompt = self.state.prompts.get(prompt_id) or self._rows.prompts.get(prompt_id)
        return self.past().prompts.get(prompt_id) if prompt is None and self._has_past else prompt

    def has_prompt(self, line: str) -> bool:
        """Whether a line that is read again began a prompt; its parent is as old, so the past is there if needed."""
        rows = (self.state.prompts, self._rows.prompts, self._past.prompts if self._past is not None else ())
        return any(line in prompts for prompts in rows)

    def keep_prompt(self, prompt: ClaudePrompt) -> None:
        self._rows.prompts[prompt.id] = prompt
        keep(self.state.prompts, prompt.id, prompt, MAX_PROMPTS)

    def add_agent(
        self,
        agent_id: str,
        evidence: Literal["meta", "result", "prompt", "notification"],
        *,
        session_id: str | None = None,
        tool_use_id: str | None = None,
        type: str | None = None,  # noqa: A002
        group_id: str | None = None,
        ts: str = "",
    ) -> None:
        link = AgentLink(session_id or self.session_id, agent_id, evidence, tool_use_id, type, group_id, ts)
        self.out.agents.append(link)

    def record(
        self,
        spot: Spot,
        message_id: str,
        b: int,
        role: Role,
        kind: Kind,
        text: str | None = None,
        *,
        n: int = 0,
        use: ToolUse | None = None,
        result: ToolResult | None = None,
        file: File | None = None,
    ) -> None:
        """Adds block `b` of a line; the first one has what restoring the line needs beside its text.

        Text of lines copied from another session, which may be private, is not stored with a record of this one.
        """
        line, context, name, parent, lines = spot.line, self.state.context, None, None, None
        if b == 0 and line.uuid is not None:
            name = line.uuid if line.uuid != message_id else None
            above = line.parent_uuid if isinstance(line.parent_uuid, str) else None
            parent = (above or "") if above != spot.above else None
            if context:
                if not spot.is_copied:
                    context[:] = [ContextLine(one.uuid, one.parent_uuid) if one.copied else one for one in context]
                lines = msgspec.json.encode(context).decode()
                context.clear()
        self.out.content.append(
            Content(
                session_id=self.state.session_id or self.session_id,
                rail_id=spot.rail.id,
                message_id=message_id,
                n=n,
                b=b,
                ts=spot.ts,
                role=role,
                kind=kind,
                text=text,
                tool_use=use,
                tool_result=result,
                file=file,
                line=name,
                parent=parent,
                context=lines,
            )
        )

    def _rail(self, rail_id: str) -> ClaudeRail:
        rails = self.state.rails
        rail = rails.get(rail_id)
        if rail is None:
            rail = self._rows.rails.pop(rail_id, None) or self._new_rail(rail_id)
            if next(iter(rails), None) == MAIN:
                rails[MAIN] = rails.pop(MAIN)  # it is never removed
            oldest = keep(rails, rail_id, rail, MAX_RAILS)
            if oldest is not None:
                self.settle(oldest.open)
                self._rows.rails[oldest.id] = oldest
        elif len(rails) > 1:
            keep(rails, rail_id, rail, MAX_RAILS)
        return rails[rail_id]

    def _new_rail(self, rail_id: str) -> ClaudeRail:
        has_turns = self.history is not None and self.history.has_turns(self.session_id, rail_id)
        if has_turns and self._has_past and (rail := self.past(rail_id).rails.get(rail_id)) is not None:
            return rail
        rail = ClaudeRail(rail_id, has_turns=has_turns)
        meta = self.path.meta if rail_id != MAIN else None
        if meta is not None:
            rail.agent_type, rail.parent_tool_use_id = meta.agent_type, meta.tool_use_id
        if self.path.run_id is not None:
            self.add_agent(rail_id, "meta", group_id=self.path.run_id)
        return rail

    def take(self) -> ClaudeReading:
        out, state, links = self.out, self.state, self._rows.links
        for candidate in self._touched.values():
            candidate.late_born = state.birth is not None and state.birth > candidate.ts
            if candidate.billed_calls or candidate.submitted_calls:
                out.candidates += with_iterations(candidate)
            else:
                out.candidates.append(copy(candidate))
        state.links = dict([*state.links.items(), *links.items()][-MAX_LINKS:])
        out.session_id = state.session_id
        out.project = state.project if self.path.rail_id is None else None
        out.state = dump_state(state)
        self.out, self._rows, self._touched, self._past = ClaudeReading(), LineRows(), {}, None
        self.newest = None
        self._has_past = self.history is not None and bool(state.rails)
        return out

    def rows(self) -> LineRows:
        for name, candidate in self._touched.items():
            candidate.settled, candidate.submitted_calls = True, tuple([one.n for one in candidate.billed_calls])
            self._rows.candidates[name] = candidate
        self._rows.rails |= self.state.rails
        return self._rows


_NO_ROWS: Final = LineRows()


def keep(values: dict[str, V], key: str, value: V, most: int) -> V | None:
    """Puts a value last; removes and returns the first if there are too many."""
    values.pop(key, None)
    values[key] = value
    return values.pop(next(iter(values))) if len(values) > most else None
