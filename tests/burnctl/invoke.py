"""Runs burnctl as a process with pipes, or in a terminal of a given size."""

from __future__ import annotations

import errno
import fcntl
import os
import pty
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Mapping, Sequence
from typing import NamedTuple, Self

from burnd.paths import Home
from tests import warm

LIMIT_S = 60.0


class Seen(NamedTuple):
    """Output of a terminal, and how the program ended."""

    text: str
    code: int


def environment(home: Home, **more: str) -> dict[str, str]:
    """An environment without anything of the user: a separate home, no configuration, no CI."""
    return {
        "PATH": os.environ["PATH"],
        "HOME": str(home.root.parent),
        "RELAYBURN_HOME": str(home.root),
        "TERM": "xterm-256color",
        "LANG": "C.UTF-8",
        "TZ": "UTC",
        **more,
    }


def run(home: Home, *arguments: str, stdin: str = "", **more: str) -> subprocess.CompletedProcess[str]:
    """As a script runs it: no terminal anywhere."""
    return warm.run(
        [sys.executable, "-m", "burnctl", *arguments],
        env=environment(home, **more),
        input=stdin,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )


class TerminalProcess:
    """burnctl, or another program, in a terminal. What it shows is read as it comes; keys can be typed."""

    def __init__(
        self,
        home: Home,
        *arguments: str,
        columns: int = 80,
        lines: int = 100,
        command: Sequence[str] = (),
        environ: Mapping[str, str] | None = None,
    ) -> None:
        self._master, terminal = pty.openpty()
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
        attributes = termios.tcgetattr(terminal)
        attributes[1] &= ~termios.OPOST  # newlines as they were written
        if not command:
            attributes[3] &= ~termios.ECHO
        termios.tcsetattr(terminal, termios.TCSANOW, attributes)
        self.text = ""
        self._raw = b""
        self.process = warm.Popen(
            list(command or [sys.executable, "-m", "burnctl", *arguments]),
            stdin=terminal,
            stdout=terminal,
            stderr=terminal,
            env=environment(home, **(environ or {})),
            own_terminal=True,
        )
        os.close(terminal)

    def wait_for(self, text: str, seconds: float = LIMIT_S) -> str:
        """Reads on until the text has been shown."""
        deadline = time.monotonic() + seconds
        while text not in self.text:
            if not self._read(deadline):
                raise AssertionError(f"{text!r} was not shown, but: {self.text!r}")
        return self.text

    def type(self, keys: str) -> None:
        os.write(self._master, keys.encode())

    def end(self, seconds: float = LIMIT_S) -> Seen:
        """Everything that was shown until the program ended."""
        deadline = time.monotonic() + seconds
        while self._read(deadline):
            pass
        code = self.process.wait(max(deadline - time.monotonic(), 1))
        return Seen(self.text, code)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        os.close(self._master)

    def _read(self, deadline: float) -> bool:
        ready, _, _ = select.select([self._master], [], [], max(deadline - time.monotonic(), 0))
        if not ready:
            return False
        try:
            data = os.read(self._master, 65536)
        except OSError as error:
            if error.errno != errno.EIO:  # Linux's way to say that the other end has closed
                raise
            return False
        self._raw += data
        self.text = self._raw.decode(errors="replace")
        return bool(data)


def seen(
    home: Home, *arguments: str, columns: int = 80, lines: int = 100, environ: Mapping[str, str] | None = None
) -> Seen:
    """The screen of burnctl after it ended."""
    with TerminalProcess(home, *arguments, columns=columns, lines=lines, environ=environ) as person:
        return person.end()
