"""Reads git's configuration in linear time: the remotes of a repository, and the folders that git trusts.

A repository may belong to another user and is not trusted. Its files are read only if they belong to this user or to
root, or if the user's git configuration names the folder under `safe.directory`, which is git's own rule.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Final, NamedTuple

_LARGEST_FILE: Final = 1 << 20
_LARGEST_POINTER: Final = 16 * 1024
_LONGEST_VALUE: Final = 4096
_HEADER: Final = re.compile(r'\[\s*([\w.-]+)(?:\s+"((?:[^"\\]|\\.)*+)")?\s*\]')
_ESCAPED: Final = re.compile(r"\\(.)")
_ESCAPES: Final = {"n": "\n", "t": "\t", "b": "\b"}


class Setting(NamedTuple):
    """One line of a configuration; the value of a name without `=` is empty."""

    section: str
    subsection: str
    name: str
    value: str


def remotes(config: Path) -> dict[str, str]:
    """The first address of each remote in a repository's configuration. Raises OSError or ValueError."""
    found: dict[str, str] = {}
    for setting in settings(read_text(config)):
        if (setting.section, setting.name) == ("remote", "url") and setting.value:
            found.setdefault(setting.subsection, setting.value)
    return found


def settings(text: str) -> Iterator[Setting]:
    """Every setting in the order of the file. Values longer than any address or path are left out."""
    section = subsection = ""
    lines = iter(text.split("\n"))
    for each in lines:
        line = each.strip()
        if line.startswith("["):
            header = _HEADER.match(line)
            if header is None:
                section = subsection = ""
                continue
            section, subsection = _names(header)
            line = line[header.end() :].lstrip()
        if not line or line[0] in "#;":
            continue
        name, _, value = line.partition("=")
        parts = [value]
        while _is_continued(parts[-1]):
            parts[-1] = parts[-1][:-1]
            parts += islice(lines, 1)
        raw = "".join(parts).strip()
        if len(raw) <= _LONGEST_VALUE:
            yield Setting(section, subsection, name.strip().lower(), _value(raw))


def _names(header: re.Match[str]) -> tuple[str, str]:
    """Section and subsection of `[remote "origin"]` or the older `[remote.origin]`."""
    if header[2] is not None:
        return header[1].lower(), _ESCAPED.sub(r"\1", header[2])
    section, _, subsection = header[1].lower().partition(".")
    return section, subsection


def _is_continued(part: str) -> bool:
    """Whether a line ends with a backslash that is not escaped itself."""
    return (len(part) - len(part.rstrip("\\"))) % 2 == 1


def _value(raw: str) -> str:
    """A value without quotation marks, escapes and trailing comment."""
    chars: list[str] = []
    quoted = False
    rest = iter(raw)
    for char in rest:
        if char == '"':
            quoted = not quoted
        elif char == "\\":
            escaped = next(rest, "")
            chars.append(_ESCAPES.get(escaped, escaped))
        elif char in "#;" and not quoted:
            break
        else:
            chars.append(char)
    return "".join(chars).strip()


def is_trusted(checkout: Path, *files: Path) -> bool:
    """Whether all of these files are this user's or root's, or `safe.directory` names the checkout."""
    if all(map(_is_ours, files)):
        return True
    folders = {str(checkout), os.path.realpath(checkout)}
    return any(_is_match(pattern, folder) for pattern in _safe_directories() for folder in folders)


def _is_ours(file: Path) -> bool:
    """Whether a file, and the link to it if there is one, belongs to this user or root. True for a missing file."""
    owners = (0, os.geteuid())
    try:
        return os.lstat(file).st_uid in owners and os.stat(file).st_uid in owners
    except FileNotFoundError:
        return True


def _is_match(pattern: str, folder: str) -> bool:
    if pattern == "*":
        return True
    whole = os.path.expanduser(pattern)
    return folder.startswith(whole[:-1]) if whole.endswith("/*") else folder == whole.rstrip("/")


def _safe_directories() -> list[str]:
    """The values of `safe.directory` in system and user configuration; an empty value clears those before it."""
    home = os.path.expanduser("~")
    xdg = os.environ.get("XDG_CONFIG_HOME") or f"{home}/.config"
    found: list[str] = []
    for path in ("/etc/gitconfig", f"{xdg}/git/config", f"{home}/.gitconfig"):
        if not os.path.isabs(path):
            continue
        try:
            text = read_text(Path(path))
        except (OSError, ValueError):
            continue
        found += [one.value for one in settings(text) if one[:3] == ("safe", "", "directory")]
    last_reset = max((place for place, pattern in enumerate(found) if not pattern), default=-1)
    return found[last_reset + 1 :]


def read_pointer(path: Path) -> str:
    """The path in a small file such as `.git` of a worktree. Raises OSError or ValueError."""
    return read_text(path, _LARGEST_POINTER).strip()


def read_text(path: Path, largest: int = _LARGEST_FILE) -> str:
    """A regular file's text. Raises OSError, or ValueError if it is a pipe, a device or too large."""
    _refuse(os.stat(path), largest)  # before it is opened: opening a pipe or a device can have effects
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        facts = os.fstat(fd)
        _refuse(facts, largest)
        return os.pread(fd, facts.st_size, 0).decode("utf-8", "replace")
    finally:
        os.close(fd)


def _refuse(facts: os.stat_result, largest: int) -> None:
    if not stat.S_ISREG(facts.st_mode) or facts.st_size > largest:
        raise ValueError("not a regular file, or too large")
