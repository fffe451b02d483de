"""Loads the settings: from the environment, else config.toml, else the defaults. Writes the template."""

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
from burnd.settings.keys import BY_NAME, FOREVER, GUARD_LIMITS, KEYS, PLANS, Address, Key, loopback_address


@dataclass(frozen=True)
class Settings:
    values: Mapping[str, Any]
    from_env: frozenset[str] = frozenset()

    @property
    def content_mode(self) -> ContentMode:
        return cast("ContentMode", self.values["content.store"])

    @property
    def retention_ms(self) -> int | None:
        """None for ever."""
        days = self.values["content.retention_days"]
        return None if days == FOREVER else int(days * DAY_MS)

    def roots_of(self, product: Product) -> list[str]:
        return cast("list[str]", self.values[product.roots_key])

    @property
    def metrics_address(self) -> Address | None:
        """None for nowhere."""
        text = self.values["metrics.listen"]
        return loopback_address(text) if text else None

    @property
    def budgets(self) -> dict[str, Decimal]:
        """By period: daily, weekly, monthly."""
        amounts = {period: self.values[f"budget.{period}"] for period in ("daily", "weekly", "monthly")}
        return {period: Decimal(str(amount)) for period, amount in amounts.items() if amount}

    @property
    def plan_dollars(self) -> dict[str, float]:
        """By window."""
        amounts = {"5h": self.values["limits.five_hours_usd"], "7d": self.values["limits.week_usd"]}
        return {window: float(amount) for window, amount in amounts.items() if amount}

    @property
    def display(self) -> dict[str, Any]:
        """Fields of every report."""
        fields: dict[str, Any] = {}
        code, rate = self.values["display.currency"], self.values["display.rate"]
        if code != "USD" and rate:
            fields["currency"] = {"code": code, "rate": rate}
        if names := [name.strip() for name in self.values["display.plan"].split(",") if name.strip()]:
            keys = ("name", "source", "title", "monthlyUsd")
            fields["plans"] = [dict(zip(keys, (name, *PLANS[name]), strict=True)) for name in names]
        return fields

    @property
    def budget_command(self) -> str | list[str]:
        """Empty for none."""
        return cast("str | list[str]", self.values["budget.command"])

    @property
    def guard_limits(self) -> dict[str, float]:
        return {name: self.values[f"guard.{name}"] for name in GUARD_LIMITS if self.values[f"guard.{name}"]}

    @property
    def reserve(self) -> int | None:
        """Bytes; None for the default."""
        reserve = self.values["disk.reserve"]
        return None if reserve == "auto" else cast("int", reserve)


def load(home: Home, env: Mapping[str, str] = os.environ) -> Settings:
    """Raises ConfigError."""
    file_values: dict[str, Any] = {}
    if os.path.lexists(path := home.config):  # a dangling link is an error: its target may forbid content
        tables = flat(parsed(text_of(path), path), path)
        file_values = {name: checked(find_key(name, path), value, str(path), name) for name, value in tables.items()}
    elif home.older_config.exists():
        file_values = _from_json(home.older_config)
    values = {key.name: file_values.get(key.name, key.default) for key in KEYS}
    from_env = set()
    for key in KEYS:
        if key.env and (text := env.get(key.env)):
            values[key.name] = checked(key, text, "environment", key.env)
            from_env.add(key.name)
    return Settings(values, frozenset(from_env))


def reload(running: Settings, home: Home, env: Mapping[str, str]) -> Settings:
    """Keeps the values of settings that need a restart. Raises ConfigError."""
    new = load(home, env)
    values = {key.name: (running if key.restart else new).values[key.name] for key in KEYS}
    return Settings(values, running.from_env)


def described(home: Home, settings: Settings) -> dict[str, Any]:
    return {
        "path": str(home.config),
        "settings": [
            {
                "key": key.name,
                "value": settings.values[key.name],
                "default": key.default,
                "env": key.env or None,
                "fromEnv": key.name in settings.from_env,
                "restart": key.restart,
                "says": key.about,
            }
            for key in KEYS
        ],
    }


