"""`burnctl top`: the running sessions, refreshed as requests happen. In a pipe it prints one snapshot.

It needs no library: it draws with escape sequences on the alternate screen and reads keys with termios, so that it
works over ssh and in tmux.
"""

from __future__ import annotations

import sys
import time

from burnctl import flags
from burnctl.client import Client
from burnctl.daemon import reach
from burnctl.errors import BurnctlError, Failed
from burnctl.output import as_json
from burnctl.render.names import last_name, short_model
from burnctl.render.numbers import clock, duration, milliseconds, money, number, of_hundred, percent
from burnctl.render.screen import Screen
from burnctl.render.tables import Column, model_style, table, used_style
from burnctl.render.text import cut, flow, wrap

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from typing import Any

    from burnd.contract.results.daemon import TailEvent
    from burnd.contract.results.reports import ExportedTurn

HELP = (
    "shows the sessions that run now, refreshed as requests happen: project, model, size of the context, cost so far, "
    "cost per minute, last tool, time since the last request, and whether the agent works or waits for you; the last "
    "requests are below. Keys: q quits, s sorts, up and down select, enter explains the selected session. In a pipe it "
    "prints one snapshot"
)
EXAMPLES = ("burnctl top", "burnctl top | cat", "burnctl top --json")

_RUNNING_S = 600  # a session runs if it was written to in the last ten minutes
_RATE_S = 300  # seconds over which the cost per minute is averaged
_WAITING = ("end_turn", "stop", "stop_sequence")  # after these stop reasons the agent waits for a prompt
_SESSIONS, _TURNS, _STEPS = 50, 200, 400
_REFRESH_S, _IDLE_REFRESH_S, _TICK_S = 1.0, 15.0, 1.0
_SORTS = ("cost/min", "cost", "context", "last request", "project")
# Context windows by model; a larger context means a window of a million tokens.
_WINDOWS = (("claude", 200_000), ("opus", 200_000), ("sonnet", 200_000), ("haiku", 200_000), ("gpt-5", 400_000))
_LARGE_WINDOW = 1_000_000


def add_arguments(parser: argparse.ArgumentParser) -> None:
    flags.reading(parser)


def run(options: argparse.Namespace) -> int:
    client = reach(options)
    view = View(client)
    view.refresh(time.time())
    if options.json:
        return as_json(view.answer())
    if sys.stdin.isatty() and sys.stdout.isatty():
        return _Terminal(view, options).run()
    screen = Screen.of(options)
    print("\n".join(draw(view, screen, time.time())))
    return 0


