"""Settings: what may be set, in config.toml and in the environment, and what holds when nothing is said."""

from __future__ import annotations

import difflib
import json
import os
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple, cast

import tomli_w

from burnd.errors import ConfigError
from burnd.ledger import files
from burnd.ledger.retention import DAY_MS
from burnd.paths import Home
from burnd.records.session import ContentMode

_FOREVER = "forever"


class Key(NamedTuple):
    """One setting: its name in the file, its default, how a value is checked, and what to say about it."""

    name: str
    default: Any
    check: Callable[[Any], Any]
    says: str
    env: str = ""


@dataclass(frozen=True)
class Settings:
    """Every setting with its value, and which ones the environment decided."""

    values: Mapping[str, Any]
    from_env: frozenset[str] = frozenset()

    @property
    def content_mode(self) -> ContentMode:
        return cast("ContentMode", self.values["content.store"])

    @property
    def retention_ms(self) -> int | None:
        """How long content is kept; None is for ever."""
        days = self.values["content.retention_days"]
        return None if days == _FOREVER else int(days * DAY_MS)

    @property
    def inline_bytes(self) -> int:
        return cast("int", self.values["content.inline_bytes"])

    @property
    def claude_roots(self) -> list[str]:
        return cast("list[str]", self.values["claude.roots"])

    @property
    def codex_roots(self) -> list[str]:
        return cast("list[str]", self.values["codex.roots"])

    @property
    def opencode_databases(self) -> list[str]:
        return cast("list[str]", self.values["opencode.databases"])

    @property
    def opencode_include(self) -> list[str]:
        return cast("list[str]", self.values["opencode.include"])

    @property
    def opencode_exclude(self) -> list[str]:
        return cast("list[str]", self.values["opencode.exclude"])

    @property
    def opencode_archived(self) -> bool:
        return cast("bool", self.values["opencode.archived"])

    @property
    def opencode_reasoning(self) -> bool:
        return cast("bool", self.values["opencode.reasoning"])

    @property
    def opencode_tool_outputs(self) -> bool:
        return cast("bool", self.values["opencode.include_tool_outputs"])

    @property
    def log_file(self) -> str:
        """Where the log goes; empty is stderr. A relative path is below the home."""
        return cast("str", self.values["log.file"])

    @property
    def log_format(self) -> str:
        return cast("str", self.values["log.format"])

    @property
    def log_level(self) -> str:
        return cast("str", self.values["log.level"])

    @property
    def allows_root(self) -> bool:
        return cast("bool", self.values["socket.allow_root"])

    @property
    def budgets(self) -> dict[str, Decimal]:
        """The budgets that are set, in dollars, by period: daily, weekly, monthly."""
        said = {period: self.values[f"budget.{period}"] for period in ("daily", "weekly", "monthly")}
        return {period: Decimal(str(amount)) for period, amount in said.items() if amount}

    @property
    def budget_command(self) -> str | list[str]:
        """What to run when a budget is crossed; empty is nothing."""
        return cast("str | list[str]", self.values["budget.command"])

    @property
    def reserve(self) -> int | None:
        """Bytes of free disk never to be used up; None lets the size of the disk decide."""
        reserve = self.values["disk.reserve"]
        return None if reserve == "auto" else cast("int", reserve)


def load(home: Home, env: Mapping[str, str] = os.environ) -> Settings:
    """What holds: the environment, else the file, else the defaults. Raises ConfigError."""
    said = _from_file(home)
    values = {key.name: said.get(key.name, key.default) for key in KEYS}
    from_env = set()
    for key in KEYS:
        if key.env and (text := env.get(key.env)):
            values[key.name] = checked(key, text, "environment", key.env)
            from_env.add(key.name)
    return Settings(values, frozenset(from_env))


def template() -> str:
    """A config.toml that says every default and what it means."""
    parts = ["# burnd's settings. Every line shows its default; the environment wins over this file.\n"]
    section = ""
    for key in KEYS:
        table, name = key.name.split(".")
        if table != section:
            parts.append(f"\n[{table}]\n")
            section = table
        parts += [f"# {line}\n" for line in key.says.splitlines()]
        parts += [f"# In the environment: {key.env}\n"] if key.env else []
        parts.append(tomli_w.dumps({name: key.default}))
    return "".join(parts)