def template() -> str:
    parts = ["# Settings of burnd, with their defaults. Variables of the environment override this file.\n"]
    section = ""
    for key in KEYS:
        table, name = key.name.split(".")
        if table != section:
            parts.append(f"\n[{table}]\n")
            section = table
        parts += [f"# {line}\n" for line in key.about.splitlines()]
        parts += [f"# Overridden by the variable {key.env}.\n"] if key.env else []
        parts += ["# A change needs a restart: burnctl restart\n"] if key.restart else []
        parts.append(tomli_w.dumps({name: key.default}))
    return "".join(parts)


def init(home: Home) -> Path:
    """Writes the template, with the values of an older config.json. Raises ConfigError."""
    if home.config.exists():
        raise ConfigError(str(home.config), "", "already exists; edit it, or move it away first")
    older = _from_json(home.older_config) if home.older_config.exists() else {}
    text = template()
    for name, value in older.items():
        key = name.split(".")[1]
        text = text.replace(tomli_w.dumps({key: BY_NAME[name].default}), tomli_w.dumps({key: value}), 1)
    files.make_folder(home.root)
    files.replace_file(home.config, text.encode())
    return home.config


def parsed(text: str, path: Path) -> dict[str, Any]:
    """Raises ConfigError."""
    try:
        return tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise ConfigError(str(path), "", f"is not TOML: {error}") from error


def _from_json(path: Path) -> dict[str, Any]:
    """The values of the older file, {"content": {"store": ..., "retentionDays": ...}}."""
    try:
        tables = json.loads(text_of(path))
    except (ValueError, RecursionError) as error:
        raise ConfigError(str(path), "", f"is not JSON: {error}") from error
    if not isinstance(tables, dict):
        raise ConfigError(str(path), "", "must be an object")
    names = {"content.store": "content.store", "content.retentionDays": "content.retention_days"}
    values = {}
    for name, value in flat(tables, path).items():
        if name not in names:
            raise ConfigError(str(path), name, "is not a setting of config.json; use config.toml")
        values[names[name]] = checked(BY_NAME[names[name]], value, str(path), name)
    return values


def text_of(path: Path) -> str:
    """Raises ConfigError."""
    try:
        return files.read_plain(path).decode("utf-8")
    except OSError as error:
        what = "is a dangling link" if path.is_symlink() and not path.exists() else error.strerror
        raise ConfigError(str(path), "", f"cannot be read: {what}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(str(path), "", f"cannot be read: {error}") from error


def flat(tables: Mapping[str, Any], path: Path) -> dict[str, Any]:
    """Dotted keys. Raises ConfigError."""
    values = {}
    for table, keys in tables.items():
        if not isinstance(keys, dict):
            raise ConfigError(str(path), table, "is not a setting" + _suggestion(table))
        values.update({f"{table}.{name}": value for name, value in keys.items()})
    return values


def find_key(name: str, path: Path) -> Key:
    """Raises ConfigError, with a suggestion."""
    if name not in BY_NAME:
        raise ConfigError(str(path), name, "is not a setting" + _suggestion(name))
    return BY_NAME[name]


def full_name(name: str) -> str:
    """`plan` is `display.plan`, if no other table has such a key."""
    names = [key.name for key in KEYS if key.name.partition(".")[2] == name]
    return names[0] if len(names) == 1 else name


def _suggestion(name: str) -> str:
    close = difflib.get_close_matches(name, BY_NAME, 1)
    return f"; did you mean {close[0]}?" if close else ""


def checked(key: Key, value: Any, where: str, shown: str) -> Any:
    """Raises ConfigError with the file, the key and the reason."""
    try:
        return key.check(value)
    except ValueError as error:
        raise ConfigError(where, shown, str(error)) from None
