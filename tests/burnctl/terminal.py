"""A pseudo-terminal for a program under test: sends keys and collects the screen."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import struct
import termios
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from tests import warm

_PATIENCE_S = 60.0


class Terminal:
    """A program that leads a session at a new terminal. `screen` is everything that appeared so far."""

    def __init__(self, command: Sequence[str], env: Mapping[str, str], folder: Path, columns: int = 80) -> None:
        self._ours, theirs = pty.openpty()
        self.resize(columns)
        self.screen = ""
        self.process = warm.Popen(
            list(command),
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env=dict(env),
            cwd=folder,
            own_terminal=True,
        )
        os.close(theirs)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.hang_up()
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()

    def type(self, text: str) -> None:
        os.write(self._ours, text.encode())

    def resize(self, columns: int) -> None:
        fcntl.ioctl(self._ours, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))

    def see(self, pattern: str) -> re.Match[str]:
        """Waits until something matches, and forgets the screen up to its end."""
        deadline = time.monotonic() + _PATIENCE_S
        while (found := re.search(pattern, self.screen)) is None:
            assert time.monotonic() < deadline, f"{pattern!r} did not appear on:\n{self.screen}"
            assert self._read(0.05) is not None, f"{pattern!r} did not appear before the end of:\n{self.screen}"
        self.screen = self.screen[found.end() :]
        return found

    def until_foreground(self, group: int) -> None:
        """Waits until that process group has the terminal, and so the keys that are typed."""
        deadline = time.monotonic() + _PATIENCE_S
        while os.tcgetpgrp(self._ours) != group:
            assert time.monotonic() < deadline, f"{group} does not get the terminal; on its screen:\n{self.screen}"
            self._read(0.02)

    def end(self) -> int:
        """Waits for the program's end; returns its exit code. What appears meanwhile stays on the screen."""
        deadline = time.monotonic() + _PATIENCE_S
        while self.process.poll() is None:
            assert time.monotonic() < deadline, f"it does not end; on its screen:\n{self.screen}"
            self._read(0.02)
        while self._read(0.02):
            pass
        return self.process.returncode

    def hang_up(self) -> None:
        """The terminal is gone, as when its window is closed."""
        if self._ours >= 0:
            os.close(self._ours)
            self._ours = -1

    def _read(self, wait: float) -> str | None:
        """The next output; None at the end."""
        ready, _, _ = select.select([self._ours], [], [], wait)
        if not ready:
            return ""
        try:
            text = os.read(self._ours, 65536).decode(errors="replace")
        except OSError:  # Linux raises this when the other end is closed
            return None
        self.screen += text
        return text
