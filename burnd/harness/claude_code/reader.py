"""Reads a Claude Code transcript line by line into candidates, content and the facts beside them."""

from __future__ import annotations

import re
from typing import Final

from burnd.harness.claude_code import lines as claude_lines
from burnd.harness.claude_code.beside import read_bare, read_system
from burnd.harness.claude_code.chain import spot_of
from burnd.harness.claude_code.inputs import read_attachment, read_user
from burnd.harness.claude_code.lines import BARE, IGNORED, TIMED, Line, branch_of, leading_type
from burnd.harness.claude_code.memory import Memory
from burnd.harness.claude_code.messages import read_assistant
from burnd.harness.claude_code.place import Place
from burnd.harness.claude_code.requests import awaits_response, report_attempts
from burnd.harness.claude_code.state import Lookups, NoLookups, Reading, State, dump_state
from burnd.logfiles.log_reader import cut_reason, iso, rejected, tally
from burnd.recording.candidate import Candidate
from burnd.records import folders
from burnd.records.foreign_json import Reason, Rejected, Repaired
from burnd.records.times import to_ms

_TIMESTAMP: Final = re.compile(rb'"timestamp":"([^"\\]{1,40})"')
_READ: Final = {
    "assistant": read_assistant,
    "user": read_user,
    "attachment": read_attachment,
    "system": read_system,
}


class ClaudeReader:
    """Feeds on the whole lines of one transcript, in file order.

    However the lines are cut into readings, and whether the state was carried in memory or stored and loaded,
    the readings add up to the same rows, given that `lookups` answers from all readings taken before. `place`
    is what the path tells; a `state` of None begins at the file's start, with empty lookups.
    """

    def __init__(
        self,
        place: Place,
        state: State | None = None,
        lookups: Lookups | None = None,
        *,
        keep_content: bool = True,
        keep_hashes: bool = True,
    ) -> None:
        self._memory = Memory(
            place, state or State(), lookups or NoLookups(), keep_content=keep_content, keep_hashes=keep_hashes
        )
        self._memory.tell_meta()

    def feed(self, line: bytes, offset: int) -> str | None:
        """Read one line, with or without its newline, that begins at `offset` in its file. Never raises.

        Returns the reason if the line, or part of it, could not be used.
        """
        counts = self._memory.out.counts
        counts.lines += 1
        kind = leading_type(line)
        if kind in IGNORED:
            self._skip(kind, line)
            return None
        if kind in BARE:
            return self._read_bare(line, offset)
        found = claude_lines.lines.decode(line, offset)
        if isinstance(found, Line):
            return self._read(found, line, offset)
        if isinstance(found, Repaired):
            for what in found.what:
                tally(counts.repaired, what)
            return self._read(found.value, line, offset) or cut_reason(found.what)
        return rejected(counts, found.reason)

    def flush(self, *, answered_only: bool = False) -> None:
        """Settle what is open: nothing more is expected, though it may still come."""
        for candidate in self.open_candidates():
            if candidate.answered or not answered_only:
                self._memory.settle(candidate.message_id)
        if not answered_only:
            report_attempts(self._memory)

    def waiting_sessions(self) -> set[str]:
        """The sessions with a message that may still grow, or a request without its response."""
        found = {candidate.session_id for candidate in self.open_candidates()}
        return found | {self._memory.session_id} if awaits_response(self._memory) else found

    def open_candidates(self) -> list[Candidate]:
        """The newest message of each rail while it is not settled."""
        newest = (self._memory.candidate(rail.open) for rail in self._memory.state.rails.values() if rail.open)
        return [candidate for candidate in newest if candidate is not None and not candidate.settled]

    def take(self) -> Reading:
        """All that came out since the last take, and the state to go on from."""
        return self._memory.take()

    def again(self) -> bytes:
        """The state to begin with when the transcript is read again: only how many messages were counted."""
        state = self._memory.state
        now = {rail.id: rail.next_index + rail.ahead for rail in state.rails.values()}
        most = {rail: max(now.get(rail, 0), state.counted.get(rail, 0)) for rail in now | state.counted}
        return dump_state(State(counted=most))

    def _skip(self, kind: str | None, line: bytes) -> None:
        tally(self._memory.out.counts.skipped, kind or "")
        facts = self._memory.state.facts
        if facts.birth is None and kind in TIMED:
            found = _TIMESTAMP.search(line)
            facts.birth = iso(found[1].decode("ascii", "replace")) if found else None

    def _read_bare(self, line: bytes, offset: int) -> Reason | None:
        found = claude_lines.bare_lines.decode(line, offset)
        if isinstance(found, Rejected):
            return rejected(self._memory.out.counts, found.reason)
        if isinstance(found, Repaired):
            for what in found.what:
                tally(self._memory.out.counts.repaired, what)
            found = found.value
        self._learn_session(found.session_id)
        read_bare(self._memory, found, offset)
        return None

    def _read(self, line: Line, raw: bytes, offset: int) -> Reason | None:
        if line.type in BARE:
            return self._read_bare(raw, offset)
        memory = self._memory
        self._learn(line)
        read = _READ.get(line.type) or (read_assistant if _is_untyped_answer(line) else None)
        if read is None and line.uuid is None:  # of no conversation: nothing could follow it
            self._pass_over(line)
            return None
        spot = spot_of(memory, line, memory.stamp(line.timestamp), offset)
        if read is not None:
            read(memory, spot)
            return None
        # A type that is not read may still be a link of the chain.
        memory.follow(spot)
        self._pass_over(line)
        return None

    def _pass_over(self, line: Line) -> None:
        counts = self._memory.out.counts
        self._memory.stamp(line.timestamp)
        tally(counts.skipped if line.type in IGNORED else counts.unknown, line.type or "(none)")

    def _learn_session(self, named: str | None) -> None:
        facts = self._memory.state.facts
        if facts.session_id is None and named:
            facts.session_id = self._memory.place.word or named

    def _learn(self, line: Line) -> None:
        self._learn_session(line.session_id)
        facts = self._memory.state.facts
        if facts.project is None:
            facts.project = folders.bounded(line.cwd)
        if line.version is not None:
            facts.version = line.version
            facts.git_branch = branch_of(line)
            facts.entrypoint = line.entrypoint
        if line.forked_from is not None and facts.forked_from is None:
            facts.forked_from = line.forked_from.session_id
        # Lines name the session that the process started with, even after /clear or /branch.
        out = self._memory.out
        forked_from = line.forked_from.session_id if line.forked_from is not None else None
        for origin, origins in ((line.process_session, out.process_origins), (forked_from, out.origins)):
            if origin and origin != facts.session_id and (ts := iso(line.timestamp)) is not None:
                origins[origin] = max(origins.get(origin, 0), to_ms(ts))


def _is_untyped_answer(line: Line) -> bool:
    """Whether a line that does not say what it is tells of a response: other tools write as little as that."""
    return not line.type and line.message is not None and line.message.usage is not None
