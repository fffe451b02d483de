"""State of a transcript's reader, bounded however long a session is.

Where a log refers back to a line that left it, which 2 of 114 real logs do, the log is read again.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple, Protocol

import msgspec

from burnd.classify.activity import Walk
from burnd.logfiles import log_reader as log
from burnd.recording.candidate import Candidate
from burnd.records import Block, Content, PromptChange, RequestFacts

VERSION: Final = 11
MAX_CANDIDATES: Final = 6
MAX_RAILS: Final = 32
MAX_PROMPTS: Final = 8
MAX_LINKS: Final = 64
MAX_REQUESTS: Final = 64
MAX_ATTEMPTS: Final = 64
MAX_ANSWERED: Final = 16
MAX_SENT: Final = 4
MAX_PARTS: Final = 512
MAX_MEMORY_FILES: Final = 64
MAX_CHANGES: Final = 8
MAX_PULLS: Final = 64
NO_RUN: Final = -1
UNREPORTED: Final = -1
MAX_DELEGATIONS: Final = 64
MAX_ENTRIES: Final = 256
MAX_GENERATIONS: Final = 3


class Link(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A line in the conversation's tree; a chain goes up through `parent` to a line that `is_response`."""

    uuid: str
    rail: str
    offset: int
    parent: str | None = None
    turn: str | None = None
    prompt: str | None = None
    is_response: bool = False
    blocks: tuple[Block, ...] = ()


class ClaudePrompt(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A prompt's word classes, and the retry walk over its turns."""

    id: str
    words: tuple[str, ...] = ()
    walk: Walk = Walk()


class Entry(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """Blocks that may enter the context of the rail's next message; `answers` are the messages with its calls."""

    uuid: str
    parent: str | None
    offset: int
    generation: int
    blocks: tuple[Block, ...]
    answers: tuple[str, ...] = ()
    is_attachment: bool = False
    text_key: str | None = None


class ClaudeRail(msgspec.Struct, gc=False, array_like=True):
    """The main conversation or one sub-agent. `open` is its newest message, `last` its newest line.

    `next_index` counts the messages in the file, `ahead` those recorded before that are no longer in it.
    """

    id: str
    next_index: int = 0
    ahead: int = 0
    has_turns: bool = False
    last: str | None = None
    open: str | None = None
    has_prompt: bool = False
    agent_type: str | None = None
    parent_tool_use_id: str | None = None
    recent: list[Entry] = []


class Delegation(msgspec.Struct, frozen=True, gc=False, array_like=True):
    call_id: str
    prompt_hash: str
    type: str | None


class Attempt(msgspec.Struct, gc=False, array_like=True):
    """An `api-request` line without a response; `run` counts prompts, `size` its parts, `adds` is whether any are new.

    `tokens` is a lower bound of its context, `reported` the bound in its record.
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
    tokens: int
    size: int


class Sent(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A request as its `api-request` line has it; `parts` has the first digits of its messages' hashes, if known."""

    id: str
    origin: str
    facts: RequestFacts
    parts: str | None = None


class ContextLine(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A line for the next content record, by its place: no text may be in a reader's state."""

    uuid: str
    parent_uuid: str | None
    at: tuple[int, int] | None = None
    copied: bool = False


class ClaudeState(msgspec.Struct, omit_defaults=True):
    """All that a reader needs to continue at the next line, except old rows.

    `birth` is the first time in the file, `stamp` the last. `unsettled` are open candidates older than `candidates`.
    `titles` has for each kind the number of changes and the last title's hash, `counted` the number of messages of each
    rail before the file was replaced, `latest` the last answered request of each origin, `changes` those of the prompt
    before the next response, `pull` a pull request named before it.
    """

    version: int = VERSION
    session_id: str | None = None
    project: str | None = None
    birth: str | None = None
    stamp: str | None = None
    rails: dict[str, ClaudeRail] = {}
    candidates: dict[str, Candidate] = {}
    unsettled: dict[str, Candidate] = {}
    prompts: dict[str, ClaudePrompt] = {}
    links: dict[str, Link] = {}
    requests: dict[str, None] = {}
    attempts: dict[str, Attempt] = {}
    answered: dict[str, Answered] = {}
    run: int = 0
    sent: dict[str, Sent] = {}
    latest: dict[str, Sent] = {}
    memory_files: dict[str, str] = {}
    changes: list[PromptChange] = []
    pulls: dict[str, None] = {}
    pull: str | None = None
    pull_calls: dict[str, None] = {}
    delegations: dict[str, Delegation] = {}
    titles: dict[str, tuple[int, str]] = {}
    meta_sent: bool = False
    counted: dict[str, int] = {}
    context: list[ContextLine] = []


class SavedOutput(msgspec.Struct, frozen=True):
    """A result too big for its line: the session's file `tool-results/<name>` has it in full."""

    session_id: str
    rail_id: str
    message_id: str
    ts: str
    name: str
    call_id: str


class LeafTitle(NamedTuple):
    """A title of the session with the leaf line, often in another file; its own line begins at `offset`."""

    leaf_uuid: str
    offset: int
    content: Content


class ClaudeReading(log.LogReading, kw_only=True):
    titles: list[LeafTitle] = msgspec.field(default_factory=list)
    saved: list[SavedOutput] = msgspec.field(default_factory=list)
    offsets: dict[str, int] = msgspec.field(default_factory=dict)  # of the lines of a main transcript, by uuid


class LineRows(msgspec.Struct):
    links: dict[str, Link] = {}
    prompts: dict[str, ClaudePrompt] = {}
    rails: dict[str, ClaudeRail] = {}
    candidates: dict[str, Candidate] = {}


class History(Protocol):
    """The turns recorded of one transcript, and its lines before those that are being read."""

    def has_turns(self, session_id: str, rail_id: str) -> bool:
        """Whether turns or copies of a rail are recorded."""

    def turn_index(self, session_id: str, rail_id: str, message_id: str) -> int | None:
        """The number of a recorded message on its rail."""

    def mentions(self, name: bytes) -> bool:
        """Whether an earlier line contains these bytes."""

    def lines(self) -> Iterable[tuple[int, bytes]]:
        """All earlier lines, with their offsets."""


_decode: Final = msgspec.msgpack.Decoder(ClaudeState).decode
dump_state: Final = msgspec.msgpack.Encoder().encode


def load_state(data: bytes) -> ClaudeState | None:
    return log.load_state(_decode, VERSION, data)
