"""Keeping a watch over roots that come and go: starts it, notices when it stops being of use, and says so.

Everything here may block and is called from a worker thread, one call at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from burnd.logfiles.dirty import Inbox
from burnd.logfiles.observe import ROOT_LOST, Observation, Observe, Unwatchable
from burnd.logfiles.scanner import Root, Suffix, present
from burnd.looking_again import next_look

_DEATHS_BEFORE_POLLING = 3
_SHORT_SCANS_BEFORE_RESTART = 2


class Supervisor:
    """Owns the observation. `check` does what is due; what it did that calls for a scan is news, to be taken once."""

    def __init__(
        self,
        named: Sequence[str],
        inbox: Inbox,
        observe: Observe,
        *,
        suffix: Suffix,
        roots_every: float,
        alive_every: float,
        retry_after: float,
    ) -> None:
        self._named = list(named)
        self._inbox = inbox
        self._observe = observe
        self._suffix = suffix
        self._every = {"roots": roots_every, "alive": alive_every, "retry": retry_after}
        self._due = {"roots": float("-inf")}
        self._observation: Observation | None = None
        self._given_up: Unwatchable | None = None
        self._news: str | None = None
        self._deaths = 0
        self._short_scans = 0
        self._short = 0
        self.roots: list[Root] = []

    @property
    def state(self) -> Literal["watching", "polling", "waiting"]:
        if not self.roots:
            return "waiting"
        return "watching" if self._observation is not None else "polling"

    @property
    def detail(self) -> str:
        if not self.roots:
            return "waiting for " + ", ".join(self._named)
        if self._observation is None:
            return f"polling: {self._given_up or 'the watcher is starting'}"
        watched = self._observation.watched()
        if watched is None:
            return "watching"
        if self._short:
            return f"watching {watched:,} of {watched + self._short:,} folders, scanning the others"
        return f"watching {watched:,} folders"

    @property
    def remedy(self) -> str:
        """What a person can do so that folders are watched again."""
        return self._given_up.remedy if self._given_up is not None else ""

    def add_roots(self, named: Sequence[str]) -> None:
        """More roots, looked at with the next check. The one call that may come while another runs in its thread."""
        self._named = [*self._named, *named]
        self._due["roots"] = float("-inf")

    def due(self) -> float:
        return min(self._due.values())

    def check(self, now: float, cause: str | None = None) -> None:
        """Look after the watch. `cause` is an alarm it raised itself; with one, everything is looked at at once."""
        self._news = self._check(now, cause) or self._news

    def take_news(self) -> str | None:
        news, self._news = self._news, None
        return news

    def _check(self, now: float, cause: str | None) -> str | None:
        if cause is not None or self._is_due("roots", now):
            roots = present(self._named)
            if roots != self.roots or cause == ROOT_LOST:
                self._restart(roots, now)
                return "the roots changed"
        if self._observation is None:
            return self._try_again(now)
        if self._heed_refusal(self._observation, now):
            return "watching was given up"
        if cause is not None or self._is_due("alive", now):
            return self._check_alive(self._observation, now)
        return None

    def compare(self, directories: int) -> None:
        """Take in how many folders a scan found: watchdog says nothing when it misses some."""
        watched = None if self._observation is None else self._observation.watched()
        self._short = 0 if watched is None else max(0, directories - watched)
        # A folder made during the scan may be ahead of its watch, hence twice; a restart may not help, hence once.
        self._short_scans = self._short_scans + 1 if self._short else 0
        if self._short_scans == _SHORT_SCANS_BEFORE_RESTART:
            self._due["alive"] = float("-inf")

    def stop(self) -> None:
        if self._observation is not None:
            self._observation.stop()
            self._observation = None
        self._due.pop("alive", None)

    def _is_due(self, what: str, now: float) -> bool:
        at = self._due.get(what)
        if at is None or now < at:
            return False
        self._due[what] = next_look(now, self._every[what])
        return True

    def _check_alive(self, observation: Observation, now: float) -> str | None:
        if not observation.alive():
            self._deaths += 1
            if self._deaths >= _DEATHS_BEFORE_POLLING:
                self._give_up(Unwatchable("the watcher keeps failing"), now)
                return "watching was given up"
        elif self._short_scans != _SHORT_SCANS_BEFORE_RESTART:
            return None
        else:
            self._short_scans += 1
        self._restart(self.roots, now)
        return "the watcher was started again"

    def _try_again(self, now: float) -> str | None:
        if not self._is_due("retry", now):
            return None
        self._restart(self.roots, now)
        return None if self._observation is None else "watching again"

    def _give_up(self, why: Unwatchable, now: float) -> None:
        # All watches are let go: the limit is one for all of a user's programs, and half a watch misleads.
        self.stop()
        self._given_up = why
        self._deaths = 0
        self._due["retry"] = now + self._every["alive" if why.passes else "retry"]

    def _restart(self, roots: list[Root], now: float) -> None:
        self.stop()
        self.roots = roots
        self._given_up = None
        self._due.pop("retry", None)
        if not roots:
            return
        try:
            self._observation = self._observe([root.path for root in roots], self._inbox, self._suffix)
        except Unwatchable as error:
            self._give_up(error, now)
        except (FileNotFoundError, NotADirectoryError):
            self.roots = []  # gone again: the next look at the roots starts over
        except Exception as error:  # noqa: BLE001
            # Whatever a library's threads trip over, scans go on without them.
            self._give_up(Unwatchable(f"the watcher failed ({type(error).__name__})"), now)
        else:
            self._due["alive"] = next_look(now, self._every["alive"])
            self._heed_refusal(self._observation, now)

    def _heed_refusal(self, observation: Observation, now: float) -> bool:
        refusal = observation.refusal()
        if refusal is not None:
            self._give_up(refusal, now)
        return refusal is not None
