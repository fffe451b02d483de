"""The demo's sessions as data, and the base of the modules that write them in a product's format.

burnctl imports it, so it imports nothing of the daemon.
"""

from __future__ import annotations

from typing import Any, NamedTuple


class Ask(NamedTuple):
    words: str


class Agent(NamedTuple):
    kind: str
    task: str
    acts: list[Any]


class DemoCall(NamedTuple):
    tool: str
    arguments: dict[str, str]
    output: str
    failed: bool = False
    agent: Agent | None = None


class Say(NamedTuple):
    words: str
    calls: tuple[DemoCall, ...] = ()
    thinking: str = ""


class Wait(NamedTuple):
    minutes: float


class Compact(NamedTuple):
    """A summary replaces the context."""

    summary: str


Act = Ask | Say | Wait | Compact


class Story(NamedTuple):
    """A session of the demo, begun `ago_h` hours ago by the product with the source `harness`, stamped with `tags`.

    `more_prefix` are tokens that it begins with beyond the usual prefix.
    """

    title: str
    harness: str
    project: str
    branch: str
    model: str
    ago_h: float
    acts: list[Act]
    tags: tuple[tuple[str, str], ...] = ()
    more_prefix: int = 0


CACHE_LIFE_S = 300
BARE_TOKENS = 4  # the end of a request, which is never cached


def tokens(text: str) -> int:
    return max(1, len(text) // 4) if text else 0


class Meter:
    """Computes the usage of responses: cached tokens are read, the rest is written to the cache."""

    def __init__(self, prefix: int) -> None:
        self._prefix = prefix
        self._context = prefix
        self._cached = 0
        self._used_at = 0.0

    def respond(self, now: float, entered: int, made: int) -> dict[str, int]:
        if now - self._used_at > CACHE_LIFE_S:
            self._cached = 0
        self._context += entered
        read, self._cached = self._cached, self._context
        written = max(0, self._context - read - BARE_TOKENS)
        self._context += made
        self._used_at = now
        return {"input": BARE_TOKENS, "read": read, "write": written, "output": made}

    @property
    def context(self) -> int:
        return self._context

    def compact(self, summary: str) -> None:
        self._context = self._prefix + tokens(summary)
        self._cached = min(self._cached, self._prefix)


class Log:
    """A made-up log that grows act by act; each harness writes acts in its own way.

    `clock` is the time of the next act, in seconds since 1970.
    """

    def __init__(self, clock: float, prefix: int) -> None:
        self.clock = clock
        self.meter = Meter(prefix)
        self.entered = 0  # tokens since the last response

    def act(self, act: Act) -> None:
        if isinstance(act, Wait):
            self.clock += act.minutes * 60
        elif isinstance(act, Ask):
            self.ask(act)
            self.entered += input_tokens(act)
        elif isinstance(act, Compact):
            self.compact(act)
            self.entered = 0
        else:
            self.say(act)
            self.entered = input_tokens(act)

    def ask(self, act: Ask) -> None:
        raise NotImplementedError

    def say(self, act: Say) -> None:
        raise NotImplementedError

    def compact(self, act: Compact) -> None:
        raise NotImplementedError

    def respond(self, act: Say, tokens_a_second: int) -> dict[str, int]:
        self.clock += 2 + output_tokens(act) / tokens_a_second
        return self.meter.respond(self.clock, self.entered, output_tokens(act))


def output_tokens(act: Say) -> int:
    return tokens(act.words) + tokens(act.thinking) + sum(tokens(str(call.arguments)) + 20 for call in act.calls)


def input_tokens(act: Act) -> int:
    if isinstance(act, Say):
        return sum(tokens(call.output) for call in act.calls)
    return tokens(act.words) if isinstance(act, Ask) else 0
