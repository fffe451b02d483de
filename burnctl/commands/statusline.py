"""`burnctl statusline`: one line for the status bar of Claude Code. It never fails."""

from __future__ import annotations

import sys
import time

from burnctl import flags
from burnctl.errors import BurnctlError, Failed
from burnd.protocol import NOT_NOW

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from typing import Any

HELP = (
    "prints one line with the cost of the session (Claude Code's own figure if it is higher), the cost of today, how "
    "much of the 5-hour window and of the week is used, and how full the context is. Claude Code runs it for its "
    "status bar and passes facts about the session on stdin; the account's rate limits in there are recorded, for "
    "`burnctl limits` to show. It never starts burnd; while burnd is down it shows only the facts from stdin"
)
EXAMPLES = ('in ~/.claude/settings.json: {"statusLine": {"type": "command", "command": "burnctl statusline"}}',)

_PATIENCE_S = 0.25
_INPUT_S = 0.5
_MOST_BYTES = 4 << 20
_WINDOWS = {"5h": "five_hour", "7d": "seven_day"}
_HIGH, _TOO_HIGH = 80.0, 95.0
_MOST_PERCENT = 200.0
_SPACE = " · "
_DOWN, _STARTING = "burnd is not running", "burnd is starting"
_IS_STARTING: dict[str, Any] = {}  # the answer of a burnd that is still starting


def add_arguments(parser: argparse.ArgumentParser) -> None:
    flags.add(parser, flags.Output, only=("no_color",))


def run(options: argparse.Namespace) -> int:
    facts = _facts()
    limits = _limits_in(facts)
    answer = _ask(facts, limits)
    if answer and answer.get("currency"):
        from burnctl.render.numbers import use_currency

        use_currency(answer["currency"], sys.stdout.encoding or "ascii")
    parts = _parts(facts, limits, answer or {}, colored=not options.no_color)
    if not parts:
        parts = [_STARTING if answer is _IS_STARTING else "nothing spent today" if answer is not None else _DOWN]
    sys.stdout.write(_SPACE.join(parts) + "\n")
    return 0


def _facts() -> dict[str, Any]:
    """The facts that Claude Code passes on stdin; empty if they are not JSON."""
    import json
    import os
    import select

    if sys.stdin.isatty():
        return {}
    data, deadline = b"", time.monotonic() + _INPUT_S
    try:
        fd = sys.stdin.fileno()
        while len(data) < _MOST_BYTES:
            ready, _, _ = select.select([fd], [], [], max(deadline - time.monotonic(), 0))
            piece = os.read(fd, 1 << 16) if ready else b""
            if not piece:
                break
            data += piece
        facts = json.loads(data)
    except (ValueError, OSError, RecursionError):
        return {}
    return facts if isinstance(facts, dict) else {}


def _limits_in(facts: dict[str, Any]) -> dict[str, tuple[float, float | None]]:
    limits = {window: _object(facts, "rate_limits", name) for window, name in _WINDOWS.items()}
    return _readings(limits, "used_percentage", "resets_at")


def _readings(windows: dict[str, dict[str, Any]], used: str, resets: str) -> dict[str, tuple[float, float | None]]:
    """The used percentage of each window, and when it ends."""
    shares = {window: _share(limit.get(used)) for window, limit in windows.items()}
    return {
        window: (share, _seconds(windows[window].get(resets))) for window, share in shares.items() if share is not None
    }


def _ask(facts: dict[str, Any], limits: dict[str, tuple[float, float | None]]) -> dict[str, Any] | None:
    """The figures of the session, of today and of the window. Sends burnd the limits without waiting for an answer."""
    from burnctl.connection import Wire
    from burnd.paths import home_folder, socket_file

    session = facts.get("session_id")
    params = {"session": session} if isinstance(session, str) and session else {}
    try:
        home = home_folder()
        wire = Wire(socket_file(home), _PATIENCE_S)
    except (BurnctlError, ValueError):
        _spool(limits)
        return None
    try:
        answer = wire.ask("statusline", params, _PATIENCE_S)
        if limits:
            wire.send("quota", {"readings": [_reading(*limit) for limit in limits.items()]}, _PATIENCE_S)
    except (BurnctlError, OSError) as error:
        return _IS_STARTING if isinstance(error, Failed) and error.code == NOT_NOW else None
    finally:
        wire.close()
    return answer


def _reading(window: str, limit: tuple[float, float | None]) -> dict[str, Any]:
    used, resets = limit
    return {"window": window, "usedPercent": used, **({} if resets is None else {"resetsAt": _iso(resets)})}


def _spool(limits: dict[str, tuple[float, float | None]]) -> None:
    """Spools the limits, one file for each figure, however often it is reported."""
    import os

    from burnctl.delivery import spool_as
    from burnd.harness.claude_code.product import PRODUCT
    from burnd.paths import home_folder

    try:
        home = home_folder()
        for window, (used, resets) in limits.items():
            name = f"quota-{window}-{resets or 0:.0f}-{used:.1f}"
            if os.path.isdir(home) and not os.path.exists(os.path.join(home, "spool", f"{name}.json")):
                record = {"v": 1, "ts": _iso(time.time()), "source": PRODUCT.source, **_reading(window, (used, resets))}
                spool_as(home, name, {"v": 1, "kind": "quota", "record": record})
    except (BurnctlError, ValueError, OSError):
        return


