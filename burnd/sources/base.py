"""What every source offers the daemon and `status`; it knows neither files nor records."""

from __future__ import annotations

from typing import Literal, Protocol

import msgspec

State = Literal["watching", "polling", "waiting", "degraded", "absent"]


class Status(msgspec.Struct, frozen=True, gc=False):
    """How a source is doing, for a person: a word, and a sentence that says why."""

    name: str
    state: State
    detail: str
    files: int = 0
    pending: int = 0
    lag: float = 0.0  # seconds that the longest waiting piece of work has waited


class Source(Protocol):
    """A place turns come from. It is given its way into the pipeline when it is made."""

    @property
    def name(self) -> str: ...

    async def run(self) -> None:
        """Read until cancelled. Failures of single inputs are counted and shown, never raised."""
        ...

    def status(self) -> Status: ...
