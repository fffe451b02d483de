"""Room on the disk: how much is free, and how much of that is held in reserve for what must always be written."""

from __future__ import annotations

from pathlib import Path

from burnd.errors import NoSpace
from burnd.ledger import files

_RESERVE_BYTES = 20 << 20
_RESERVE_SHARE = 50  # one part in fifty


def reserve_of(size: int, setting: int | None) -> int:
    """How much is held in reserve on a file system of such a size."""
    return min(_RESERVE_BYTES, size // _RESERVE_SHARE) if setting is None else setting


class Room:
    """The file system that a home is on; `reserve` is what was set, or None."""

    def __init__(self, root: Path, reserve: int | None) -> None:
        self.reserve = reserve
        self._root = root

    def measure(self) -> tuple[int, int]:
        """(bytes that are free, bytes of them that are held in reserve)."""
        try:
            free, size = files.free_bytes(self._root)
        except OSError:  # nobody can tell: whoever writes finds out
            return 0, 0
        return free, reserve_of(size, self.reserve)

    def check(self) -> None:
        """Raises NoSpace when only the reserve is left."""
        free, reserve = self.measure()
        if free < reserve:
            raise NoSpace(
                f"only {free} bytes are free and {reserve} are held in reserve",
                str(self._root),
                "free some space; nothing is lost meanwhile",
            )
