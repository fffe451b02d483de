"""The log: events with keys, as JSON lines or for a terminal, without content, written without blocking."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import threading
import time
from collections.abc import Callable
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Protocol

import structlog

from burnd.ledger.files import open_private

AT_MOST_EVERY_S = 60.0
MOST_BYTES = 5 << 20
OLD_FILES = 3
MOST_WAITING = 1000  # lines of a few hundred bytes
DRAIN_S = 1.0
_MOST_KEYS = 1000
_DIGITS = re.compile("[0-9]+")


class Sink(Protocol):
    def write(self, text: str, /) -> object: ...

    def flush(self) -> None: ...


def configure(*, as_json: bool, level: str = "info", stream: Sink | None = None, colors: bool = False) -> None:
    last: structlog.typing.Processor = (
        structlog.processors.JSONRenderer() if as_json else structlog.dev.ConsoleRenderer(colors=colors)
    )
    structlog.configure(
        processors=[
            RateLimit(),
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            last,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[level.upper()]),
        logger_factory=structlog.WriteLoggerFactory(stream or Stderr()),  # type: ignore[arg-type]
        cache_logger_on_first_use=False,
    )
    # messages of libraries may quote content
    logging.basicConfig(handlers=[_LibraryHandler()], level=logging.WARNING, force=True)
    logging.captureWarnings(capture=True)


class Background:
    """Writes lines in a thread: an unread pipe or a stopped terminal would block the caller.

    Drops and counts lines while `most` are queued.
    """

    def __init__(self, sink: Sink, *, most: int = MOST_WAITING) -> None:
        self._sink = sink
        self._most = most
        self._dropped = 0
        self._lines: SimpleQueue[str | None] = SimpleQueue()  # reentrant put()
        self._thread = threading.Thread(target=self._run, name="log", daemon=True)
        self._thread.start()

    def write(self, text: str) -> None:
        if self._lines.qsize() < self._most:
            self._lines.put(text)
        else:
            self._dropped += 1

    def flush(self) -> None:
        """No-op: the thread writes each line at once."""

    def drain(self, seconds: float = DRAIN_S) -> None:
        """Ends the thread when the queued lines are written, or after a timeout."""
        self._lines.put(None)
        self._thread.join(seconds)

    def _run(self) -> None:
        while (text := self._lines.get()) is not None:
            self._sink.write(text)
            if self._dropped and self._lines.qsize() < self._most:
                dropped, self._dropped = self._dropped, 0
                structlog.get_logger().warning("logging.dropped", lines=dropped)


class Stderr:
    """Unbuffered: a line left in the buffer would change the exit code."""

    def write(self, text: str) -> None:
        with contextlib.suppress(OSError):
            os.write(2, text.encode("utf-8", "replace"))

    def flush(self) -> None:
        """No-op: nothing is buffered."""


class RotatedFile:
    """A private file, rotated by size. Loses lines while the disk is full."""

    def __init__(self, path: Path, *, most_bytes: int = MOST_BYTES, old_files: int = OLD_FILES) -> None:
        self._path = path
        self._most = most_bytes
        self._old_files = old_files
        self._fd = self._open()

    def write(self, text: str) -> None:
        data = text.encode("utf-8", "replace")
        with contextlib.suppress(OSError):
            if os.fstat(self._fd).st_size + len(data) > self._most:
                self._rotate()
            os.write(self._fd, data)

    def flush(self) -> None:
        """No-op: nothing is buffered."""

    def close(self) -> None:
        os.close(self._fd)

    def _open(self) -> int:
        return open_private(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def _rotate(self) -> None:
        names = [self._path, *(self._path.with_name(f"{self._path.name}.{n + 1}") for n in range(self._old_files))]
        for older, newer in zip(names[:0:-1], names[-2::-1], strict=True):
            with contextlib.suppress(FileNotFoundError):
                os.replace(newer, older)
        full, self._fd = self._fd, self._open()
        os.close(full)


class RateLimit:
    """Logs the same warning, apart from numbers, at most once a minute, and counts the others."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._last: dict[tuple[str, ...], tuple[float, int]] = {}

    def __call__(self, _logger: Any, method: str, event: structlog.typing.EventDict) -> structlog.typing.EventDict:
        if method in ("debug", "info"):
            return event
        texts = {name: value for name, value in event.items() if isinstance(value, str)}
        key = tuple(f"{name}={_DIGITS.sub('#', value)}" for name, value in sorted(texts.items()))
        now = self._clock()
        at, dropped = self._last.get(key, (now - AT_MOST_EVERY_S, 0))
        if now - at < AT_MOST_EVERY_S:
            self._last[key] = (at, dropped + 1)
            raise structlog.DropEvent
        if len(self._last) >= _MOST_KEYS:
            self._last.clear()
        self._last[key] = (now, 0)
        return {**event, "dropped": dropped} if dropped else event


class _LibraryHandler(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[0] if record.exc_info else None
        structlog.get_logger().warning(
            "library.warned", library=record.name, error=error.__name__ if error is not None else ""
        )
