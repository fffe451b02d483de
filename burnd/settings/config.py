"""Settings: what holds, by the environment, config.toml and the defaults, and the file that shows all of them."""

from __future__ import annotations

import difflib
import json
import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any, cast

import tomli_w

from burnd.errors import ConfigError
from burnd.harness.product import Product
from burnd.ledger import files
from burnd.paths import Home
from burnd.records.session import ContentMode
from burnd.records.times import DAY_MS
from burnd.settings.keys import BY_NAME, FOREVER, KEYS, PLANS, Key


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
        return None if days == FOREVER else int(days * DAY_MS)

    @property
    def inline_bytes(self) -> int:
        return cast("int", self.values["content.inline_bytes"])

    def roots_of(self, product: Product) -> list[str]:
        """The further folders or databases of an agent product."""
        return cast("list[str]", self.values[product.roots_key])

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
    def display(self) -> dict[str, Any]:
        """What every report carries for those who show it: the currency and the plans, if they are set."""
        shown: dict[str, Any] = {}
        code, rate = self.values["display.currency"], self.values["display.rate"]
        if code != "USD" and rate:
            shown["currency"] = {"code": code, "rate": rate}
        if names := [name.strip() for name in self.values["display.plan"].split(",") if name.strip()]:
            fields = ("name", "source", "title", "monthlyUsd")
            shown["plans"] = [dict(zip(fields, (name, *PLANS[name]), strict=True)) for name in names]
        return shown

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
        text = text.replace(tomli_w.dumps({key: BY_NAME[name].default}), tomli_w.dumps({key: value}), 1)
    files.make_folder(home.root)
    files.replace_file(home.config, text.encode())
    return home.config


def _from_file(home: Home) -> dict[str, Any]:
    if os.path.lexists(home.config):  # a link to nothing is no wish to have none: it may say what must not be kept
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
        said[names[name]] = checked(BY_NAME[names[name]], value, str(path), name)
    return said


def text_of(path: Path) -> str:
    """A file of settings. Raises ConfigError."""
    try:
        return files.read_plain(path).decode("utf-8")
    except OSError as error:
        what = "is a link to nothing" if path.is_symlink() and not path.exists() else error.strerror
        raise ConfigError(str(path), "", f"cannot be read: {what}") from error
    except UnicodeDecodeError as error:
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
    if name not in BY_NAME:
        raise ConfigError(str(path), name, "is not a setting" + _suggestion(name))
    return BY_NAME[name]


def full_name(name: str) -> str:
    """The name of a setting with its table: `plan` is `display.plan`, if no other table has such a key."""
    named = [key.name for key in KEYS if key.name.partition(".")[2] == name]
    return named[0] if len(named) == 1 else name


def _suggestion(name: str) -> str:
    close = difflib.get_close_matches(name, BY_NAME, 1)
    return f"; did you mean {close[0]}?" if close else ""


def checked(key: Key, value: Any, where: str, shown: str) -> Any:
    """The value as it holds. Raises ConfigError, naming where it stands and what is wrong with it."""
    try:
        return key.check(value)
    except ValueError as error:
        raise ConfigError(where, shown, str(error)) from None
