"""Names that Codex's threads were given: one file beside all rollouts, to which every new name is added."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable

import msgspec

from burnd.harness.codex.events import TITLE_ID, title_request
from burnd.harness.product import uuid7_ms
from burnd.index.store import IndexStore
from burnd.logfiles.log_reader import NEVER, iso
from burnd.logfiles.scanner import small_file
from burnd.recording.batch import Batch
from burnd.records import Content, Request
from burnd.records.content import title_record
from burnd.records.foreign_json import SafeDecoder
from burnd.records.times import to_ms

_FILE = "session_index.jsonl"
_LARGEST = 16 << 20
_BESIDE = 1 << 20  # the number of a title that is in no line of its rollout: behind all that are
_SOON_MS = 10 * 60 * 1000
_KNOWN = "SELECT session_id FROM sessions WHERE session_id IN ({keys})"


class Named(msgspec.Struct):
    """A line of the file."""

    id: str | None = None
    thread_name: str | None = None
    updated_at: str | None = None


_lines = SafeDecoder(Named)


class ThreadNames:
    """Reads the file when it changed, and keeps names until their threads are known."""

    def __init__(self) -> None:
        self._looks: dict[str, tuple[int, int, int]] = {}
        self._waiting: list[Content | Request] = []

    def look(self, folders: Iterable[str]) -> None:
        """Reads what is new in these folders of Codex's. Blocks."""
        for folder in map(os.path.realpath, folders):
            path = os.path.join(folder, _FILE)
            try:
                found = os.stat(path, follow_symlinks=False)
            except OSError:
                continue
            looks = (found.st_ino, found.st_size, found.st_mtime_ns)
            if self._looks.get(path) != looks:
                self._looks[path] = looks
                # Names that were given already are known by their numbers, and are not kept twice.
                titles = titles_in(small_file(path, folder, _LARGEST) or b"")
                self._waiting += [*titles, *title_requests(titles)]

    async def batch(self, index: IndexStore) -> Batch | None:
        """The names of threads that are known by now."""
        if not self._waiting:
            return None
        ids = sorted({title.session_id for title in self._waiting})
        known = {row[0] for row in await index.keyed(_KNOWN, [(one,) for one in ids])}
        ready = [one for one in self._waiting if one.session_id in known]
        self._waiting = [one for one in self._waiting if one.session_id not in known]
        if not ready:
            return None
        return Batch(
            content=[one for one in ready if isinstance(one, Content)],
            entries=[one for one in ready if isinstance(one, Request)],
        )


def titles_in(data: bytes) -> list[Content]:
    """Each name as a title; the newest of a thread has the highest number."""
    titles, numbers = [], Counter[str]()
    for line in data.splitlines():
        named = _lines.value(line)
        if named is None or not named.id or not (name := (named.thread_name or "").strip()):
            continue
        ts = iso(named.updated_at) or NEVER
        titles.append(title_record(named.id, TITLE_ID, name, ts, n=_BESIDE + numbers[named.id]))
        numbers[named.id] += 1
    return titles


def title_requests(titles: Iterable[Content]) -> list[Request]:
    """The requests for first names of threads, if these were given within minutes of the thread's start."""
    first = [title for title in titles if title.n == _BESIDE and title.ts != NEVER]
    begun = [(title, uuid7_ms(title.session_id)) for title in first]
    return [
        title_request(title.session_id, title.ts)
        for title, at in begun
        if at is not None and 0 <= to_ms(title.ts) - at <= _SOON_MS
    ]
