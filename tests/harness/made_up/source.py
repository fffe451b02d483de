"""The made-up product as a source: its logs, followed by the log engine."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from burnd.harness.supervisor import SourceContext
from burnd.logfiles.follower import LogFollower
from burnd.logfiles.log_reader import Log, LogFormat, LogHistory
from burnd.recording.source import Source

from .product import PRODUCT
from .reader import MadeUpReader, load_state


class MadeUpLogs(LogFormat):
    """Logs that are named by the id of their session."""

    source: ClassVar[str] = PRODUCT.source

    def roots_below(self, folders: Iterable[str]) -> list[str]:
        return PRODUCT.logs_below(folders)

    def place_of(self, relative: str) -> str | None:
        return relative.removesuffix(".jsonl") if relative.endswith(".jsonl") and "/" not in relative else None

    def is_state(self, data: bytes) -> bool:
        return load_state(data) is not None

    def reader(self, log: Log, history: LogHistory) -> MadeUpReader:
        return MadeUpReader(log.place, load_state(log.state))


def make(context: SourceContext) -> Source:
    return LogFollower(MadeUpLogs(), context.logs(PRODUCT), context.pipeline)
