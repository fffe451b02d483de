"""The quick pass over Codex's rollouts: its meter, and which response each reading of it belongs to.

Equal totals need these lines:

- `session_meta`: the session, its folder, its parent or the session it was forked from;
- `token_count` and `token_usage_record`: the meter;
- `turn_context`, `task_started`, `task_complete`, `turn_aborted`, `thread_rolled_back`: the task and the model, which
  identify a response in every fork that repeats it;
- `thread_settings_applied`: model and tier;
- `response_item`: output begins a response, and a web search is billed; a prompt ends one in releases without tasks;
- `compacted`, and `thread_name_updated`, or the file of thread names: a request for a title, which is in no log.

Results of calls, and events that repeat items, are skipped without being decoded.
"""

from __future__ import annotations

import errno
import os
from typing import Any, BinaryIO, Final

import msgspec
import zstandard

from burnd.harness.codex.lines import RESULTS
from burnd.harness.codex.product import PRODUCT
from burnd.harness.codex.reader import COMPRESSED, CodexReader, place_of
from burnd.harness.codex.rollout import SOURCE, CodexState, RolloutLog, RolloutName
from burnd.harness.product import RESTORED
from burnd.harness.quick_pass import LogSettings, LogTask, LogTotals, lines_in, totals_of
from burnd.index.keys import path_key
from burnd.logfiles.scanner import SUFFIX, below, small_file

NAMES_FILE: Final = "session_index.jsonl"
_USED_EVENTS: Final = frozenset(
    {
        "token_count",
        "task_started",
        "turn_started",
        "task_complete",
        "turn_complete",
        "turn_aborted",
        "thread_rolled_back",
        "thread_name_updated",
        "thread_settings_applied",
    }
)


class _PayloadHead(msgspec.Struct, gc=False):
    type: str | None = None


class _Head(msgspec.Struct, gc=False):
    timestamp: str | float | None = None
    type: str | None = None
    payload: _PayloadHead | None = None


_decode: Final = msgspec.json.Decoder(_Head).decode
_FAILURES: Final = (msgspec.MsgspecError, ValueError, RecursionError)


def find_logs(log_settings: LogSettings) -> list[LogTask]:
    folders = dict.fromkeys(os.path.dirname(os.path.realpath(folder)) for folder in log_settings.logs(PRODUCT))
    names = [(os.path.join(folder, NAMES_FILE), folder) for folder in folders]
    tasks = [LogTask(__name__, (path,), folder, 0.0, 0) for path, folder in names if os.path.isfile(path)]
    return [*log_settings.files(PRODUCT, __name__, (SUFFIX, COMPRESSED), place_of), *tasks]


def read_logs(task: LogTask) -> list[LogTotals]:
    """What a rollout adds to totals. Raises Refused or OSError, also for a damaged compressed file."""
    if os.path.basename(task.path) == NAMES_FILE:
        from burnd.harness.codex.source import LARGEST_NAMES_FILE, title_requests, titles_in  # noqa: PLC0415

        data = small_file(task.path, task.root, LARGEST_NAMES_FILE) or b""
        return [LogTotals(SOURCE, requests=title_requests(titles_in(data)))]
    place = place_of(path_key(below(task.path, task.root)))
    if place is None:
        return []
    with task.open() as file:
        if not task.path.endswith(COMPRESSED):
            return [_read_log(place, file)]
        from burnd.harness.codex.source import MOST_UNPACKED, unpacked  # noqa: PLC0415 - with all of the daemon

        try:
            with unpacked(file) as text:
                return [_read_log(place, text, MOST_UNPACKED)]
        except zstandard.ZstdError as error:
            raise OSError(errno.EIO, "not a zstd file, or damaged") from error


def _read_log(place: RolloutName, file: BinaryIO, most: int | None = None) -> LogTotals:
    reader = _TotalsReader(place)
    for offset, line in lines_in(file, most):
        if not line.endswith((RESTORED, RESTORED + b"\n")) and not reader.skips(line):
            reader.feed(line, offset)
    reader.flush()
    return totals_of(SOURCE, reader.take(), reader.folder)


class _TotalsLog(RolloutLog):
    def add_content(self, *_: Any, **_part: Any) -> None:
        pass

    def add_event(self, *_: Any) -> None:
        pass

    def enter(self, *_: Any) -> None:
        pass


class _TotalsReader(CodexReader):
    def __init__(self, place: RolloutName) -> None:
        super().__init__(place)
        self._log = _TotalsLog(place, CodexState())

    @property
    def folder(self) -> str | None:
        return self._log.state.session.project

    def skips(self, line: bytes) -> bool:
        """Whether a line changes nothing but the time."""
        try:
            head = _decode(line)
        except _FAILURES:
            return False
        kind = head.payload.type if head.payload is not None else None
        state = self._log.state
        if head.type == "response_item" and kind in RESULTS and state.task is not None:
            state.is_begun = True
        elif head.type != "event_msg" or kind is None or kind in _USED_EVENTS:
            return False
        self._log.time_of(head.timestamp)
        return True
