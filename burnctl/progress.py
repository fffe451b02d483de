"""Progress at a terminal: a bar while old logs are read, a line while something works; both are wiped at the end."""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from burnctl.client import Client
    from burnd.contract.results.daemon import BackfillBytes, Status

WIPE = "\r\x1b[K"
_HIDE_CURSOR, _SHOW_CURSOR = "\x1b[?25l", "\x1b[?25h"
_CYAN, _PLAIN = "\x1b[36m", "\x1b[0m"
_QUIET_S, _REFRESH_S, _BAR_REFRESH_S = 1.0, 0.5, 0.15


def can_take_back() -> bool:
    """Whether a line on stderr can be overwritten."""
    return sys.stderr.isatty() and os.environ.get("TERM") != "dumb"


class ProgressLine:
    """`with ProgressLine("looking") as client.progress: client.rebuild(index=True)`."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._is_shown = False

    def __enter__(self) -> ProgressLine | None:
        waiting.stop()
        return self if can_take_back() else None

    def __exit__(self, *_: object) -> None:
        if self._is_shown:
            print(WIPE, end="", file=sys.stderr, flush=True)

    def __call__(self, progress: dict[str, Any]) -> None:
        done, total = progress.get("done") or 0, progress.get("total") or 0
        share = f" {100 * done // total}%" if total else ""
        print(f"{WIPE}{self._what} ...{share}", end="", file=sys.stderr, flush=True)
        self._is_shown = True


class Waiting:
    """`working ... 3 s` at a terminal while a command takes longer than a second.

    `with waiting.during("checking"): ...`, or `start` and `stop`, which prints nothing more.
    """

    def __init__(self) -> None:
        self._end: Callable[[], None] | None = None

    def during(self, what: str) -> Waiting:
        self.start(what)
        return self

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self, what: str = "working") -> None:
        """Starts the clock, unless stdout or stderr is no terminal."""
        if self._end is not None or not (can_take_back() and sys.stdout.isatty()):
            return
        import threading
        import time

        over, began = threading.Event(), time.monotonic()

        def show() -> None:
            is_shown = False
            while not over.wait(_REFRESH_S if is_shown else _QUIET_S):
                print(f"{WIPE}{what} ... {time.monotonic() - began:.0f} s", end="", file=sys.stderr, flush=True)
                is_shown = True
            if is_shown:
                print(WIPE, end="", file=sys.stderr, flush=True)

        thread = threading.Thread(target=show, daemon=True)
        thread.start()

        def end() -> None:
            over.set()
            thread.join()

        self._end = end

    def stop(self) -> None:
        """Wipes the line. Called before anything else is printed."""
        if self._end is not None:
            self._end()
            self._end = None


waiting = Waiting()


def follow_backfill(client: Client, status: Status, *, color: bool, totals: bool = False) -> None:
    """Shows a bar until old logs are read, reading is blocked or `totals` are complete.

    Ctrl-C ends only the bar.
    """
    import time

    from burnctl.daemon import unread
    from burnctl.render.numbers import counted, duration

    began = time.monotonic()
    can_draw = can_take_back()
    try:
        print(_HIDE_CURSOR if can_draw else f"{_activity(status.get('backfill'))} ...\n", end="", file=sys.stderr)
        while (backfill := unread(status, totals=totals)) is not None:
            if can_draw:
                print(f"{WIPE}{_backfill_bar(status, backfill, color=color)}", end="", file=sys.stderr, flush=True)
            time.sleep(_BAR_REFRESH_S)
            status = client.status()
    except KeyboardInterrupt:
        print(f"{WIPE if can_draw else ''}burnd keeps reading; see the progress with: burnctl status", file=sys.stderr)
        raise
    finally:
        print(f"{WIPE}{_SHOW_CURSOR}" if can_draw else "", end="", file=sys.stderr, flush=True)
    if status.get("backfill"):
        if not totals:
            print_if_blocked(status)
        return
    ledger = status.get("ledger") or {}
    turns = (ledger.get("turns") or 0) + (ledger.get("openTurns") or 0)
    print(f"read old logs: {counted(turns, 'request')} in {duration(time.monotonic() - began)}", file=sys.stderr)


def blocked(status: Mapping[str, Any]) -> str:
    """Why logs cannot be read, or an empty text. Right after a start only the disk shows it."""
    disk, backfill = status.get("disk") or {}, status.get("backfill") or {}
    free, reserve = disk.get("free"), disk.get("reserve")
    if reason := backfill.get("blocked"):
        return str(reason)
    if free is None or reserve is None or free >= reserve:
        return ""
    return f"only {free // 10**6:,} MB are free, and {reserve // 10**6:,} MB are reserved"


def print_if_blocked(status: Status) -> None:
    from burnctl.render.text import clean

    if reason := blocked(status):
        print(f"old logs cannot be read: {clean(reason)}; see: burnctl status", file=sys.stderr)


def _backfill_bar(status: Status, backfill: BackfillBytes, *, color: bool) -> str:
    """`reading old logs ████▌      32%  12 of 40 files, 64.0 MB/s, 8 s left`, as wide as the terminal.

    Before: `adding up totals ████▌      32%  160 MB of 500 MB`.
    """
    from burnctl.render.numbers import bar, duration, size
    from burnctl.render.screen import columns

    done, total, rate = backfill["done"], backfill["total"], backfill["bytesPerSecond"]
    sources = status.get("sources") or []
    files = sum(source.get("files") or 0 for source in sources)
    unread = sum(source.get("pending") or 0 for source in sources)
    facts = [f"{max(files - unread, 0):,} of {files:,} files"] if files else []
    facts += [f"{size(rate)}/s", f"{duration(max((total - done) / rate, 1))} left"] if rate else []
    if (totals := backfill.get("totals")) is not None:
        done, total = totals["done"], totals["total"]
        facts = [f"{size(done)} of {size(total)}"] if total else []
    text = f"{100 * done // total if total else 0:>3}%  {', '.join(facts)}"
    label = _activity(backfill)
    room = max(columns() - len(label) - len(text) - 3, 4)
    drawn = bar(done, total, min(room, 60))
    return f"{label} {f'{_CYAN}{drawn}{_PLAIN}' if color else drawn} {text}"


def _activity(backfill: BackfillBytes | None) -> str:
    return "adding up totals" if backfill and backfill.get("totals") is not None else "reading old logs"
