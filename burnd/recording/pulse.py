"""How the one writer gets on, for others to see: it is read from everywhere and written only by the writer."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from burnd.index.build import Progress


class Pulse:
    """Signs of life, counted since the start."""

    def __init__(self) -> None:
        self.beats = 0  # goes up with everything that was done
        self.refused = 0  # records that could not have been read back, and so were not written
        self.rebuilding: tuple[int, int] | None = None  # how far a rebuild has come, of how much

    def beat(self) -> None:
        self.beats += 1

    @contextlib.contextmanager
    def told(self, report: Progress) -> Iterator[Progress]:
        """The same progress, for everybody to see as long as it lasts."""

        def tell(done: int, total: int) -> None:
            self.beat()
            self.rebuilding = (done, total)
            report(done, total)

        before, self.rebuilding = self.rebuilding, (0, 0)
        try:
            yield tell
        finally:
            self.rebuilding = before
