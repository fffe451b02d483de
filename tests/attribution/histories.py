"""Random histories as for summaries, with the content that entered each turn and its output."""

from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st

from burnd.records import Compaction, Copy, Turn
from burnd.records.times import to_iso
from tests.attribution.strategies import Dice, _entered, _made, _parent, _rest, _usage
from tests.queries import worlds

_ROLLS = 48
# Histories are lived on disk: to find the smallest that fails would take minutes.
ON_DISK = settings(
    deadline=None, suppress_health_check=list(HealthCheck), phases=(Phase.explicit, Phase.reuse, Phase.generate)
)


@st.composite
def turns(draw: st.DrawFn) -> Turn:
    """A turn of a summary's world with blocks and calls; its usage grows as a context does, or makes no sense."""
    plain = draw(worlds.turns())
    dice = Dice(draw(st.binary(min_size=_ROLLS, max_size=_ROLLS)))
    rest = _rest(dice)
    facts: dict[str, Any] = {
        "entered": _entered(dice),
        "made": _made(dice),
        "tool_calls": rest["tool_calls"],
        "parent": _parent(dice, plain.turn_index),
    }
    if plain.quality != "empty" and not dice.chance(3):
        facts["usage"] = _usage(dice, 4_000 * (plain.turn_index + 1))
    return msgspec.structs.replace(plain, **facts)


@st.composite
def compactions(draw: st.DrawFn) -> Compaction:
    n, session = draw(st.integers(0, 2)), draw(st.sampled_from(worlds.SESSIONS))
    return Compaction(
        source="claude-code", session_id=session, rail_id="main", id=f"k{n}", ts=to_iso(draw(worlds.times))
    )


@st.composite
def copies(draw: st.DrawFn) -> Copy:
    n, session = draw(st.integers(0, 7)), draw(st.sampled_from(worlds.SESSIONS))
    dice = Dice(draw(st.binary(min_size=_ROLLS, max_size=_ROLLS)))
    return Copy(
        source=draw(st.sampled_from(("claude-code", "opencode"))),
        session_id=session,
        rail_id="main",
        message_id=f"m{n}",
        turn_index=draw(st.sampled_from((n, n, n + 4))),
        ts=to_iso(draw(worlds.times)),
        entered=_entered(dice),
        made=_made(dice),
    )


entries = st.one_of(turns(), turns(), turns(), turns(), copies(), compactions(), worlds.stamps(), worlds.others)
deeds = st.lists(
    st.one_of(
        st.tuples(st.just("commit"), st.lists(entries, max_size=8)),
        st.tuples(st.just("commit"), st.lists(turns(), min_size=3, max_size=8)),
        st.tuples(st.just("open"), st.lists(turns(), max_size=2)),
        st.tuples(st.just("take back"), st.integers(0, 7)),
    ),
    max_size=6,
)
