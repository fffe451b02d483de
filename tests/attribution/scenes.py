"""Makes rails turn by turn with given sizes, so that tests can state the cost of each block."""

from __future__ import annotations

from typing import Any

from burnd.attribution.causes import Cause, CauseShare, Explained, anatomy, explain
from burnd.attribution.rail import RailEntry
from burnd.attribution.rates import Spent
from burnd.records import Block, Compaction, Copy, ToolCall, Turn, Usage
from tests.make import at

MODEL = "claude-sonnet-4-5"


def call(name: str = "Read", target: str | None = "/p/a.py", call_id: str = "c1", **more: Any) -> ToolCall:
    return ToolCall(id=call_id, name=name, target=target, **more)


def prompt(size: int = 400) -> Block:
    return Block(kind="prompt", bytes=size)


def result(size: int, call_id: str = "c1") -> Block:
    return Block(kind="result", bytes=size, call_id=call_id)


def said(kind: str = "text", size: int = 400, call_id: str | None = None) -> Block:
    return Block(kind=kind, bytes=size, call_id=call_id)


class Scene:
    """A rail that is written down turn by turn. Each turn reads from the cache what the one before it had."""

    def __init__(self, session_id: str = "s1", rail_id: str = "main", **facts: Any) -> None:
        self.entries: list[RailEntry] = []
        self._ids: dict[str, Any] = {"source": "claude-code", "session_id": session_id, "rail_id": rail_id, **facts}
        self._seconds = 0
        self._before = 0
        self._parent: str | None = None

    @property
    def turns(self) -> list[Turn]:
        return [entry for entry in self.entries if isinstance(entry, Turn)]

    def turn(self, context: int, output: int = 0, *, read: int | None = None, pause: int = 10, **more: Any) -> Turn:
        """A turn with this context, of which `read` (else all there was before) came from the cache."""
        n = len([entry for entry in self.entries if not isinstance(entry, Compaction)])
        self._seconds += pause
        read = min(self._before, context) if read is None else read
        facts: dict[str, Any] = {
            "message_id": f"{self._ids['rail_id']}-{n}",
            "turn_index": n,
            "parent": self._parent,
            "ts": at(self._seconds),
            "model": MODEL,
            "usage": Usage(input=context - read, cache_read=read, output=output),
        }
        made = Turn(**self._ids, **facts | more)
        self.entries.append(made)
        self._before = made.usage.context
        self._parent = made.message_id
        return made

    def copy(self, *blocks: Block) -> None:
        n = len(self.entries)
        name = f"{self._ids['rail_id']}-{n}"
        facts: dict[str, Any] = {"message_id": name, "turn_index": n, "parent": self._parent, "ts": at(self._seconds)}
        self.entries.append(Copy(**self._ids, **facts, entered=blocks))
        self._parent = name

    def compaction(self) -> None:
        self._seconds += 1
        self.entries.append(Compaction(**self._ids, id=f"k{len(self.entries)}", ts=at(self._seconds)))

    def opened(self, message_id: str) -> tuple[CauseShare, ...]:
        found = anatomy(self.entries, message_id)
        assert found is not None
        return found.parts

    def explained(self) -> Explained:
        return explain(self.entries, ())


def only(explained: Explained, kind: str, **facts: Any) -> Cause:
    """The one cause of a kind, with these facts where several are of it."""
    found = [c for c in explained.causes if c.kind == kind and all(getattr(c, k) == v for k, v in facts.items())]
    assert len(found) == 1, found
    return found[0]


def paid(cause: Cause) -> Spent:
    """Total paid for a cause, over all rates."""
    total = Spent()
    for spent in cause.spent.values():
        total = total.plus(spent)
    return total


def worked_example() -> Scene:
    """A result of 8,000 tokens that is sent again in twenty turns."""
    scene = Scene()
    scene.turn(20_108, 60, entered=(prompt(),), made=(said("call", 120, "c1"),), tool_calls=(call(),))
    scene.turn(28_168, 100, entered=(result(30_000),), made=(said(),))
    for n in range(1, 21):
        scene.turn(28_168 + 150 * n, 100, entered=(prompt(168),), made=(said(),))
    return scene
