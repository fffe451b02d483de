"""Random rails: plausible growth and nonsense, rewinds, compactions, forks, pauses, switches, missing sizes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from burnd.attribution.rail import RailEntry, in_order
from burnd.records import (
    Block,
    Compaction,
    Copy,
    MissStatement,
    PromptChange,
    RequestFacts,
    ServerTools,
    Subagent,
    ToolCall,
    Turn,
    Usage,
)
from tests.make import at, examples

T = TypeVar("T")
MODELS = ("claude-sonnet-4-5", "claude-sonnet-4-5", "claude-sonnet-4-5", "claude-opus-4-5", "gpt-5", "house-model")
THRESHOLDS = (128_000, 200_000)
ABSURD = 2**40
MISS_TYPES = (
    *("messages_changed", "tools_changed", "system_changed", "model_changed"),
    *("previous_message_not_found", "unavailable", "never heard of"),
)
ON_MANY_RAILS = settings(max_examples=examples(80), deadline=None, suppress_health_check=[HealthCheck.too_slow])


class Dice:
    """Choices taken from drawn bytes, one each: much quicker than drawing them, and zeros are the plain case."""

    def __init__(self, rolls: bytes) -> None:
        self._rolls = iter(rolls)

    def one_of(self, choices: Sequence[T]) -> T:
        return choices[next(self._rolls, 0) % len(choices)]

    def upto(self, most: int) -> int:
        return most * next(self._rolls, 0) // 255

    def chance(self, one_in: int) -> bool:
        return next(self._rolls, 0) % one_in == one_in - 1

    def size(self) -> int:
        return self.one_of((400, 4_000, 9_000, 0, 1, 2, 60_000, ABSURD, self.upto(9_000)))

    def tokens(self) -> int:
        return self.one_of((100, 700, 3_000, 0, 1, 200_000, ABSURD, self.upto(3_000)))

    def call_id(self) -> str:
        return f"c{self.upto(5)}"


def rails(most: int = 14) -> st.SearchStrategy[list[RailEntry]]:
    """The entries of one rail in order."""
    rolls = st.binary(min_size=most * 40, max_size=most * 40)
    return st.builds(rail_of, st.integers(1, most), rolls)


def rail_of(count: int, rolls: bytes) -> list[RailEntry]:
    dice = Dice(rolls)
    copied, linked = dice.one_of((0, 0, 0, 1, 3)), not dice.chance(4)
    turns: list[Turn] = []
    copies: list[Copy] = []
    compactions: list[Compaction] = []
    seconds, context = 0, dice.upto(30_000)
    for n in range(count):
        seconds += dice.one_of((5, 5, 5, 400, 4_000))
        facts: dict[str, Any] = {
            "source": "claude-code",
            "session_id": "s1",
            "rail_id": "main",
            "message_id": f"m{n:03d}",
            "turn_index": n,
            "parent": _parent(dice, n) if linked else None,
            "ts": at(seconds),
            "entered": _entered(dice),
            "made": _made(dice),
        }
        if n < copied or dice.chance(16):
            copies.append(Copy(**facts))
            continue
        usage = _usage(dice, context)
        context = usage.context or context
        turns.append(Turn(**facts, usage=usage, **_rest(dice)))
        if dice.chance(12):
            facts = {"source": "claude-code", "session_id": "s1", "rail_id": "main", "id": f"k{n}"}
            compactions.append(Compaction(**facts, ts=at(seconds + 1)))
    return in_order(turns, copies, compactions)


def _parent(dice: Dice, n: int) -> str | None:
    """Mostly the previous message, else an older one, an unknown one, or none."""
    how = dice.one_of(("before", "before", "before", "before", "before", "older", "older", "none", "lost"))
    if how == "lost" or (n == 0 and how == "older"):
        return "lost"
    if how == "none" or n == 0:
        return None
    return f"m{n - 1 if how == 'before' else dice.upto(n - 1):03d}"


def _entered(dice: Dice) -> tuple[Block, ...]:
    kinds = ("result", "prompt", "result", "reminder", "image", "file", "summary", "never heard of")
    found = []
    for _ in range(dice.one_of((1, 2, 0, 3))):
        kind = dice.one_of(kinds)
        called = kind == "result" or (kind in ("image", "file") and dice.chance(2))
        found.append(Block(kind=kind, bytes=dice.size(), call_id=dice.call_id() if called else None))
    return tuple(found)


def _made(dice: Dice) -> tuple[Block, ...]:
    found = []
    for _ in range(dice.one_of((1, 2, 0, 3))):
        kind = dice.one_of(("text", "call", "thinking", "result"))
        called = kind in ("call", "result")
        found.append(Block(kind=kind, bytes=dice.size(), call_id=dice.call_id() if called else None))
    return tuple(found)


def _usage(dice: Dice, context: int) -> Usage:
    """A bill for about this context: grown, read fully or partly, written in full, or unrelated."""
    said = {"output": dice.tokens(), "reasoning": dice.one_of((0, 0, 0, 50, 4_000))}
    how = dice.one_of(("hit", "hit", "hit", "miss", "part", "none", "uncached", "random", "shrunk"))
    grown = context + dice.upto(5_000)
    if how == "none":
        return Usage(**said)
    if how == "random":
        cache = {"cache_read": dice.tokens(), "cache_create_5m": dice.tokens(), "cache_create_1h": dice.tokens()}
        return Usage(input=dice.tokens(), **said, **cache)
    if how == "uncached":
        return Usage(input=grown, **said)
    if how == "shrunk":
        grown = context // (1 + dice.upto(3))
    read = {"hit": min(context, grown), "miss": 0, "part": dice.upto(grown), "shrunk": grown // 2}[how]
    rest = grown - read
    hour = dice.one_of((0, 0, rest, rest // 3))
    fresh = min(rest - hour, dice.upto(20))
    return Usage(input=fresh, cache_read=read, cache_create_5m=rest - hour - fresh, cache_create_1h=hour, **said)


def _stated(kind: str) -> MissStatement:
    return MissStatement(type=kind, tokens=9_000)


def _request(dice: Dice) -> RequestFacts | None:
    """Hashes that are mostly those of the request before."""
    if dice.chance(3):
        return None
    same = dice.one_of((8, 8, 8, None, 3))
    return RequestFacts(
        shape=dice.one_of(("s1", "s1", "s1", "s2", None)),
        params=dice.one_of(("p1", "p1", "p2", None)),
        effort=dice.one_of(("high", "high", "low", None)),
        messages=10,
        same=same,
        before=8 if same is not None else None,
        breakpoints=dice.one_of((3, 3, 0)),
    )


def _rest(dice: Dice) -> dict[str, Any]:
    names = {dice.call_id() for _ in range(dice.one_of((1, 0, 3)))}
    return {
        "model": dice.one_of(MODELS),
        "speed": dice.one_of((None, None, "fast")),
        "quality": dice.one_of(("final", "final", "final", "partial", "empty")),
        "server_tools": dice.one_of((None, None, ServerTools(search=3), ServerTools(fetch=1))),
        "subagent": dice.one_of((None, Subagent(agent_id="a1", parent_tool_use_id="c1"))),
        "request": _request(dice),
        "cache_miss": dice.one_of((None, None, *map(_stated, MISS_TYPES))),
        "prompt_changes": dice.one_of(((), (), (PromptChange(kind="mcp", name="git"),))),
        "tool_calls": tuple(
            ToolCall(
                id=name,
                name=dice.one_of(("Read", "Edit", "Bash", "WebSearch", "mcp__git__log")),
                target=dice.one_of((None, "/p/a.py", "/p/b.py")),
                args_hash=dice.one_of(("a1", "a2", None)),
                result_hash=dice.one_of(("r1", "r1", "r2", None)),
                is_error=dice.one_of((None, False, True)),
            )
            for name in sorted(names)
        ),
    }
