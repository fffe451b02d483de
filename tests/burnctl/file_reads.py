"""Records every open and read of a file below a folder, as inotify reports them."""

from __future__ import annotations

import ctypes
import os
import struct
import time
from pathlib import Path
from typing import Self

_ACCESS, _OPEN = 0x1, 0x20
_HEAD = struct.Struct("iIII")
_QUIET_S, _PATIENCE_S = 0.3, 30.0


class FileReads:
    """Every file of one folder, from now on. Listing the folder itself is no reading."""

    def __init__(self, folder: Path) -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        self._fd: int = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if self._fd < 0 or libc.inotify_add_watch(self._fd, os.fsencode(folder), _ACCESS | _OPEN) < 0:
            raise OSError(ctypes.get_errno(), f"{folder} cannot be watched")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._fd)

    def seen(self) -> list[str]:
        """The names of files that were opened or read since the last time."""
        names: list[str] = []
        while True:
            try:
                events = os.read(self._fd, 1 << 16)
            except BlockingIOError:
                return [name for name in names if name]
            while events:
                length = _HEAD.unpack_from(events)[3]
                names.append(events[_HEAD.size : _HEAD.size + length].rstrip(b"\0").decode())
                events = events[_HEAD.size + length :]

    def wait_for_quiet(self) -> None:
        """Waits until no process reads: new records are still being indexed for search."""
        until = time.monotonic() + _PATIENCE_S
        self.seen()
        while time.monotonic() < until:
            time.sleep(_QUIET_S)
            if not self.seen():
                return
