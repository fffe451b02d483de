"""When to look again: all that looks now and then does so at the same moments, so that a daemon at rest wakes once."""

from __future__ import annotations

import math

import anyio


def next_look(after: float, every: float) -> float:
    """The first moment after this one at which whoever looks so often does, by the same clock."""
    if not every:
        return after
    moment = (math.floor(after / every) + 1) * every
    return moment if moment > after else moment + every  # fractions are never quite what they are called


async def rest(every: float) -> None:
    """Sleeps until it is time to look again."""
    now = anyio.current_time()
    await anyio.sleep(next_look(now, every) - now)
