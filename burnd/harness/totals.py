"""The result of a harness's quick pass, and reading the lines of a log for it.

A quick pass reads what totals need and nothing else, in seconds where the full read takes minutes. Each harness has
one in its package, beside its reader and with the same candidates, so that `recording.ownership` decides as it does
for the full read. `quick_pass` runs them over all logs.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, BinaryIO, Final, NamedTuple

import msgspec

from burnd.harness.product import Product
from burnd.index.keys import path_key
from burnd.logfiles.scanner import below, open_regular, present, walk
from burnd.logfiles.tail import MAX_LINE
from burnd.recording.candidate import Candidate
from burnd.records import Compaction, Overhead, Request, Session
from burnd.settings.config import Settings

_BLOCK: Final = 1 << 20


class LogTask(NamedTuple):
    """A log, or the databases of a harness; `module` has the quick pass that reads it."""

    module: str
    paths: tuple[str, ...]
    root: str
    changed: float
    size: int
    options: Any = None

    @property
    def path(self) -> str:
        return self.paths[0]

    def open(self) -> BinaryIO:
        """The log, opened only if it is a regular file of ours. Raises Refused or OSError."""
        return os.fdopen(open_regular(self.path, root=self.root), "rb", buffering=_BLOCK)


class PassRequest(msgspec.Struct):
    """What a process that runs a pass for the daemon is given. `path` is that of the index to write."""

    home: str
    path: str
    sources: list[str]
    announced: dict[str, list[str]]


class Places(NamedTuple):
    """The settings and the environment that name folders of logs, and those that clients announced, by source."""

    settings: Settings
    environ: Mapping[str, str]
    user_home: str
    announced: Mapping[str, list[str]] = MappingProxyType({})

    def logs(self, product: Product) -> list[str]:
        """The folders of logs of a product, or its databases."""
        extra = [*self.settings.roots_of(product), *self.announced.get(product.source, ())]
        return product.logs(self.environ, self.user_home, extra)

    def files(
        self, product: Product, module: str, suffixes: tuple[str, ...], place_of: Callable[[str], object | None]
    ) -> list[LogTask]:
        """A task for each log file; `place_of` is None for a path that is no log."""
        return files_below(self.logs(product), module, suffixes, place_of)


def files_below(
    folders: Iterable[str], module: str, suffixes: tuple[str, ...], place_of: Callable[[str], object | None]
) -> list[LogTask]:
    """A task for each log file below these folders."""
    tasks: dict[str, LogTask] = {}
    for root in present(folders):
        for entry in walk(root.path, suffix=suffixes):
            if place_of(path_key(below(entry.path, root.path))) is not None:
                tasks[entry.path] = LogTask(module, (entry.path,), root.path, entry.mtime, entry.size)
    return list(tasks.values())


class LogTotals(msgspec.Struct, array_like=True):
    """All that one log or database adds to totals. Candidates have no calls, blocks or prompts.

    `session_id` and `project` are those of the log's session if no record states them, `folder` is the log's own.
    `needs_keys`: the keys of projects are looked up, not stated.
    """

    source: str
    session_id: str | None = None
    project: str | None = None
    candidates: list[Candidate] = []
    sessions: list[Session] = []
    overheads: list[Overhead] = []
    requests: list[Request] = []
    compactions: list[Compaction] = []
    folder: str | None = None
    needs_keys: bool = False


def without_content(candidate: Candidate) -> Candidate:
    """The candidate as totals need it; of its calls only those with billed searches."""
    candidate.settled = True
    candidate.calls = tuple([call for call in candidate.calls if call.searches])
    candidate.entered = candidate.made = ()
    candidate.files = candidate.lines = candidate.prompt_words = ()
    candidate.prints = ()
    return candidate


def lines_in(file: BinaryIO, most: int | None = None) -> Iterator[tuple[int, bytes]]:
    """The lines of a log with their offsets, as `logfiles.tail` has them.

    Blank lines and those longer than a line may be are left out, and so is a last line without a newline unless it is
    complete. Lines from the byte `most` on are not read.
    """
    offset = 0
    while line := file.readline(MAX_LINE + 1):
        at, size = offset, len(line)
        while size > MAX_LINE and not line.endswith(b"\n"):
            line = file.readline(_BLOCK)
            if not line:
                return
            size += len(line)
        offset += size
        if most is not None and offset > most:
            return
        if size > MAX_LINE + 1 or line.isspace():
            continue
        if not line.endswith(b"\n") and not _is_object(line):
            return
        yield at, line


def _is_object(line: bytes) -> bool:
    try:
        return isinstance(msgspec.json.decode(line), dict)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return False
