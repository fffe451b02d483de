"""What every source offers the daemon and `status`; it knows neither files nor records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, Protocol, runtime_checkable

import msgspec

State = Literal["watching", "polling", "waiting", "degraded", "absent"]


class Progress(msgspec.Struct, frozen=True, gc=False):
    """Progress of reading old logs, in bytes; `total` is 0 if the size is unknown."""

    done: int
    total: int
    per_second: float


class UnusedLine(msgspec.Struct, frozen=True, gc=False):
    """A line of a log or a row of a database that could not be used, or only in part: its place and the reason."""

    path: str
    offset: int
    size: int
    reason: str
    row: str | None = None  # its table and id; a line has none


class UnusedInAll(msgspec.Struct, frozen=True):
    """Unusable lines or rows: how many, how many of them may still be completed, and the first ones."""

    count: int = 0
    unfinished: int = 0
    lines: Sequence[UnusedLine] = ()


class LeftAlone(msgspec.Struct, frozen=True):
    """Files or folders that are not read, for one reason: how many, the first of them, and what to do about it.

    It `is_normal` where nothing need be done, unless somebody misses something.
    """

    reason: str
    why: str
    count: int
    paths: tuple[str, ...]
    remedy: str
    is_normal: bool


class Status(msgspec.Struct, frozen=True):
    """How a source is doing, for a person: a word, and a sentence that says why.

    `counts` are of what was read and passed over; `remedy` says what a person can do about a state that is not
    as it should be. Until it `has_looked` once, nobody knows how much there is to read.
    """

    name: str
    state: State
    detail: str
    files: int = 0
    pending: int = 0
    lag: float = 0.0  # seconds that the longest waiting piece of work has waited
    progress: Progress | None = None
    counts: Mapping[str, int] = {}
    unused: UnusedInAll = UnusedInAll()
    left_alone: Sequence[LeftAlone] = ()
    remedy: str = ""
    has_looked: bool = True
    blocked: str = ""  # why reading does not go on at the moment


class Source(Protocol):
    """A place turns come from. It is given its way into the pipeline when it is made."""

    @property
    def name(self) -> str: ...

    async def run(self) -> None:
        """Read until cancelled. Failures of single inputs are counted and shown, never raised."""
        ...

    async def flush(self, session_id: str | None = None) -> str | None:
        """Record everything there is to read and settle open turns, of one session if it is named.

        Returns None when all is recorded, else why some of it is not. Called while `run` runs, and cancelled when
        that ends.
        """
        ...

    def status(self) -> Status: ...


@runtime_checkable
class Rooted(Protocol):
    """A source that can be told of more places to read while it runs."""

    def add_roots(self, folders: Sequence[str]) -> None:
        """Read these as well from now on: folders as the harness itself is told them."""
        ...
