"""Changing one setting in config.toml: its line alone, with every comment and every other line left as it was."""

from __future__ import annotations

import os
import re
import tomllib
from pathlib import Path
from typing import Any, NamedTuple

import tomli_w

from burnd.errors import ConfigError
from burnd.ledger import files
from burnd.paths import Home
from burnd.settings import config
from burnd.settings.keys import Key

_HEADER = re.compile(r"""\s*\[\s*["']?([\w-]+)["']?\s*\]""")
_ASSIGNMENT = re.compile(r"""\s*["']?([\w-]+)["']?\s*=""")


class Change(NamedTuple):
    """What was set: the key, what held in the file before, and what holds there now."""

    key: Key
    before: Any
    value: Any


class Lines(NamedTuple):
    """Lines from `begin` to before `end`."""

    begin: int
    end: int


def set_value(home: Home, name: str, text: str) -> Change:
    """Sets one key to what `text` says: TOML, or a bare word for a string. Raises ConfigError and changes nothing.

    Where there is no config.toml yet, one that shows every default is made first.
    """
    path, name = home.config, config.full_name(name)
    key = config.find_key(name, path)
    value = _checked(key, text, path)
    if not path.exists():
        config.init(home)
    before = config.text_of(path)
    said = config.flat(config.parsed(before, path), path)
    changed = with_value(before, name, value)
    _check(path, changed, said | {name: value})
    # A config.toml that is a link into somebody's dotfiles stays one.
    files.replace_file(Path(os.path.realpath(path)), changed.encode())
    return Change(key, said.get(name, key.default), value)


def with_value(text: str, name: str, value: Any) -> str:
    """The text of a config.toml with one key changed or added."""
    table, key = name.split(".")
    lines = text.splitlines(keepends=True)
    new = tomli_w.dumps({key: value}).rstrip("\n")
    place = _find(lines, table, key)
    if place is None:
        lines = [*_whole(lines), f"\n[{table}]\n" if lines else f"[{table}]\n", f"{new}\n"]
    elif place.begin == place.end:
        lines = [*_whole(lines[: place.begin]), f"{new}\n", *lines[place.end :]]
    else:
        comment = _comment_after(lines[place.begin]) if place.end - place.begin == 1 else ""
        lines[place.begin : place.end] = [f"{new}{comment}\n"]
    return "".join(lines)


def _find(lines: list[str], table: str, key: str) -> Lines | None:
    """The lines that say the key; an empty place in its table where it is not said; None without that table."""
    inside, room = False, None
    number = 0
    while number < len(lines):
        line, end = lines[number], number + 1
        if header := _HEADER.match(line):
            inside = header[1] == table
        elif assignment := _ASSIGNMENT.match(line):
            end = _end_of_value(lines, number)
            if inside and assignment[1] == key:
                return Lines(number, end)
        if inside and line.strip() and not line.lstrip().startswith("#"):
            room = Lines(end, end)
        number = end
    return room


def _end_of_value(lines: list[str], begin: int) -> int:
    """Where a value that may go over several lines ends."""
    for end in range(begin + 1, len(lines) + 1):
        if _parsed("".join(lines[begin:end])) is not None:
            return end
    return begin + 1


def _comment_after(line: str) -> str:
    """What stands behind the value, with the space before it: a comment, or nothing."""
    line = line.rstrip()
    said = _parsed(line)
    for at in (place for place, char in enumerate(line) if char == "#"):
        if _parsed(line[:at]) == said:
            return line[len(line[:at].rstrip()) :]
    return ""


def _whole(lines: list[str]) -> list[str]:
    """The lines with the last one ended."""
    return [*lines[:-1], lines[-1].rstrip("\r\n") + "\n"] if lines else []


def _checked(key: Key, text: str, path: Path) -> Any:
    """`30` is a number, `["a"]` a list, `"x"` and a bare `x` a string; a number where a text is wanted is a text."""
    said = _parsed(f"value = {text}")
    if said is None or set(said) != {"value"}:
        return config.checked(key, text, str(path), key.name)
    try:
        return config.checked(key, said["value"], str(path), key.name)
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


def _check(path: Path, text: str, expected: dict[str, Any]) -> None:
    """The new text must say what it should and nothing else, however the file was written."""
    said = _parsed(text)
    if said is None or config.flat(said, path) != expected:
        raise ConfigError(str(path), "", "is written in a way that cannot be changed safely; edit it by hand")