def init(home: Home) -> Path:
    """Writes the template where there is no config.toml yet; an older config.json goes over into it."""
    if home.config.exists():
        raise ConfigError(str(home.config), "", "is there already; edit it, or move it away first")
    said = _from_json(home.older_config) if home.older_config.exists() else {}
    text = template()
    for name, value in said.items():
        key = name.split(".")[1]
        text = text.replace(tomli_w.dumps({key: _BY_NAME[name].default}), tomli_w.dumps({key: value}), 1)
    files.make_folder(home.root)
    files.replace_file(home.config, text.encode())
    return home.config


def _from_file(home: Home) -> dict[str, Any]:
    if home.config.exists():
        return _from_toml(home.config)
    return _from_json(home.older_config) if home.older_config.exists() else {}


def _from_toml(path: Path) -> dict[str, Any]:
    said = flat(parsed(text_of(path), path), path)
    return {name: checked(find_key(name, path), value, str(path), name) for name, value in said.items()}


def parsed(text: str, path: Path) -> dict[str, Any]:
    """The tables of a config.toml. Raises ConfigError."""
    try:
        return tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise ConfigError(str(path), "", f"is not TOML: {error}") from error


def _from_json(path: Path) -> dict[str, Any]:
    """The older shape, {"content": {"store": ..., "retentionDays": ...}}."""
    try:
        tables = json.loads(text_of(path))
    except (ValueError, RecursionError) as error:
        raise ConfigError(str(path), "", f"is not JSON: {error}") from error
    if not isinstance(tables, dict):
        raise ConfigError(str(path), "", "must be an object")
    names = {"content.store": "content.store", "content.retentionDays": "content.retention_days"}
    said = {}
    for name, value in flat(tables, path).items():
        if name not in names:
            raise ConfigError(str(path), name, "is not a setting of this older file; use config.toml")
        said[names[name]] = checked(_BY_NAME[names[name]], value, str(path), name)
    return said


def text_of(path: Path) -> str:
    """A file of settings. Raises ConfigError."""
    try:
        return path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(str(path), "", f"cannot be read: {error}") from error


def flat(tables: Mapping[str, Any], path: Path) -> dict[str, Any]:
    """`{"content": {"store": ...}}` as `{"content.store": ...}`. Raises ConfigError."""
    found = {}
    for table, keys in tables.items():
        if not isinstance(keys, dict):
            raise ConfigError(str(path), table, "is not a setting" + _suggestion(table))
        found.update({f"{table}.{name}": value for name, value in keys.items()})
    return found


def find_key(name: str, path: Path) -> Key:
    """The setting of that name. Raises ConfigError, with a suggestion."""
    if name not in _BY_NAME:
        raise ConfigError(str(path), name, "is not a setting" + _suggestion(name))
    return _BY_NAME[name]


def _suggestion(name: str) -> str:
    close = difflib.get_close_matches(name, _BY_NAME, 1)
    return f"; did you mean {close[0]}?" if close else ""


def checked(key: Key, value: Any, where: str, shown: str) -> Any:
    """The value as it holds. Raises ConfigError, naming where it stands and what is wrong with it."""
    try:
        return key.check(value)
    except ValueError as error:
        raise ConfigError(where, shown, str(error)) from None


def _one_of(*names: str) -> Callable[[Any], Any]:
    *others, last = (f'"{name}"' for name in names)

    def check(value: Any) -> Any:
        if value not in names:
            raise ValueError(f"must be {', '.join(others)} or {last}, not {value!r}")
        return value

    return check


_mode = _one_of("full", "hash-only", "off")


def _text(value: Any) -> Any:
    if not isinstance(value, str) or "\0" in value:
        raise ValueError(f"must be a text, not {value!r}")
    return value


def _yes_or_no(value: Any) -> Any:
    if not isinstance(value, bool):
        raise ValueError(f"must be true or false, not {value!r}")
    return value


def _days(value: Any) -> Any:
    """A number of days; "forever", and the older -1, keep content for good."""
    if isinstance(value, str) and value != _FOREVER:
        try:
            value = float(value) if "." in value else int(value)
        except ValueError:
            raise ValueError(f'must be a number of days or "forever", not {value!r}') from None
    if value in (_FOREVER, -1):
        return _FOREVER
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e6:
        raise ValueError(f'must be a number of days, or "forever", not {value!r}')
    return value


def _whole(least: int, most: int) -> Callable[[Any], Any]:
    def check(value: Any) -> Any:
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise ValueError(f"must be a whole number from {least} to {most}, not {value!r}")
        return value

    return check


