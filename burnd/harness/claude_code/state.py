"""What a reader of a Claude Code transcript remembers between lines, and the rows it can ask for again.

The state stays small however long a session grows: what falls out of it has been given away as rows before.
"""

from __future__ import annotations

from typing import Final, NamedTuple, Protocol

import msgspec

from burnd.classify.activity import Walk
from burnd.logfiles import log_reader as log
from burnd.recording.candidate import Candidate
from burnd.records import Block, Content

VERSION: Final = 5
KEPT_HOLDINGS: Final = 6
KEPT_RAILS: Final = 32
KEPT_PROMPTS: Final = 8
KEPT_LINKS: Final = 16
KEPT_REQUESTS: Final = 64
KEPT_ATTEMPTS: Final = 64
KEPT_ANSWERED: Final = 16
NO_RUN: Final = -1
UNREPORTED: Final = -1
KEPT_DELEGATIONS: Final = 64
KEPT_ENTRIES: Final = 256
KEPT_GENERATIONS: Final = 3


class Link(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """Where a line stands: its rail, the turn and the prompt at or above it, and its own blocks.

    `said` marks a line of a message; above any other line the chain goes on at `parent`, which is never
    dangling: a parent that is not in the file is taken to follow the rail's last line.
    """

    uuid: str
    rail: str
    offset: int
    parent: str | None = None
    turn: str | None = None
    prompt: str | None = None
    said: bool = False
    blocks: tuple[Block, ...] = ()


class Prompt(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A prompt by its word classes, and how far the retry walk over its turns has come."""

    id: str
    words: tuple[str, ...] = ()
    walk: Walk = Walk()


class Entry(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """Something that may enter the context of the rail's next message.

    `answers` are the messages whose calls it answers; one that `hangs` goes wherever its parent goes. `said` tells
    texts apart, by time and hash.
    """

    uuid: str
    parent: str | None
    offset: int
    generation: int
    blocks: tuple[Block, ...]
    answers: tuple[str, ...] = ()
    hangs: bool = False
    said: str | None = None


class Rail(msgspec.Struct, gc=False, array_like=True):
    """The main conversation or one sub-agent. `open` is its newest message, `last` its newest line.

    `next_index` counts the messages that are in the file, `ahead` those that were read and have left it. Messages of a
    rail that is `known` from before the file was begun may have their numbers already.
    """

    id: str
    next_index: int = 0
    ahead: int = 0
    known: bool = False
    last: str | None = None
    open: str | None = None
    prompted: bool = False
    agent_type: str | None = None
    parent_tool_use_id: str | None = None
    recent: list[Entry] = []


class Delegation(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A call that hands work to an agent and has no answer yet; the text only as a hash."""

    call_id: str
    prompt_hash: str
    type: str | None


class Attempt(msgspec.Struct, gc=False, array_like=True):
    """An `api-request` line without a response.

    `base` is the request it extends, `size` its number of parts, `adds` whether any of them are new. `shape` is a hash
    of its parameters, `run` counts prompts. `tokens` is a lower bound of its context, `reported` the bound in its
    record.
    """

    id: str
    ts: str
    model: str
    origin: str
    base: str | None
    adds: bool
    size: int
    shape: str
    run: int
    tokens: int = 0
    reported: int = UNREPORTED


class Answered(NamedTuple):
    """A request with a response: the tokens of its context, and its number of parts."""

    tokens: int
    size: int


class Facts(msgspec.Struct, omit_defaults=True):
    """What a transcript says of its session. `birth` is the first time written in the file."""

    session_id: str | None = None
    birth: str | None = None
    first_ts: str | None = None
    last_ts: str | None = None
    project: str | None = None
    git_branch: str | None = None
    version: str | None = None
    entrypoint: str | None = None
    forked_from: str | None = None


class State(msgspec.Struct, omit_defaults=True):
    """All that a reader needs to go on at the next line.

    `counted` says how many messages each rail had when the file was found to be another than was read.
    """

    version: int = VERSION
    stamp: str | None = None
    facts: Facts = msgspec.field(default_factory=Facts)
    rails: dict[str, Rail] = {}
    candidates: dict[str, Candidate] = {}
    prompts: dict[str, Prompt] = {}
    links: dict[str, Link] = {}
    requests: dict[str, None] = {}
    attempts: dict[str, Attempt] = {}
    answered: dict[str, Answered] = {}
    run: int = 0
    delegations: dict[str, Delegation] = {}
    titles: dict[str, tuple[int, str]] = {}  # how often each kind changed, and the hash of the last one
    meta_told: bool = False
    counted: dict[str, int] = {}


class Lookups(Protocol):
    """Rows that earlier readings of the same file gave away; None for what was never given.

    A file that is read again from its start has none: its old rows are to be forgotten first.
    """

    def link(self, uuid: str) -> Link | None:
        """The line with this uuid."""

    def prompt(self, prompt_id: str) -> Prompt | None:
        """The prompt whose line has this uuid."""

    def candidate(self, message_id: str) -> Candidate | None:
        """What this file said of a message."""

    def rail(self, rail_id: str) -> Rail | None:
        """A rail that had been quiet for so long that it left the state."""

    def is_known(self, session_id: str, rail_id: str) -> bool:
        """Whether messages of a rail are recorded, read from whichever file."""

    def number(self, session_id: str, rail_id: str, message_id: str) -> int | None:
        """Which number a recorded message has on its rail."""


class NoLookups:
    """The rows of a file that is read from its start."""

    def link(self, uuid: str) -> Link | None:  # noqa: ARG002
        return None

    def prompt(self, prompt_id: str) -> Prompt | None:  # noqa: ARG002
        return None

    def candidate(self, message_id: str) -> Candidate | None:  # noqa: ARG002
        return None

    def rail(self, rail_id: str) -> Rail | None:  # noqa: ARG002
        return None

    def is_known(self, session_id: str, rail_id: str) -> bool:  # noqa: ARG002
        return False

    def number(self, session_id: str, rail_id: str, message_id: str) -> int | None:  # noqa: ARG002
        return None


class SavedOutput(msgspec.Struct, frozen=True):
    """A result too big for its line: the file `tool-results/<name>` of the session holds the whole."""

    session_id: str
    rail_id: str
    message_id: str
    ts: str
    name: str
    call_id: str


class LeafTitle(NamedTuple):
    """A title that belongs to whichever session holds the leaf line, often another file's; it stands at `offset`."""

    leaf_uuid: str
    offset: int
    content: Content


class Reading(log.Reading, kw_only=True):
    """What came out of a transcript since the last time, with the rows to ask for again."""

    facts: Facts = msgspec.field(default_factory=Facts)
    titles: list[LeafTitle] = msgspec.field(default_factory=list)
    saved: list[SavedOutput] = msgspec.field(default_factory=list)
    links: dict[str, Link] = msgspec.field(default_factory=dict)
    prompts: dict[str, Prompt] = msgspec.field(default_factory=dict)
    rails: dict[str, Rail] = msgspec.field(default_factory=dict)


_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(State).decode


def dump_state(state: State) -> bytes:
    return _encode(state)


def load_state(data: bytes) -> State | None:
    """The state as it was stored; None when it is damaged or of another release: read the file again."""
    try:
        state = _decode(data)
    except (msgspec.MsgspecError, ValueError):
        return None
    return state if state.version == VERSION else None
