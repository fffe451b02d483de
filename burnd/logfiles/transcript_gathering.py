"""Takes transcripts from the queue and reads them, slot by slot, until there is a batch's worth of pieces."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import anyio
import structlog

from burnd.logfiles.pieces import Pieces
from burnd.logfiles.queue import Queue, Slot
from burnd.logfiles.safe_open import Refused
from burnd.logfiles.saved import Saved
from burnd.logfiles.transcript_scanning import Finder
from burnd.logfiles.transcripts import Piece

log = structlog.get_logger()

BATCH_BYTES = 5 << 20
BATCH_SECONDS, BACKLOG_SECONDS = 0.1, 2.0


class Gatherer:
    """Reads for one source. What cannot be read is counted or tried again, and hurts only itself."""

    def __init__(
        self,
        queue: Queue,
        finder: Finder,
        saved: Saved,
        pieces: Pieces,
        counts: Counter[str],
        clock: Callable[[], float],
    ) -> None:
        self._queue, self._finder, self._saved, self._pieces = queue, finder, saved, pieces
        self._counts, self._clock = counts, clock
        self._ahead: Slot | None = None

    async def gather(self, committed: anyio.Event) -> list[Piece]:
        """Slots until there is a batch's worth, or a tenth of a second has passed, or nothing waits.

        Until the batch before is `committed`, this one can only wait for it, and so takes more: the busier it is, the
        larger are the batches. While only a backlog is read nobody waits for its lines, and large ones cost less.
        """
        pieces: dict[str, Piece] = {}
        size, begun = 0, self._clock()
        while size < BATCH_BYTES:
            patience = BATCH_SECONDS if self._queue.has_live else BACKLOG_SECONDS
            if self._clock() - begun >= patience and committed.is_set():
                break
            slot = await self._next_slot()
            if slot is None:
                break
            piece = await self._read(slot)
            if piece is None:
                continue
            pieces[slot.path] = piece
            size += piece.consumed
            if piece.more:
                break  # its next piece must find the rows of this one, so these are committed first
        return list(pieces.values())

    async def _next_slot(self) -> Slot | None:
        """Whose turn it is. The process that reads apart is given the file after it as well, so as never to wait."""
        slot, self._ahead = self._ahead or self._queue.take(), None
        if slot is None:
            return None
        await self._begin(slot)
        if self._pieces.is_apart and not self._queue.has_live:
            self._ahead = self._queue.take()
            if self._ahead is not None and self._ahead.path not in self._saved:
                await self._begin(self._ahead)
        return slot

    async def _begin(self, slot: Slot) -> None:
        if (root := self._finder.root_of(slot.path)) is not None:
            left = self._finder.backfill.left
            await self._pieces.begin(slot.path, root, slot.max_bytes, left, is_new=slot.path not in self._saved)

    async def _read(self, slot: Slot) -> Piece | None:
        path, root = slot.path, self._finder.root_of(slot.path)
        try:
            piece = await self._pieces.read(path, root, slot.max_bytes) if root is not None else None
        except FileNotFoundError:
            self._queue.done(path, more=False)
            if root is not None:
                await self._pieces.let_go(path, root)
            return None
        except Refused as refused:
            self._counts[refused.reason] += 1
            self._queue.done(path, more=False)
        except OSError as error:
            self._queue.failed(path, error.strerror or str(error))
        except Exception as error:  # noqa: BLE001 - one file must never stop the others; status shows it
            log.error("source.file_failed", source=self._pieces.source, error=type(error).__name__)
            self._queue.failed(path, f"{type(error).__name__} while reading it")
        else:
            if piece is None:
                self._queue.done(path, more=False)
            return piece
        if root is not None:
            await self._pieces.drop(path, root)
        return None
