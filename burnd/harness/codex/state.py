"""What a reader of a Codex rollout remembers between lines. It stays small however long a session grows."""

from __future__ import annotations

from typing import Final

import msgspec

from burnd.classify.activity import Walk
from burnd.harness.codex.usage import Recorded, Totals
from burnd.recording.candidate import Candidate
from burnd.records import Block, Subagent

SOURCE: Final = "codex"
VERSION: Final = 4
KEPT_HOLDINGS: Final = 8
KEPT_SUMS: Final = 8
KEPT_PROMPTS: Final = 64
KEPT_BLOCKS: Final = 256
KEPT_SPAWNS: Final = 64
KEPT_TASKS: Final = 8


class Place(msgspec.Struct, frozen=True):
    """What a rollout's path tells: whose it is, where its lines do not say."""

    session_id: str


class Prompt(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A prompt by its word classes, how far the retry walk over its turns has come, and the turn before it."""

    id: str
    words: tuple[str, ...] = ()
    after: str | None = None
    walk: Walk = Walk()


class About(msgspec.Struct, omit_defaults=True):
    """What the log says of its session. `root` is the first of the sessions whose past it repeats."""

    session_id: str | None = None
    root: str | None = None
    created_ms: int | None = None
    project: str | None = None
    project_key: str | None = None
    git_branch: str | None = None
    subagent: Subagent | None = None


class State(msgspec.Struct, omit_defaults=True):
    """All that a reader needs to go on at the next line.

    `sums` are those the meter told lately, `threads` those of the records, and `recorded` are the responses that were
    recorded and not metered yet. `begun` says that more was read than what is known of the session.
    `current` is the response that what comes may still be a part of, unless it is `closed`: then it only waits for
    its results. `entering` are the blocks that the next response will be given. A task is one
    request of a person and all that follows; `tasks` counts how often the meter was read in the newest ones.
    """

    version: int = VERSION
    stamp: str | None = None
    about: About = msgspec.field(default_factory=About)
    model: str = ""
    speed: str | None = None
    service_tier: str | None = None
    task: str | None = None
    tasks: dict[str, int] = {}
    sums: list[Totals] = []
    threads: list[Totals] = []
    recorded: list[Recorded] = []
    begun: bool = False
    candidates: dict[str, Candidate] = {}
    current: str | None = None
    closed: bool = False
    next_index: int = 0
    last_turn: str | None = None
    entering: list[Block] = []
    prompts: list[Prompt] = []
    prompt_count: int = 0  # including prompts that were rolled back
    spawns: dict[str, str] = {}
    quotas: dict[str, tuple[float, int]] = {}
    titles: int = 0


_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(State).decode


def dump_state(state: State) -> bytes:
    return _encode(state)


def load_state(data: bytes | None) -> State | None:
    """The state as it was stored; None when there is none, it is damaged or of another release."""
    if not data:
        return None
    try:
        state = _decode(data)
    except (msgspec.MsgspecError, ValueError):
        return None
    return state if state.version == VERSION else None
