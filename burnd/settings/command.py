"""`python -m burnd.settings.command`: the actions of `burnctl config`."""

from __future__ import annotations

import json
import os
import re
import sys
import tomllib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import tomli_w

from burnd import protocol
from burnd.errors import BurndError, ConfigError
from burnd.ledger import files
from burnd.paths import Home, find_home
from burnd.settings import config
from burnd.settings.keys import Key

_HEADER = re.compile(r"""\s*\[\s*["']?([\w-]+)["']?\s*\]""")
_ASSIGNMENT = re.compile(r"""\s*["']?([\w-]+)["']?\s*=""")


class Change(NamedTuple):
    key: Key
    before: Any
    value: Any


class Lines(NamedTuple):
    begin: int
    end: int


def set_value(home: Home, name: str, text: str) -> Change:
    """Sets a key to `text`: TOML, or a bare word for a string. Raises ConfigError and changes nothing.

    Edits one line of config.toml, which is made with every default if it is missing, and stays a link if it is one.
    """
    path, name = home.config, config.full_name(name)
    key = config.find_key(name, path)
    value = _checked(key, text, path)
    if not path.exists():
        config.init(home)
    before = config.text_of(path)
    values = config.flat(config.parsed(before, path), path)
    after = with_value(before, name, value)
    tables = _parsed(after)
    if tables is None or config.flat(tables, path) != values | {name: value}:
        raise ConfigError(str(path), "", "has a layout that cannot be changed safely; use: burnctl config edit")
    files.replace_file(Path(os.path.realpath(path)), after.encode())
    return Change(key, values.get(name, key.default), value)


def with_value(text: str, name: str, value: Any) -> str:
    table, key = name.split(".")
    lines = text.splitlines(keepends=True)
    new = tomli_w.dumps({key: value}).rstrip("\n")
    span = _find(lines, table, key)
    if span is None:
        lines = [*_whole(lines), f"\n[{table}]\n" if lines else f"[{table}]\n", f"{new}\n"]
    elif span.begin == span.end:
        lines = [*_whole(lines[: span.begin]), f"{new}\n", *lines[span.end :]]
    else:
        comment, line = "", lines[span.begin].rstrip()
        for at in (at for at, char in enumerate(line) if char == "#" and span.end - span.begin == 1):
            if _parsed(line[:at]) == _parsed(line):  # keeps a comment after the value
                comment = line[len(line[:at].rstrip()) :]
                break
        lines[span.begin : span.end] = [f"{new}{comment}\n"]
    return "".join(lines)


def _find(lines: list[str], table: str, key: str) -> Lines | None:
    """An empty range in its table if the key is not there; None without that table."""
    inside, free = False, None
    number = 0
    while number < len(lines):
        line, end = lines[number], number + 1
        if header := _HEADER.match(line):
            inside = header[1] == table
        elif assignment := _ASSIGNMENT.match(line):
            ends = range(number + 1, len(lines) + 1)  # a value may have several lines
            end = next((one for one in ends if _parsed("".join(lines[number:one])) is not None), end)
            if inside and assignment[1] == key:
                return Lines(number, end)
        if inside and line.strip() and not line.lstrip().startswith("#"):
            free = Lines(end, end)
        number = end
    return free


def _whole(lines: list[str]) -> list[str]:
    return [*lines[:-1], lines[-1].rstrip("\r\n") + "\n"] if lines else []


def _checked(key: Key, text: str, path: Path) -> Any:
    """A bare word, or a number if the key needs one, is a string."""
    tables = _parsed(f"value = {text}")
    if tables is None or set(tables) != {"value"}:
        return config.checked(key, text, str(path), key.name)
    try:
        return config.checked(key, tables["value"], str(path), key.name)
    except ConfigError as error:
        try:
            return config.checked(key, text, str(path), key.name)
        except ConfigError:
            raise error from None


def _parsed(text: str) -> dict[str, Any] | None:
    try:
        return tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError):
        return None


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints the result as a JSON object."""
    action, *words = sys.argv[1:] if arguments is None else arguments
    try:
        result = _ACTIONS[action](find_home(), *words)
    except (BurndError, ValueError, OSError) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    sys.stdout.write(json.dumps({"version": protocol.VERSION, **result}) + "\n")
    return 0


def _set(home: Home, name: str, text: str) -> dict[str, Any]:
    change = set_value(home, name, text)
    values, note = config.load(home).values, ""
    code, rate = values["display.currency"], values["display.rate"]
    if change.key.name == "display.currency" and code != "USD" and not rate:
        note = f"set its rate too, the price of a dollar in {code}: burnctl config set rate 0.92"
    elif change.key.name == "display.currency" and code != "USD" and change.before != code:
        note = f"a dollar now counts as {rate:g} {code}; change that with: burnctl config set rate NUMBER"
    elif change.key.name == "display.rate" and rate and code == "USD":
        note = "set the currency too: burnctl config set currency EUR"
    return {
        "path": str(home.config),
        "key": change.key.name,
        "before": change.before,
        "value": change.value,
        "overruledBy": change.key.env if os.environ.get(change.key.env) else None,
        "restart": change.key.restart,
        "note": note,
    }


_ACTIONS: dict[str, Callable[..., dict[str, Any]]] = {
    "init": lambda home: {"path": str(config.init(home))},
    "show": lambda home: config.described(home, config.load(home)),
    "set": _set,
    "path": lambda home: {"path": str(home.config)},
}

if __name__ == "__main__":
    sys.exit(main())
