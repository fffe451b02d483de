"""The table of settings."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable
from typing import Any, NamedTuple

from burnd.harness.registry import PRODUCTS

FOREVER = "forever"
_MACHINE_ID = re.compile("[A-Za-z0-9][A-Za-z0-9_-]{0,63}")


class Key(NamedTuple):
    """`env` is a variable that overrides the file; without `restart`, a change applies within seconds."""

    name: str
    default: Any
    check: Callable[[Any], Any]
    about: str
    env: str = ""
    restart: bool = True


def _must(is_valid: Callable[[Any], bool], what: str) -> Callable[[Any], Any]:
    """A check raises ValueError."""

    def check(value: Any) -> Any:
        if not is_valid(value):
            raise ValueError(f"must be {what}, not {value!r}")
        return value

    return check


def _one_of(*names: str) -> Callable[[Any], Any]:
    *others, last = (f'"{name}"' for name in names)
    return _must(lambda value: value in names, f"{', '.join(others)} or {last}")


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _whole(least: int, most: int) -> Callable[[Any], Any]:
    return _must(
        lambda value: _is_number(value) and isinstance(value, int) and least <= value <= most,
        f"a whole number from {least} to {most}",
    )


def _list_of(what: str) -> Callable[[Any], Any]:
    return _must(
        lambda value: isinstance(value, list) and all(isinstance(item, str) and item for item in value),
        f"a list of {what}",
    )


_mode = _one_of("full", "hash-only", "off")
_text = _must(lambda value: isinstance(value, str) and "\0" not in value, "a text")
_machine = _must(
    lambda value: isinstance(value, str) and (not value or bool(_MACHINE_ID.fullmatch(value))),
    "1 to 64 letters, digits, hyphens or underscores",
)
_yes_or_no = _must(lambda value: isinstance(value, bool), "true or false")
_dollars = _must(
    lambda value: _is_number(value) and 0 <= value < 1e9, "an amount in dollars below 1000000000, or 0 for none"
)
_rate = _must(
    lambda value: _is_number(value) and 0 <= value < 1e9, "the price of a dollar in the currency, such as 0.92"
)
_command = _must(
    lambda value: all(
        isinstance(word, str) and "\0" not in word for word in (value if isinstance(value, list) else [value])
    ),
    "a program and its arguments in a list, or one line for the shell",
)
_PRODUCT_CHECKS = {"folders": _list_of("folders"), "files": _list_of("files"), "flag": _yes_or_no}
PLANS = {name: (product.source, *plan) for product in PRODUCTS for name, plan in product.plans.items()}
_plans = _must(
    lambda value: isinstance(value, str) and (not value or all(name.strip() in PLANS for name in value.split(","))),
    f"one or more of {', '.join(PLANS)}, with commas between them",
)


class Address(NamedTuple):
    host: str
    port: int


def loopback_address(text: str) -> Address:
    """Parses `127.0.0.1:9464` or `[::1]:9464`. Raises ValueError."""
    host, _, port = text.rpartition(":")
    host = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    if not ipaddress.ip_address(host).is_loopback or not port.isdecimal() or not 0 < int(port) < 1 << 16:
        raise ValueError(text)
    return Address(host, int(port))


def _listen(value: Any) -> Any:
    try:
        if value != "":
            loopback_address(value)
    except (ValueError, AttributeError):
        raise ValueError(f"must be a loopback address and a port, such as 127.0.0.1:9464, not {value!r}") from None
    return value


def _days(value: Any) -> Any:
    """Accepts -1, the older form of "forever"."""
    if isinstance(value, str) and value != FOREVER:
        try:
            value = float(value) if "." in value else int(value)
        except ValueError:
            raise ValueError(f'must be a number of days or "forever", not {value!r}') from None
    if value in (FOREVER, -1):
        return FOREVER
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e6:
        raise ValueError(f'must be a number of days, or "forever", not {value!r}')
    return value


def _currency(value: Any) -> Any:
    code = value.upper() if isinstance(value, str) else ""
    if len(code) != 3 or not (code.isascii() and code.isalpha()):
        raise ValueError(f"must be a currency code such as EUR, not {value!r}")
    return code


_GUARD = {
    "session_usd": (
        _dollars,
        "Dollars at API prices at which a session is stopped, with what it started; 0 for no limit.",
    ),
    "session_tokens": (_whole(0, 1 << 50), "The same in tokens."),
    "session_subagents": (
        _whole(0, 1 << 30),
        "Subagents and child sessions at which a session is stopped; 0 for none.",
    ),
    "failing_calls": (
        _whole(0, 100),
        "Times that the same call may fail in a row before it is denied; 0 for no limit.",
    ),
    "day_usd": (_dollars, "Dollars of a day at which all sessions are stopped; 0 for no limit."),
    "day_tokens": (_whole(0, 1 << 50), "The same in tokens."),
    "window_usd": (_dollars, "Dollars of a harness's 5-hour window at which its sessions are stopped; 0 for no limit."),
    "window_tokens": (_whole(0, 1 << 50), "The same in tokens."),
}
GUARD_LIMITS = tuple(_GUARD)


KEYS = (
    Key(
        "content.store",
        "full",
        _mode,
        "Content of conversations to store: full; hash-only (no text, but hashes of tool results, so that\n"
        "repeated reads are detected); off (nothing).",
        "RELAYBURN_CONTENT_STORE",
    ),
    Key(
        "content.retention_days",
        90,
        _days,
        'Days after its newest record until a session\'s content is deleted, or "forever".',
        "RELAYBURN_CONTENT_TTL_DAYS",
        restart=False,
    ),
    Key(
        "content.inline_bytes",
        512,
        _whole(0, 1 << 20),
        "Size in bytes from which text is stored in blobs.db, once for all sessions that share it.",
    ),
    *(
        Key(setting.key, setting.default, _PRODUCT_CHECKS[setting.kind], setting.about)
        for product in PRODUCTS
        for setting in product.settings
    ),
    Key(
        "disk.reserve",
        "auto",
        lambda value: value if value == "auto" else _whole(0, 1 << 50)(value),
        'Bytes of free disk below which recording pauses until there is space; "auto" is 20 MB, or 2% of\n'
        "a small disk.",
        restart=False,
    ),
    Key(
        "log.file",
        "",
        _text,
        "A file for the log, relative to the home; rotated when it is large. Empty is stderr.",
    ),
    Key(
        "log.format",
        "auto",
        _one_of("auto", "json", "console"),
        'Format of the log: json, console, or "auto", which is console at a terminal and JSON elsewhere.',
    ),
    Key(
        "log.level",
        "info",
        _one_of("debug", "info", "warning", "error"),
        "Lowest level to log: debug, info, warning or error.",
    ),
    Key(
        "machine.id",
        "",
        _machine,
        "The id of this machine in exports, for containers and the like. Empty is a random one that is kept in the\n"
        "home (machine.json), and replaced when the home is copied.",
        restart=False,
    ),
    Key(
        "metrics.listen",
        "",
        _listen,
        "A loopback address for Prometheus, such as 127.0.0.1:9464; empty for none. Every user of this machine can\n"
        "then read models, projects and costs.",
    ),
    Key(
        "socket.allow_root",
        False,
        _yes_or_no,
        "Whether root may connect to this daemon beside you. Other users never can.",
        restart=False,
    ),
    Key(
        "display.plan",
        "",
        _plans,
        f"Your subscriptions, so that reports show what they cover: {', '.join(PLANS)}; several with commas.",
        restart=False,
    ),
    Key(
        "display.currency",
        "USD",
        _currency,
        "The currency in which burnctl shows money; display.rate must be set too.",
        restart=False,
    ),
    Key(
        "display.rate",
        0,
        _rate,
        "The price of a dollar in display.currency, such as 0.92; 0 shows dollars.",
        restart=False,
    ),
    Key(
        "budget.daily",
        0,
        _dollars,
        "Budget of a day at API prices, in dollars; 0 for none. Days are those of this machine's time zone.",
        restart=False,
    ),
    Key("budget.weekly", 0, _dollars, "The same for a week, from Monday on.", restart=False),
    Key("budget.monthly", 0, _dollars, "The same for a calendar month.", restart=False),
    Key(
        "budget.command",
        [],
        _command,
        "Command to run once when a budget is exceeded: a program and its arguments, or a line for the shell.\n"
        "Its environment has BURND_BUDGET_PERIOD, _LIMIT_USD, _SPENT_USD, _FROM and _TO.",
        restart=False,
    ),
    Key(
        "limits.five_hours_usd",
        0,
        _dollars,
        "What your plan allows in five hours, in dollars at API prices; 0 if only the account's readings count.",
        restart=False,
    ),
    Key(
        "limits.week_usd",
        0,
        _dollars,
        "The same for a week.",
        restart=False,
    ),
    *(Key(f"guard.{name}", 0, check, about, restart=False) for name, (check, about) in _GUARD.items()),
)
BY_NAME = {key.name: key for key in KEYS}
