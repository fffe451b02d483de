"""Brings the steps a database tells of together with what the ledger knows: whose they are, and what stays said.

A database's rows change, go back to an older state and vanish, and a fork copies rows under new ids. Whatever was
seen of a step before counts all the same, and of several copies of one only the first is billed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from burnd.index.change import AgentRow, Known, OpenTurn
from burnd.index.store import IndexStore
from burnd.ledger.journal import Journal
from burnd.recording.batch import CameFrom, Told
from burnd.recording.candidate import FORKED, with_label_of
from burnd.recording.known import Outcome, agents_of, kept_agent, linked, open_turns, taken_back
from burnd.recording.numbers import numbered
from burnd.records import Copy, Turn, Usage
from burnd.records.codec import digest
from burnd.records.times import index_ms

Key = tuple[str, str]


class Steps:
    """Asked only by the one writer, so what it read stays true until it is written."""

    def __init__(self, index: IndexStore, journal: Journal) -> None:
        self._index = index
        self._journal = journal

    async def weigh(self, told: Sequence[Told], agents: Sequence[AgentRow]) -> Outcome:
        """What is to be said of these steps, and of others that they show to be copies."""
        outcome = Outcome()
        if not told:
            return outcome
        told = await numbered(self._index, told)
        known = await self._index.known_turns(sorted({one.key for one in told}))
        rivals = await self._rivals(told)
        links = await agents_of(self._index, [one.turn for one in told], agents)
        copies = _copies([*(one.turn for one in told), *rivals])
        sessions = {_key(turn): turn.session_id for turn in (*rivals, *(one.turn for one in told))}
        for turn in (*rivals, *(one.turn for one in told)):
            if (owner := copies.get(_key(turn))) is not None:
                origin = sessions[turn.source, owner]
                outcome.origins.append(CameFrom(turn.session_id, origin, index_ms(turn.ts)))
        for one in told:
            before = known.get(one.key)
            if (owner := copies.get(one.key)) is None:
                self._say(one, links.get((one.turn.session_id, one.turn.rail_id), ()), before, outcome)
                continue
            outcome.entries += [_copy(one.turn)] if one.settled else []
            outcome.entries += [taken_back(one.turn, owner)] if before is not None else []
        for turn in rivals:
            if (owner := copies.get(_key(turn))) is not None:
                outcome.entries += [taken_back(turn, owner), _copy(turn)]
        return outcome

    def _say(self, one: Told, links: Sequence[AgentRow], before: Known | None, outcome: Outcome) -> None:
        turn = linked(one.turn, links)
        if before is not None and before.rev and before.digest != digest(turn):
            said = before.entry_in(self._journal)
            turn = _kept(turn, said) if isinstance(said, Turn) else turn
        if one.settled:
            outcome.entries += [turn, *one.beside]
        elif before is None or not before.rev or before.open or before.digest != digest(turn):
            outcome.open.append(OpenTurn(turn, turn.source, one.path))

    async def _rivals(self, told: Sequence[Told]) -> list[Turn]:
        """Turns of other messages with the same time and model as one of these, where one of the two is a fork's."""
        sql = (
            "WITH wanted(ts, source, model) AS ({keys}) "
            "SELECT DISTINCT t.id, t.message_id, t.open, t.position, t.length FROM wanted w "
            "CROSS JOIN turns t ON t.ts = w.ts "
            "CROSS JOIN names s ON s.id = t.source AND s.name = w.source "
            "CROSS JOIN names m ON m.id = t.model AND m.name = w.model"
        )
        keys = {(index_ms(one.turn.ts), one.turn.source, one.turn.model) for one in told}
        own = {one.turn.message_id for one in told}
        found = await self._index.keyed(sql, sorted(keys))
        rows = [row for row in found if row[1] not in own]
        opened = await open_turns(self._index, [row[0] for row in rows if row[2]])
        turns = [opened[row[0]].turn if row[0] in opened else self._logged(row[3], row[4]) for row in rows]
        return [turn for turn in turns if turn is not None]

    def _logged(self, position: int | None, length: int | None) -> Turn | None:
        entry = self._journal.entry_at(position, length) if position is not None and length is not None else None
        return entry if isinstance(entry, Turn) else None


def _key(turn: Turn) -> Key:
    return (turn.source, turn.message_id)


def _copies(turns: Iterable[Turn]) -> dict[Key, str]:
    """Which of these turns are a fork's copies, and of which message each."""
    alike: defaultdict[tuple[str, str, str], list[Turn]] = defaultdict(list)
    for turn in turns:
        alike[turn.source, turn.ts, turn.model].append(turn)
    copies: dict[Key, str] = {}
    for group in alike.values():
        if len(group) > 1 and any(map(_is_forked, group)):
            copies |= _copies_among(sorted(group, key=_claim))
    return copies


def _copies_among(group: Sequence[Turn]) -> dict[Key, str]:
    copies = {}
    for n, turn in enumerate(group):
        others = (one for one in group[:n] if one.message_id != turn.message_id)
        owner = next((one for one in others if _is_copied_from(turn, one)), None) if _is_forked(turn) else None
        if owner is not None:
            copies[_key(turn)] = owner.message_id
    return copies


def _is_copied_from(turn: Turn, other: Turn) -> bool:
    """Tokens are copied with the rest; a copy that was made before the step had ended has none.

    Of an old row whose output holds the reasoning only its own session tells so: the copy is read as it stands.
    """
    whole = replace(other.usage, output=other.usage.output + other.usage.reasoning)
    return turn.usage in (other.usage, whole, Usage())


def _is_forked(turn: Turn) -> bool:
    return turn.basis is not None and bool(turn.basis.rank & FORKED)


def _claim(turn: Turn) -> tuple[bool, str, str, str]:
    """Whose message it is: the session's in which it was made, else of the fork's that was made first."""
    begun = (turn.basis.ts or "") if turn.basis is not None else ""
    return (_is_forked(turn), begun, turn.session_id, turn.message_id)


def _copy(turn: Turn) -> Copy:
    return Copy(
        source=turn.source,
        session_id=turn.session_id,
        rail_id=turn.rail_id,
        message_id=turn.message_id,
        turn_index=turn.turn_index,
        parent=turn.parent,
        ts=turn.ts,
        entered=turn.entered,
        made=turn.made,
        basis=turn.basis,
    )


def _kept(turn: Turn, said: Turn) -> Turn:
    """The turn as it is told now, without taking back what was said of it before."""
    if says_less(turn, said):
        return said
    same_project = turn.project_key is None and turn.project == said.project
    return replace(
        with_label_of(turn, said),
        project_key=said.project_key if same_project else turn.project_key,
        subagent=kept_agent(turn.subagent, said.subagent),
    )


def says_less(turn: Turn, said: Turn) -> bool:
    """Whether a row went back: a revert takes parts away, a backup an end. What was spent stays spent."""
    if turn.quality == "partial" and said.quality != "partial":
        return True
    if _tokens(turn.usage) < _tokens(said.usage):
        return True
    return len(turn.made) < len(said.made) or len(turn.tool_calls) < len(said.tool_calls)


def _tokens(usage: Usage) -> int:
    return usage.context + usage.output + usage.reasoning
