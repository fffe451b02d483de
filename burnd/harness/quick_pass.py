"""Quick passes: each harness has one in its package, `totals`, that takes from a log what totals need and nothing else.

Its candidates are those of the harness's reader. `burnd.totals` merges them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from importlib import import_module
from types import MappingProxyType
from typing import Any, BinaryIO, Final, NamedTuple

import msgspec

from burnd.harness.product import Product
from burnd.harness.registry import PRODUCTS
from burnd.index.keys import path_key
from burnd.logfiles.log_reader import LogReading
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


class LogSettings(NamedTuple):
    """The settings and the environment that name folders of logs, and those that clients announced, by source."""

    settings: Settings
    environ: Mapping[str, str]
    user_home: str
    announced: Mapping[str, list[str]] = MappingProxyType({})

    def logs(self, product: Product) -> list[str]:
        extra = [*self.settings.roots_of(product), *self.announced.get(product.source, ())]
        return product.logs(self.environ, self.user_home, extra)

    def files(
        self, product: Product, module: str, suffixes: tuple[str, ...], place_of: Callable[[str], object | None]
    ) -> list[LogTask]:
        return files_below(self.logs(product), module, suffixes, place_of)


def files_below(
    folders: Iterable[str], module: str, suffixes: tuple[str, ...], place_of: Callable[[str], object | None]
) -> list[LogTask]:
    tasks: dict[str, LogTask] = {}
    for root in present(folders):
        for entry in walk(root.path, suffix=suffixes):
            if place_of(path_key(below(entry.path, root.path))) is not None:
                tasks[entry.path] = LogTask(module, (entry.path,), root.path, entry.mtime, entry.size)
    return list(tasks.values())


class LogTotals(msgspec.Struct, array_like=True):
    """All that one log or database adds to totals; `needs_keys`: the keys of projects are looked up, not stated."""

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


def totals_of(source: str, reading: LogReading, folder: str | None, *, needs_keys: bool = False) -> LogTotals:
    """The totals in what a full reader found."""
    return LogTotals(
        source,
        reading.session_id,
        reading.project,
        [without_content(candidate) for candidate in reading.candidates],
        sessions=reading.sessions,
        overheads=reading.overheads,
        requests=reading.requests,
        compactions=reading.compactions,
        folder=folder,
        needs_keys=needs_keys,
    )


def without_content(candidate: Candidate) -> Candidate:
    """The candidate as totals need it; of its calls only those with billed searches."""
    candidate.settled = True
    candidate.calls = tuple([call for call in candidate.calls if call.searches])
    candidate.entered = candidate.made = ()
    candidate.files = candidate.lines = candidate.prompt_words = ()
    candidate.prints = ()
    return candidate


def lines_in(file: BinaryIO, most: int | None = None) -> Iterator[tuple[int, bytes]]:
    """The lines of a log with their offsets, as `logfiles.tail` has them, up to the byte `most`."""
    offset = 0
    while line := file.readline(_BLOCK):
        at, size = offset, len(line)
        if size == _BLOCK and not line.endswith(b"\n"):
            size, line = _long_line(file, line)
        offset += size
        if most is not None and offset > most:
            return
        if not line or line.isspace():
            continue
        if not line.endswith(b"\n") and not _is_object(line):
            return
        yield at, line


def _long_line(file: BinaryIO, begin: bytes) -> tuple[int, bytes]:
    """The size of a line, and its bytes unless it is too long: `readline` would need twice the limit in memory."""
    blocks, size, block = [begin], len(begin), begin
    while not block.endswith(b"\n") and (block := file.readline(_BLOCK)):
        size += len(block)
        if size <= MAX_LINE + 1:
            blocks.append(block)
        else:
            blocks.clear()
    return size, b"".join(blocks)


def _is_object(line: bytes) -> bool:
    try:
        return isinstance(msgspec.json.decode(line), dict)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return False


def find_logs(log_settings: LogSettings, sources: Sequence[str] | None = None) -> list[LogTask]:
    products = [product for product in PRODUCTS if sources is None or product.source in sources]
    products = [one for one in products if any(map(os.path.exists, log_settings.logs(one)))]  # others need no import
    modules = [import_module(product.totals) for product in products if product.totals]
    tasks: list[LogTask] = [task for module in modules for task in module.find_logs(log_settings)]
    return sorted(tasks, key=lambda task: -task.changed)