class View:
    """The running sessions; asks the daemon again when requests arrive."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._tools: dict[str, str] = {}
        self._steps: dict[str, dict[str, Any]] = {}
        self.status: dict[str, Any] = {}
        self.sessions: list[dict[str, Any]] = []
        self.turns: list[Mapping[str, Any]] = []  # the newest last

    def answer(self) -> dict[str, Any]:
        return {**self.status, "sessions": self.sessions, "turns": self.turns[-20:]}

    def add(self, event: Mapping[str, Any]) -> None:
        turn = event.get("turn")
        if not turn:
            return
        if turn.get("toolCalls"):
            self._tools[turn["sessionId"]] = str(turn["toolCalls"][-1].get("name") or "")
        others = [one for one in self.turns if one.get("messageId") != turn.get("messageId")]
        self.turns = [*others, {**turn, "costUsd": event.get("costUsd"), "open": event.get("open")}][-_TURNS:]

    def refresh(self, now: float) -> None:
        since = int((now - _RUNNING_S) * 1000)
        status = self._client.statusline()
        rows = self._client.sessions_list(since=since, costs=True, limit=_SESSIONS)["sessions"]
        exported = self._client.export(since=since, limit=1000)["turns"]
        self.status = {name: status.get(name) for name in ("version", "today", "window", "weekQuota", "crossed")}
        ids = {turn.get("messageId") for turn in self.turns}
        older = [turn for turn in exported if turn["messageId"] not in ids]
        self.turns = sorted([*older, *self.turns], key=lambda turn: str(turn.get("ts")))[-_TURNS:]
        by_session: dict[str, list[ExportedTurn]] = {}
        for turn in exported:
            by_session.setdefault(turn["sessionId"], []).append(turn)
        self.sessions = [self._row(one, by_session.get(one["sessionId"], []), now) for one in rows]

    def _row(self, session: Mapping[str, Any], turns: Sequence[Mapping[str, Any]], now: float) -> dict[str, Any]:
        main = [turn for turn in turns if turn["railId"] == "main"] or turns
        last = main[-1] if main else {}
        usage = last.get("usage") or {}
        context = sum(usage.get(name, 0) for name in ("input", "cacheRead", "cacheCreate5m", "cacheCreate1h"))
        recent = [turn["costUsd"] or 0 for turn in turns if milliseconds(turn["ts"]) >= (now - _RATE_S) * 1000]
        at = max((turn["ts"] for turn in turns), default=session["updatedAt"], key=milliseconds)
        step = self._last_step(session["sessionId"]) if not main or session["sessionId"] not in self._tools else {}
        model, context = last.get("model") or step.get("model"), context or step.get("context") or 0
        is_open = any(turn.get("open") for turn in turns)
        is_waiting = not is_open and last.get("stopReason") in _WAITING
        return {
            "sessionId": session["sessionId"],
            "shortId": session["shortId"],
            "title": session["title"],
            "project": session["project"],
            "source": session["source"],
            "model": model,
            "context": context or None,
            "window": window_of(model, context),
            "costUsd": session["costUsd"],
            "requests": session["turns"],
            "costPerMinute": 60 * sum(recent) / _RATE_S,
            "lastTool": self._tools.get(session["sessionId"]) or step.get("tool") or "",
            "lastRequest": at,
            "state": "working"
            if is_open or last.get("stopReason") == "tool_use"
            else "waiting"
            if is_waiting
            else "idle",
        }

    def _last_step(self, session: str) -> Mapping[str, Any]:
        """The model, context and last tool of a session that the last minutes lack."""
        if session not in self._steps:
            self._steps[session] = {}
            try:
                lanes = self._client.flow(session, limit=_STEPS)["lanes"]
            except Failed:  # erased meanwhile
                return {}
            steps = [step for lane in lanes[:1] for step in lane["steps"][-8:]]
            tools = [call["tool"] for step in steps for call in step["calls"]]
            self._steps[session] = {**(steps[-1] if steps else {}), "tool": tools[-1] if tools else ""}
        return self._steps[session]


def window_of(model: object, context: int) -> int | None:
    """The size of a model's context window, if known."""
    name = str(model or "")
    window = next((size for family, size in _WINDOWS if family in name), None)
    return _LARGE_WINDOW if window is not None and context > window else window


def ordered(sessions: Iterable[Mapping[str, Any]], sort: str) -> list[Mapping[str, Any]]:
    keys: dict[str, Callable[[Mapping[str, Any]], Any]] = {
        "cost/min": lambda one: (-one["costPerMinute"], -(one["costUsd"] or 0)),
        "cost": lambda one: -(one["costUsd"] or 0),
        "context": lambda one: -(one["context"] or 0),
        "last request": lambda one: -milliseconds(one["lastRequest"]),
        "project": lambda one: str(one["project"] or ""),
    }
    return sorted(sessions, key=keys[sort])


