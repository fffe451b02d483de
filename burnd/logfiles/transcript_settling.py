"""Settles what is open in transcripts: when it has been quiet for long enough, or when somebody asks."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection

from burnd.logfiles.pieces import Pieces
from burnd.logfiles.queue import Queue
from burnd.logfiles.safe_open import Refused
from burnd.logfiles.saved import Saved
from burnd.logfiles.tails import Due
from burnd.logfiles.transcripts import Piece, Transcript

QUIET_S = 10.0
IDLE_S = 600.0
LOOK_AGAIN_S = 1.0
SETTLED_AT_ONCE = 500  # transcripts
TAILS_AT_ONCE = 50  # they are opened one by one, while whatever grows has to wait
ALL_TAILS = 1 << 31


class Settler:
    """Settles for one source, through `commit`. It is called by the task that reads, and never while that reads."""

    def __init__(
        self,
        queue: Queue,
        pieces: Pieces,
        saved: Saved,
        commit: Callable[[list[Piece]], Awaitable[None]],
        clock: Callable[[], float],
    ) -> None:
        self._queue, self._pieces, self._saved = queue, pieces, saved
        self._commit, self._clock = commit, clock
        self._next_look = 0.0

    @property
    def is_due(self) -> bool:
        """Whether it is time to look again, even if there is a lot to read."""
        return self._clock() >= self._next_look

    @property
    def waits(self) -> bool:
        """Whether anything is open that may have to be settled."""
        return any(transcript.waiting_sessions for transcript in self._pieces.known.live())

    async def settle_quiet(self) -> None:
        """Turns whose calls are answered settle after 10 s of quiet, the others after 10 minutes.

        Requests without a response settle after 10 minutes, too.
        """
        now = self._clock()
        self._next_look = now + LOOK_AGAIN_S
        known = [(t, now - t.changed_at) for t in self._pieces.known.live() if not self._queue.is_out(t.path)]
        quiet = [t for t, seconds in known if QUIET_S <= seconds < IDLE_S]
        idle = [t for t, seconds in known if seconds >= IDLE_S]
        await self._settle([t for t in quiet if t.open_candidates], answered_only=True)
        await self._settle([t for t in idle if t.waiting_sessions], answered_only=False)
        await self.take_tails(TAILS_AT_ONCE)

    async def settle_sessions(self, session_ids: Collection[str | None]) -> None:
        """Settles at once what is open in these sessions; None among them means in all."""
        held_by = {t: t.waiting_sessions for t in self._pieces.known.live()}
        wanted = [
            t
            for t, holders in held_by.items()
            if holders and (None in session_ids or holders.intersection(session_ids))
        ]
        await self._settle(wanted, answered_only=False)

    async def take_tails(self, most: int) -> None:
        """Last lines that have waited long enough for their newlines; only a few of them are in memory at once."""
        due = self._saved.tails.due(self._clock(), most)
        for begin in range(0, len(due), TAILS_AT_ONCE):
            await self._take(due[begin : begin + TAILS_AT_ONCE])

    async def _take(self, some: list[Due]) -> None:
        now, tails, pieces = self._clock(), self._saved.tails, []
        for path, root, is_last in some:
            if self._queue.is_out(path):
                continue
            try:
                piece = await self._pieces.tail_of(path, root, only_whole=not is_last)
            except (FileNotFoundError, Refused):
                piece = None
            except OSError:
                tails.put_off(path, now)
                continue
            if piece is not None:
                pieces.append(piece)
            elif is_last:
                tails.drop(path)  # there is nothing to look at, or more to read: then it comes again
            else:
                tails.wait(path)
        if pieces:
            await self._commit(pieces)

    async def _settle(self, transcripts: list[Transcript], *, answered_only: bool) -> None:
        for begin in range(0, len(transcripts), SETTLED_AT_ONCE):
            some = transcripts[begin : begin + SETTLED_AT_ONCE]
            if pieces := await self._pieces.settled(some, answered_only=answered_only):
                await self._commit(pieces)
