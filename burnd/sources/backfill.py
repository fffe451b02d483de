"""How far the first reading of what was there has come, for `status` and for the log."""

from __future__ import annotations

import msgspec
import structlog

from burnd.sources.base import Progress

log = structlog.get_logger()

TOLD_FROM, TOLD_EVERY_S = 20_000_000, 2.0


class Backfill(msgspec.Struct):
    """In bytes; `since` is when it began, `told` when the log was told last."""

    done: int = 0
    total: int = 0
    since: float = 0.0
    told: float = 0.0

    def found(self, size: int, now: float) -> None:
        """There is so much more to read."""
        self.total += size
        self.since = self.since or now

    @property
    def left(self) -> int:
        return self.total - self.done

    def per_second(self, now: float) -> float:
        return self.done / max(0.001, now - self.since)

    def progress(self, now: float) -> Progress | None:
        """For a person, while there is some left."""
        return Progress(self.done, self.total, self.per_second(now)) if self.done < self.total else None

    def tell(self, now: float, source: str, *, is_done: bool, **facts: int) -> None:
        """While a lot is taken in, says now and then how far that is, and says when it is done."""
        is_much = max(self.done, self.total) >= TOLD_FROM
        is_due = self.told > 0 if is_done else now - self.told >= TOLD_EVERY_S
        if not is_much or not is_due:
            return
        facts = {"mb": round(self.done / 1e6), **facts}
        speed = round(self.per_second(now) / 1e6, 1)
        log.info("source.caught_up" if is_done else "source.progress", source=source, mb_per_s=speed, **facts)
        self.told = now