def draw(
    view: View, screen: Screen, now: float, *, sort: str = _SORTS[0], selected: str | None = None, height: int = 0
) -> list[str]:
    """The lines of the view; with a `height` as many as fit, and the keys at the bottom."""
    from burnctl.commands.tail import heading, turn_line

    rows = ordered(view.sessions, sort)
    head = [*_headline(view, screen, now), ""]
    room = max(height - len(head) - 5, 1) if height else len(rows)
    tall = min(len(rows), max(room * 2 // 3, 1)) if height else len(rows)
    lines = [*head, *_table(rows[:tall], screen, now, selected)]
    if len(rows) > tall:
        lines.append(screen.paint(f"and {len(rows) - tall:,} more", "dim"))
    if most := max(height - len(lines) - 4, 0) if height else 8:
        turns = view.turns[: -most - 1 : -1]
        lines += ["", heading(screen)] if turns else []
        lines += [turn_line(turn, screen, dim=bool(turn.get("open"))) for turn in turns]
    if not height:
        return [line.rstrip() for line in lines]
    keys = cut(f" q quit · s sort ({sort}) · ↑↓ select · enter why", screen.width)
    body = lines[: height - 1]
    return [*body, *[""] * (height - 1 - len(body)), screen.paint(keys.ljust(screen.width), "reverse")]


def _headline(view: View, screen: Screen, now: float) -> list[str]:
    today, window = view.status.get("today") or {}, view.status.get("window")
    cost = today.get("costUsd")
    parts = [(f"today {money(cost if cost is not None or today.get('unpricedTurns') else 0.0)}", "bold")]
    if window:
        time_left = f", {duration(window['secondsLeft'])} left" if window.get("secondsLeft") else ""
        parts.append((f"5-hour window {money(window['costUsd'])}{time_left}", ""))
        quota = (window.get("quota") or {}).get("usedPercent")
        parts += [(f"{of_hundred(quota)} used", used_style(quota))] if quota is not None else []
    week = (view.status.get("weekQuota") or {}).get("usedPercent")
    parts += [(f"week {of_hundred(week)} used", used_style(week))] if week is not None else []
    parts += [(f"{name} budget exceeded", "red") for name in view.status.get("crossed") or ()]
    rate = sum(one["costPerMinute"] for one in view.sessions)
    parts += [(f"{money(rate)}/min", "yellow")] if rate else []
    parts.append((clock(now * 1000), "dim"))
    return flow(parts, screen)


def _table(rows: Sequence[Mapping[str, Any]], screen: Screen, now: float, selected: str | None) -> list[str]:
    if not rows:
        return wrap(f"No session was active in the last {_RUNNING_S // 60} minutes.", screen.width)
    most = max((row["costPerMinute"] for row in rows), default=0)
    cells = []
    for row in rows:
        share = row["context"] / row["window"] if row["context"] and row["window"] else None
        passed = max(now - milliseconds(row["lastRequest"]) / 1000, 0)
        style = {"working": "green", "waiting": "yellow"}.get(row["state"], "dim")
        mark = "▸ " if row["sessionId"] == selected else "  "
        cells.append(
            (
                (
                    f"{mark}{last_name(row['project']) or row['shortId']}",
                    "bold" if selected == row["sessionId"] else "",
                ),
                (short_model(row["model"]), model_style(row["model"])),
                number(row["context"]),
                (percent(share), used_style(share * 100 if share is not None else None)),
                money(row["costUsd"]),
                (money(row["costPerMinute"]), "bold" if row["costPerMinute"] and row["costPerMinute"] == most else ""),
                row["lastTool"] or "-",
                duration(passed) if passed >= 1 else "now",
                (row["state"], style),
            )
        )
    columns = (
        Column("  project", least=10),
        Column("model", least=8, drop=2),
        Column("context", "right", drop=4),
        Column("full", "right", drop=1),
        Column("cost", "right"),
        Column("cost/min", "right"),
        Column("tool", least=6, drop=3),
        Column("ago", "right", drop=5),
        Column("state", least=7),
    )
    return table(columns, cells, screen).splitlines()


class _Terminal:
    """Draws the view on the alternate screen until `q`, and restores the terminal."""

    def __init__(self, view: View, options: argparse.Namespace) -> None:
        self._view, self._options = view, options
        self._sort, self._selected = (
            0,
            None if not view.sessions else str(ordered(view.sessions, _SORTS[0])[0]["sessionId"]),
        )
        self._problem = ""

    def run(self) -> int:
        import signal
        import termios
        import tty

        before = termios.tcgetattr(sys.stdin.fileno())
        stop = signal.signal(signal.SIGTERM, _leave)
        signal.signal(signal.SIGHUP, _leave)
        try:
            tty.setcbreak(sys.stdin.fileno())
            sys.stdout.write("\x1b[?1049h\x1b[?25l")
            sys.stdout.flush()
            self._loop()
        except KeyboardInterrupt:
            pass
        finally:
            signal.signal(signal.SIGTERM, stop)
            sys.stdout.write("\x1b[?25h\x1b[?1049l")
            sys.stdout.flush()
            termios.tcsetattr(sys.stdin.fileno(), termios.TCSADRAIN, before)
        return 0

    def _loop(self) -> None:
        import os
        from select import select

        stream = _Stream()
        fresh, is_moved = time.monotonic(), False
        while True:
            width, height = os.get_terminal_size(sys.stdout.fileno())
            screen = Screen(width, color=Screen.of(self._options).color)
            lines = draw(
                self._view, screen, time.time(), sort=_SORTS[self._sort], selected=self._selected, height=max(height, 4)
            )
            if self._problem:
                lines[-2] = screen.paint(cut(f"{self._problem}; waiting", width), "red")
            sys.stdout.write("\x1b[H" + "\r\n".join(f"{line}\x1b[K" for line in lines) + "\x1b[J")
            sys.stdout.flush()
            ready, _, _ = select([sys.stdin, stream], [], [], _TICK_S)
            if sys.stdin in ready and not self._key(_read_key()):
                return
            for event in stream.take():
                self._view.add(event)
                is_moved = True
            passed = time.monotonic() - fresh
            if passed >= (_REFRESH_S if is_moved or self._problem else _IDLE_REFRESH_S):
                try:
                    self._view.refresh(time.time())
                    self._problem = ""
                except BurnctlError as error:
                    self._problem = error.message
                fresh, is_moved = time.monotonic(), False

    def _key(self, key: str) -> bool:
        rows = [str(one["sessionId"]) for one in ordered(self._view.sessions, _SORTS[self._sort])]
        at = rows.index(self._selected) if self._selected in rows else 0
        if key in ("q", "Q", "\x03", "\x04", ""):
            return False
        if key == "s":
            self._sort = (self._sort + 1) % len(_SORTS)
        elif key in ("up", "k") and rows:
            self._selected = rows[max(at - 1, 0)]
        elif key in ("down", "j") and rows:
            self._selected = rows[min(at + 1, len(rows) - 1)]
        elif key in ("\r", "\n") and rows:
            self._open(rows[at])
        return True

    def _open(self, session: str) -> None:
        import subprocess

        sys.stdout.write("\x1b[?25h\x1b[2J\x1b[H")
        sys.stdout.flush()
        command = [
            sys.executable,
            "-P",
            "-m",
            "burnctl",
            "why",
            session,
            *(["--no-color"] if self._options.no_color else []),
        ]
        subprocess.run(command, check=False)
        sys.stdout.write("\r\n(any key goes back)")
        sys.stdout.flush()
        _read_key()
        sys.stdout.write("\x1b[?25l\x1b[2J")


class _Stream:
    """Reads the stream of requests in a thread, and reconnects."""

    def __init__(self) -> None:
        import os
        import threading
        from collections import deque

        self._events: deque[TailEvent] = deque(maxlen=1000)
        self._out, self._in = os.pipe()
        threading.Thread(target=self._follow, daemon=True).start()

    def fileno(self) -> int:
        return self._out

    def take(self) -> list[TailEvent]:
        """The events since the last call; a pipe signals new ones."""
        import os
        from select import select

        while select([self._out], [], [], 0)[0]:
            os.read(self._out, 4096)
        events = []
        while self._events:
            events.append(self._events.popleft())
        return events

    def _follow(self) -> None:
        import contextlib
        import os

        while True:
            with contextlib.suppress(BurnctlError), Client() as client:
                for event in client.tail():
                    self._events.append(event)
                    os.write(self._in, b".")
            time.sleep(0.5)


def _read_key() -> str:
    """One key: a character, or the name of an arrow."""
    import os
    from select import select

    first = os.read(sys.stdin.fileno(), 1).decode(errors="replace")
    if first != "\x1b":
        return first
    rest = os.read(sys.stdin.fileno(), 8).decode(errors="replace") if select([sys.stdin], [], [], 0.05)[0] else ""
    return {"[A": "up", "OA": "up", "[B": "down", "OB": "down"}.get(rest, "escape")


def _leave(number: int, _frame: object) -> None:
    raise SystemExit(128 + number)
