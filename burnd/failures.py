"""Reports unexpected errors by type and location only: their text may quote a log or a prompt."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from pathlib import PurePath


def leaves(error: BaseException) -> Iterator[BaseException]:
    """The errors inside an exception group, or the error itself."""
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            yield from leaves(inner)
    else:
        yield error


def error_types(error: BaseException) -> str:
    return ", ".join(sorted({type(one).__name__ for one in leaves(error)}))


def error_location(error: BaseException) -> str:
    """The file and line that raised the error."""
    frames = traceback.extract_tb(next(leaves(error)).__traceback__)
    return f"{PurePath(frames[-1].filename).name}:{frames[-1].lineno}" if frames else ""


def write_stderr(line: str, seconds: float = 1.0) -> None:
    """Writes a last line before the process ends. Gives up if stderr is not read, as in a stopped terminal."""

    def write() -> None:
        with contextlib.suppress(OSError):
            os.write(2, f"{line}\n".encode("utf-8", "replace"))

    writer = threading.Thread(target=write, daemon=True)
    writer.start()
    writer.join(seconds)


def report_uncaught(report: Callable[[BaseException], None]) -> None:
    """Passes uncaught errors of all threads to `report`; Python would print their text."""

    def pass_on(error: BaseException | None) -> None:
        if error is not None:
            report(error)

    sys.excepthook = lambda _kind, error, _trace: pass_on(error)
    threading.excepthook = lambda caught: pass_on(caught.exc_value)
    sys.unraisablehook = lambda caught: pass_on(caught.exc_value)