def _parts(
    facts: dict[str, Any], limits: dict[str, tuple[float, float | None]], answer: dict[str, Any], *, colored: bool
) -> list[str]:
    from burnctl.render.numbers import of_hundred

    recorded = {"5h": _object(answer, "window", "quota"), "7d": _object(answer, "weekQuota")}
    limits = {**_readings(recorded, "usedPercent", "resetsAt"), **limits}
    parts = _session(_object(answer, "session"), _number(_object(facts, "cost").get("total_cost_usd")))
    parts += _spent(_object(answer, "today"), "today")
    parts += _windows(limits, _object(answer, "window"), colored=colored)
    context = _context(_object(facts, "context_window"))
    parts += [] if context is None else [_painted(f"ctx {of_hundred(context)}", context, colored=colored)]
    backfill = _object(answer, "backfill")
    if backfill.get("done") is False and not backfill.get("exact"):
        percent = _number(backfill.get("percent"))
        parts.append("reading old logs" + ("" if percent is None else f" {percent:.0f}%"))
    crossed = answer.get("crossed")
    names = [str(name) for name in crossed] if isinstance(crossed, list) else []
    return parts + [_painted(f"{name} budget exceeded", _TOO_HIGH, colored=colored) for name in names]


def _session(recorded: dict[str, Any], stated: float | None) -> list[str]:
    """The cost by burnd, or by Claude Code if higher: its figure includes requests without a log or price."""
    from burnctl.render.numbers import money

    cost = _number(recorded.get("costUsd"))
    is_higher = stated is not None and (stated > (cost or 0) or (stated == 0 and not recorded))
    return [f"{money(stated)} session"] if stated is not None and is_higher else _spent(recorded, "session")


def _spent(sums: dict[str, Any], what: str) -> list[str]:
    from burnctl.render.numbers import money

    cost, unpriced = _number(sums.get("costUsd")), _number(sums.get("unpricedTurns"))
    without = f"{unpriced:.0f} unpriced" if unpriced else ""
    if cost is None:
        return [f"{what}: {without}"] if without else []
    return [f"{money(cost)} {what}" + (f" + {without}" if without else "")]


def _windows(limits: dict[str, tuple[float, float | None]], counted: dict[str, Any], *, colored: bool) -> list[str]:
    """The account's own figures, else those counted in the window."""
    from burnctl.render.numbers import duration, money, of_hundred

    parts = []
    for window, (used, resets) in limits.items():
        text = f"{window} {of_hundred(used)}"
        if resets is not None and resets > time.time():
            form = "%H:%M" if resets - time.time() < 86_400 else "%a %H:%M"
            text += f" until {time.strftime(form, time.localtime(resets))}"
        parts.append(_painted(text, used, colored=colored))
    cost = _number(counted.get("costUsd"))
    if "5h" not in limits and cost is not None:
        seconds = _number(counted.get("secondsLeft"))
        parts.insert(0, f"5h {money(cost)}" + ("" if seconds is None else f", {duration(seconds)} left"))
    return parts


def _context(window: dict[str, Any]) -> float | None:
    used = _share(window.get("used_percentage"))
    if used is not None:
        return used
    size = _number(window.get("context_window_size"))
    usage = _object(window, "current_usage")
    names = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")
    tokens = [_number(usage.get(name)) for name in names]
    if not size or size <= 0 or all(count is None for count in tokens):
        return None
    return _share(100 * sum(count or 0 for count in tokens) / size)


def _painted(text: str, percent: float, *, colored: bool) -> str:
    import os

    if not colored or percent < _HIGH or os.environ.get("NO_COLOR"):
        return text
    return f"\x1b[{31 if percent >= _TOO_HIGH else 33}m{text}\x1b[0m"


def _object(value: dict[str, Any], *names: str) -> dict[str, Any]:
    """The object at a path of names, or an empty one."""
    for name in names:
        inner = value.get(name)
        if not isinstance(inner, dict):
            return {}
        value = inner
    return value


def _number(value: Any) -> float | None:
    if isinstance(value, str):
        try:
            value = float(value)
        except ValueError:
            return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        finite = float(value)
    except OverflowError:
        return None
    return finite if abs(finite) < 1e18 else None


def _share(value: Any) -> float | None:
    """A percentage from 0 to a little over 100, else None."""
    percent = _number(value)
    return percent if percent is not None and 0 <= percent <= _MOST_PERCENT else None


def _seconds(value: Any) -> float | None:
    """Seconds since 1970, of seconds, milliseconds or an ISO time."""
    at = _number(value)
    if at is not None:
        at = at / 1000 if at > 1e11 else at
        return at if 0 < at < 1e11 else None
    if not isinstance(value, str):
        return None
    from datetime import datetime

    try:
        return datetime.fromisoformat(value).timestamp()
    except (ValueError, OverflowError, OSError):
        return None


def _iso(seconds: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds)) + f".{int(seconds % 1 * 1000):03d}Z"
