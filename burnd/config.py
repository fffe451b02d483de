"""Settings: what may be set, in config.toml and in the environment, and what holds when nothing is said."""

from __future__ import annotations

import difflib
import json
import os
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
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
            values[key.name] = _checked(key, text, "environment", key.env)
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
    try:
        tables = tomllib.loads(_text_of(path))
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise ConfigError(str(path), "", f"is not TOML: {error}") from error
    return {name: _checked(_key(name, path), value, str(path), name) for name, value in _flat(tables, path).items()}


def _from_json(path: Path) -> dict[str, Any]:
    """The older shape, {"content": {"store": ..., "retentionDays": ...}}."""
    try:
        tables = json.loads(_text_of(path))
    except (ValueError, RecursionError) as error:
        raise ConfigError(str(path), "", f"is not JSON: {error}") from error
    if not isinstance(tables, dict):
        raise ConfigError(str(path), "", "must be an object")
    names = {"content.store": "content.store", "content.retentionDays": "content.retention_days"}
    said = {}
    for name, value in _flat(tables, path).items():
        if name not in names:
            raise ConfigError(str(path), name, "is not a setting of this older file; use config.toml")
        said[names[name]] = _checked(_BY_NAME[names[name]], value, str(path), name)
    return said


def _text_of(path: Path) -> str:
    try:
        return path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(str(path), "", f"cannot be read: {error}") from error


def _flat(tables: Mapping[str, Any], path: Path) -> dict[str, Any]:
    flat = {}
    for table, keys in tables.items():
        if not isinstance(keys, dict):
            raise ConfigError(str(path), table, "is not a setting" + _suggestion(table))
        flat.update({f"{table}.{name}": value for name, value in keys.items()})
    return flat


def _key(name: str, path: Path) -> Key:
    if name not in _BY_NAME:
        raise ConfigError(str(path), name, "is not a setting" + _suggestion(name))
    return _BY_NAME[name]


def _suggestion(name: str) -> str:
    close = difflib.get_close_matches(name, _BY_NAME, 1)
    return f"; did you mean {close[0]}?" if close else ""


def _checked(key: Key, value: Any, where: str, shown: str) -> Any:
    try:
        return key.check(value)
    except ValueError as error:
        raise ConfigError(where, shown, str(error)) from None


def _mode(value: Any) -> Any:
    if value not in ("full", "hash-only", "off"):
        raise ValueError(f'must be "full", "hash-only" or "off", not {value!r}')
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


def _folders(value: Any) -> Any:
    if not isinstance(value, list) or not all(isinstance(item, str) and item for item in value):
        raise ValueError(f"must be a list of folders, not {value!r}")
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
        1024,
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
        "disk.reserve",
        "auto",
        _reserve,
        'Bytes of free disk below which nothing more is recorded until there is room again; "auto" is\n'
        "20 MB, or 2 % of a small disk.",
    ),
)
_BY_NAME = {key.name: key for key in KEYS}
