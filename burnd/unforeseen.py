"""What nobody foresaw, told by its kind and its place alone: its words may be anybody's."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from pathlib import PurePath


def leaves(error: BaseException) -> Iterator[BaseException]:
    """The errors that task groups wrapped, or the one that nobody did."""
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            yield from leaves(inner)
    else:
        yield error


def kinds(error: BaseException) -> str:
    return ", ".join(sorted({type(one).__name__ for one in leaves(error)}))


def place(error: BaseException) -> str:
    """The file and line where it was raised."""
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


def never_quote(tell: Callable[[BaseException], None]) -> None:
    """From now on `tell` hears of what nobody catches, in whatever thread: Python itself would print its words."""

    def hear(error: BaseException | None) -> None:
        if error is not None:
            tell(error)

    sys.excepthook = lambda _kind, error, _trace: hear(error)
    threading.excepthook = lambda caught: hear(caught.exc_value)
    sys.unraisablehook = lambda caught: hear(caught.exc_value)