def _list_of(what: str) -> Callable[[Any], Any]:
    def check(value: Any) -> Any:
        if not isinstance(value, list) or not all(isinstance(item, str) and item for item in value):
            raise ValueError(f"must be a list of {what}, not {value!r}")
        return value

    return check


_folders = _list_of("folders")
_files = _list_of("files")


def _dollars(value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e9:
        raise ValueError(f"must be an amount in dollars, 0 for none, not {value!r}")
    return value


def _command(value: Any) -> Any:
    words = [value] if isinstance(value, str) else value
    if not isinstance(words, list) or not all(isinstance(word, str) and "\0" not in word for word in words):
        raise ValueError(f"must be a program and its arguments in a list, or one line for the shell, not {value!r}")
    return value


def _reserve(value: Any) -> Any:
    return value if value == "auto" else _whole(0, 1 << 50)(value)


KEYS = (
    Key(
        "content.store",
        "full",
        _mode,
        "What is kept of conversations: full; hash-only (no text, but hashes of tool results, so that\n"
        "a repeated read is still seen); off (nothing).",
        "RELAYBURN_CONTENT_STORE",
    ),
    Key(
        "content.retention_days",
        90,
        _days,
        'For how many days after its newest record a session\'s content is kept, or "forever".',
        "RELAYBURN_CONTENT_TTL_DAYS",
    ),
    Key(
        "content.inline_bytes",
        512,
        _whole(0, 1 << 20),
        "Text of this many bytes or more is stored apart, once however many sessions share it.",
    ),
    Key(
        "claude.roots",
        [],
        _folders,
        "More folders to read Claude Code's sessions from, beside CLAUDE_CONFIG_DIR, ~/.claude and ~/.config/claude.",
    ),
    Key(
        "codex.roots",
        [],
        _folders,
        "More folders to read Codex's sessions from, beside CODEX_HOME and ~/.codex.",
    ),
    Key(
        "opencode.databases",
        [],
        _files,
        "More of opencode's databases to read, beside OPENCODE_DB and those in its own folder.",
    ),
    Key(
        "opencode.include",
        [],
        _folders,
        "The projects of opencode's to read: folders, with all below them, or patterns such as ~/work/*.\n"
        "Empty is all of them.",
    ),
    Key(
        "opencode.exclude",
        [],
        _folders,
        "The projects of opencode's not to read, whatever includes them.",
    ),
    Key(
        "opencode.archived",
        True,
        _yes_or_no,
        "Whether sessions that were archived in opencode are read.",
    ),
    Key(
        "opencode.reasoning",
        True,
        _yes_or_no,
        "Whether the text of a model's reasoning is kept with the rest of a conversation.",
    ),
    Key(
        "opencode.include_tool_outputs",
        False,
        _yes_or_no,
        "Whether outputs too long for opencode's database are taken from the files it keeps them in for a week.",
    ),
    Key(
        "disk.reserve",
        "auto",
        _reserve,
        'Bytes of free disk below which nothing more is recorded until there is room again; "auto" is\n'
        "20 MB, or 2 % of a small disk.",
    ),
    Key(
        "log.file",
        "",
        _text,
        "A file for the log, below the home unless it begins with a slash; kept small by itself. Empty is stderr.",
    ),
    Key(
        "log.format",
        "auto",
        _one_of("auto", "json", "console"),
        'How the log is written: json, console (for a person), or "auto", which is console at a terminal.',
    ),
    Key(
        "log.level",
        "info",
        _one_of("debug", "info", "warning", "error"),
        "The least that is worth a line in the log: debug, info, warning or error.",
    ),
    Key(
        "socket.allow_root",
        False,
        _yes_or_no,
        "Whether root may ask this daemon as well as you; nobody else ever can.",
    ),
    Key(
        "budget.daily",
        0,
        _dollars,
        "What a day may cost at API prices, in dollars; 0 is no budget. A day is one of this machine's clock.",
    ),
    Key("budget.weekly", 0, _dollars, "What a week, from Monday on, may cost; 0 is no budget."),
    Key("budget.monthly", 0, _dollars, "What a calendar month may cost; 0 is no budget."),
    Key(
        "budget.command",
        [],
        _command,
        "What to run once when a budget is crossed: a program and its arguments, or one line for the shell.\n"
        "BURND_BUDGET_PERIOD, _LIMIT_USD, _SPENT_USD, _FROM and _TO in its environment say which and how far.",
    ),
)
_BY_NAME = {key.name: key for key in KEYS}
