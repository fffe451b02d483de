"""Measures attribution: `python -m tests.attribution.bench`. CPU time, best of several runs. A plain loop is timed as
well, and the ratio is reported, since machines differ."""

from __future__ import annotations

import gc
import random
import time
from collections.abc import Callable

from burnd.attribution.causes import explain, tally
from burnd.attribution.rail import Rail, RailEntry, restore, save
from burnd.attribution.segments import LENGTH
from burnd.records import Block, ToolCall, Turn, Usage
from tests.make import at

RUNS = 7
LOOP = 1_000_000
TOOLS = ("Read", "Bash", "Grep", "Edit")
THRESHOLDS = (200_000,)


def session(
    turns: int, *, files: int = 40, cached: bool = True, clients: int = 1, tokenizers: int = 1
) -> list[RailEntry]:
    """A session of about two blocks a turn, compacted at 150,000 tokens; one turn in fifty misses the cache."""
    dice = random.Random(turns)
    made: list[RailEntry] = []
    contexts, parents = [20_000] * clients, [None] * clients
    waiting: list[tuple[Block, ...]] = [(Block(kind="prompt", bytes=200),)] * clients
    before = [0] * clients
    for n in range(turns):
        client = n % clients
        context, parent, entered = contexts[client], parents[client], waiting[client]
        if context > 150_000:
            context, parent, before[client] = 24_000, None, 0
            entered = (Block(kind="summary", bytes=12_000),)
        counted = context * (100 + 30 * (n % tokenizers)) // 100
        read = min(before[client], counted) if cached and dice.random() > 0.02 else 0
        output = dice.randrange(50, 400)
        calls = (
            (ToolCall(id=f"c{n}", name=dice.choice(TOOLS), target=f"/p/{dice.randrange(files)}.py"),) if n % 12 else ()
        )
        blocks = tuple(Block(kind="call", bytes=120, call_id=call.id) for call in calls) or (
            Block(kind="text", bytes=300),
        )
        usage = Usage(input=5, cache_read=read, cache_create_5m=max(0, counted - read - 5), output=output)
        turn = Turn(
            source="claude-code",
            session_id="s",
            rail_id="main",
            message_id=f"m{n}",
            turn_index=n,
            parent=parent,
            ts=at(20 * n),
            model=f"model-{n % tokenizers}",
            usage=usage,
            tool_calls=calls,
            entered=entered,
            made=blocks,
            activity=("coding", "testing", "exploration")[n // 7 % 3],
        )
        made.append(turn)
        size = dice.randrange(100, 6_000)
        came = Block(kind="result", bytes=size, call_id=f"c{n}") if calls else Block(kind="prompt", bytes=400)
        waiting[client] = (came,)
        contexts[client] = context + output + (size // 4 + 8 if calls else 108)
        parents[client], before[client] = turn.message_id, usage.context  # type: ignore[call-overload]
    return made


def best(work: Callable[[], object]) -> float:
    times = []
    for _ in range(RUNS):
        gc.collect()
        begun = time.process_time()
        work()
        times.append(time.process_time() - begun)
    return min(times)


def plain_loop() -> None:
    total = 0
    for number in range(LOOP):
        total += number


def bucket_of(turn: Turn) -> tuple[str, str, str | None]:
    return (turn.ts[:13], turn.model, turn.activity)


def feed_all(entries: list[RailEntry]) -> Rail:
    rail = Rail()
    for entry in entries:
        rail.feed(entry)
    return rail


def in_pieces(entries: list[RailEntry]) -> None:
    """As an index keeps it: sums are taken of every piece of a rail."""
    rail = Rail()
    for begin in range(0, len(entries), LENGTH):
        tally(rail, entries[begin : begin + LENGTH], bucket_of)


def measure(name: str, entries: list[RailEntry]) -> None:
    turns = len(entries)
    rail = feed_all(entries)
    state = save(rail)
    figures = {
        "explain": best(lambda: explain(entries, THRESHOLDS)) * 1e3,
        "feed": best(lambda: feed_all(entries)) / turns * 1e6,
        "tally": best(lambda: in_pieces(entries)) / turns * 1e6,
        "save": best(lambda: save(rail)) * 1e3,
        "restore": best(lambda: restore(state)) * 1e3,
    }
    print(
        f"{name:34} {turns:6} turns  explain {figures['explain']:8.1f} ms   a turn: feed {figures['feed']:5.1f} us, "
        f"with sums {figures['tally']:5.1f} us   state {len(state):7} B, "
        f"save {figures['save']:5.1f} ms, restore {figures['restore']:5.1f} ms"
    )


def main() -> None:
    print(f"a plain loop of {LOOP:,}: {best(plain_loop) * 1e3:.0f} ms")
    for turns in (10, 1_000, 5_000, 10_000):
        measure("plain", session(turns))
    measure("400 files", session(5_000, files=400))
    measure("without a cache", session(5_000, cached=False))
    measure("two clients in turns", session(5_000, clients=2))
    measure("two tokenizers in turns", session(5_000, tokenizers=2))


if __name__ == "__main__":
    main()
