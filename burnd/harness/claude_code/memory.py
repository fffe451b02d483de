"""A reader's memory: the state it carries, the rows it has given away, and what has come out since."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import TypeVar

import msgspec

from burnd.harness.claude_code.lines import Line, UsageLine
from burnd.harness.claude_code.place import Place
from burnd.harness.claude_code.state import (
    KEPT_HOLDINGS,
    KEPT_LINKS,
    KEPT_PROMPTS,
    KEPT_RAILS,
    Link,
    Lookups,
    Prompt,
    Rail,
    Reading,
    State,
    dump_state,
)
from burnd.harness.claude_code.usage import Bill, bill_of
from burnd.logfiles.log_reader import NEVER, AgentLink, iso
from burnd.recording.candidate import Candidate, with_iterations
from burnd.records import Block
from burnd.records.content import MAIN
from burnd.records.times import to_ms

_INSTANT_MS = 1000
V = TypeVar("V")


class Spot(msgspec.Struct, frozen=True, gc=False):
    """A line with where it stands: its rail, the link above it, its time.

    `name` is the line's uuid, or made from its offset where it has none.
    """

    line: Line
    rail: Rail
    parent: Link | None
    ts: str
    offset: int
    name: str


class Memory:
    """Finds rows wherever they are by now: in the state, in what is about to be given away, or in the lookups.

    What is found does not depend on when readings were taken, since a row is in one of the three from the line
    on that made it.
    """

    def __init__(self, place: Place, state: State, lookups: Lookups, *, keep_content: bool, keep_hashes: bool) -> None:
        self.place = place
        self.state = state
        state.facts.session_id = state.facts.session_id or place.session_id
        self.lookups = lookups
        self.keep_content = keep_content
        self.keep_hashes = keep_hashes
        self.out = Reading()
        self.touched: dict[str, Candidate] = {}
        self._billed: tuple[UsageLine | None, Bill] = (None, bill_of(None))

    @property
    def session_id(self) -> str:
        """The path's session or else the first that a line named; it never changes once it was needed."""
        facts = self.state.facts
        if facts.session_id is None:
            facts.session_id = self.place.stem
        return facts.session_id

    def tell_meta(self) -> None:
        """Give away, once, what the file beside an agent's transcript says; it may appear after the transcript."""
        place = self.place
        if place.meta is None or place.rail_id is None or place.session_id is None or self.state.meta_told:
            return
        self.state.meta_told = True
        meta = place.meta
        self.out.agents.append(
            AgentLink(
                place.session_id,
                place.rail_id,
                "meta",
                tool_use_id=meta.tool_use_id,
                type=meta.agent_type,
                group_id=meta.teammate_id,
            )
        )

    def link(self, uuid: str) -> Link | None:
        return self.out.links.get(uuid) or self.state.links.get(uuid) or self.lookups.link(uuid)

    def add_link(
        self,
        spot: Spot,
        *,
        turn: str | None,
        prompt: str | None,
        said: bool = False,
        blocks: tuple[Block, ...] = (),
    ) -> None:
        parent = spot.parent.uuid if spot.parent is not None and not said else None
        rail = spot.rail
        self.out.links[spot.name] = Link(spot.name, rail.id, spot.offset, parent, turn, prompt, said, blocks)
        rail.last = spot.name

    def follow(self, spot: Spot, blocks: tuple[Block, ...] = ()) -> None:
        """Link a line that is neither a message nor a prompt: it continues what is above it."""
        parent = spot.parent
        turn, prompt = (parent.turn, parent.prompt) if parent is not None else (None, None)
        self.add_link(spot, turn=turn, prompt=prompt, blocks=blocks)

    def assume(self, uuid: str, rail: Rail, offset: int) -> Link:
        """A link for a line that is not in the file: it is taken to follow the rail's last line."""
        last = self.link(rail.last) if rail.last is not None else None
        turn, prompt = (last.turn, last.prompt) if last is not None else (None, None)
        link = Link(uuid, rail.id, offset, rail.last, turn, prompt)
        self.out.links[uuid] = link
        return link

    def candidate(self, message_id: str) -> Candidate | None:
        held = self.state.candidates.get(message_id) or self.touched.get(message_id)
        if held is not None:
            return held
        found = self.lookups.candidate(message_id)
        return copy.copy(found) if found is not None else None

    def touch(self, candidate: Candidate) -> None:
        """Keep a candidate that was made or changed, and give it away with the next reading."""
        self.touched[candidate.message_id] = candidate
        _keep(self.state.candidates, candidate.message_id, candidate, KEPT_HOLDINGS)

    def settle(self, message_id: str | None) -> None:
        candidate = self.candidate(message_id) if message_id is not None else None
        if candidate is not None and not candidate.settled:
            candidate.settled = True
            self.touch(candidate)

    def bill(self, usage: UsageLine | None) -> Bill:
        """What a usage object says. The lines of a message mostly repeat one object."""
        if usage != self._billed[0]:
            self._billed = (usage, bill_of(usage))
        return self._billed[1]

    def prompt(self, prompt_id: str | None) -> Prompt | None:
        if prompt_id is None:
            return None
        known = self.state.prompts.get(prompt_id) or self.out.prompts.get(prompt_id)
        return known or self.lookups.prompt(prompt_id)

    def keep_prompt(self, prompt: Prompt) -> None:
        self.out.prompts[prompt.id] = prompt
        _keep(self.state.prompts, prompt.id, prompt, KEPT_PROMPTS)

    def rail(self, rail_id: str) -> Rail:
        rails = self.state.rails
        rail = rails.get(rail_id)
        if rail is None:
            rail = self._found_rail(rail_id) or self._new_rail(rail_id)
            _keep(rails, rail_id, rail, KEPT_RAILS, self._retire)
        elif len(rails) > 1:
            _keep(rails, rail_id, rail, KEPT_RAILS)
        return rail

    def _found_rail(self, rail_id: str) -> Rail | None:
        retired = self.out.rails.pop(rail_id, None)
        if retired is not None:
            return retired
        found = self.lookups.rail(rail_id)
        if found is None:
            return None
        rail = copy.copy(found)
        rail.recent = list(found.recent)
        return rail

    def _new_rail(self, rail_id: str) -> Rail:
        rail = Rail(rail_id, known=self.lookups.is_known(self.session_id, rail_id))
        meta = self.place.meta if rail_id != MAIN else None
        if meta is not None:
            rail.agent_type, rail.parent_tool_use_id = meta.agent_type, meta.tool_use_id
        if self.place.run_id is not None:
            self.out.agents.append(AgentLink(self.session_id, rail_id, "meta", group_id=self.place.run_id))
        return rail

    def _retire(self, rail: Rail) -> None:
        self.settle(rail.open)
        self.out.rails[rail.id] = rail

    def stamp(self, text: str | None) -> str:
        """A line's own time in canonical form, or the last one seen where it has none that can be read."""
        ts = iso(text)
        if ts is None:
            return self.state.stamp or NEVER
        facts = self.state.facts
        self.state.stamp = ts
        if facts.birth is None:
            facts.birth = ts
        if facts.first_ts is None or ts < facts.first_ts:
            facts.first_ts = ts
        if facts.last_ts is None or ts > facts.last_ts:
            facts.last_ts = ts
        return ts

    def repeats(self, spot: Spot) -> bool:
        """Whether a line was copied here from the log of another session: it says so, or is older than the file."""
        birth, line = self.state.facts.birth, spot.line
        return line.forked_from is not None or self.is_strange(line) or (birth is not None and spot.ts < birth)

    def is_copied(self, spot: Spot) -> bool:
        """Like the above, but with a tolerance: some lines are always slightly older than the first of their file."""
        birth = self.state.facts.birth
        if spot.line.forked_from is not None or self.is_strange(spot.line):
            return True
        return birth is not None and spot.ts < birth and to_ms(spot.ts) < to_ms(birth) - _INSTANT_MS

    def is_strange(self, line: Line) -> bool:
        """Whether a line names another session than its file is called by, as those do that an app's fork repeats."""
        return bool(line.session_id) and self.place.session_id not in (None, line.session_id)

    def take(self) -> Reading:
        out, state = self.out, self.state
        for candidate in self.touched.values():
            candidate.late_born = state.facts.birth is not None and state.facts.birth > candidate.ts
            out.candidates.extend(with_iterations(candidate))
        state.links = dict([*state.links.items(), *out.links.items()][-KEPT_LINKS:])
        out.facts = copy.copy(state.facts)
        out.session_id = state.facts.session_id
        out.project = state.facts.project if self.place.rail_id is None else None
        out.state = dump_state(state)
        self.out, self.touched = Reading(), {}
        return out


def _keep(kept: dict[str, V], key: str, value: V, most: int, retire: Callable[[V], None] | None = None) -> None:
    """Put a value last; the first goes when there are too many."""
    kept.pop(key, None)
    kept[key] = value
    if len(kept) > most:
        oldest = kept.pop(next(iter(kept)))
        if retire is not None:
            retire(oldest)
