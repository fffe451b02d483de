"""Names for what a call worked on: a path, a command's verb, a host, a first word. Never the arguments themselves."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any, Final
from urllib.parse import urlsplit

from burnd.classify.shell import verb

LONGEST_TARGET: Final = 1024
_SHORT_COMMAND: Final = 120
_PATCHED_FILE: Final = re.compile(r"^\*\*\* (?:(?:Add|Update|Delete) File|Move to): (.+?)\s*$", re.MULTILINE)
_MOST_PATCHED: Final = 100

# Agents repeat their short commands all day.
_verb_of_short: Final = lru_cache(maxsize=1024)(verb)


def text_target(value: Any) -> str | None:
    """A path or a name as it was given."""
    return value[:LONGEST_TARGET] if isinstance(value, str) and value else None


def verb_of(command: Any) -> str | None:
    if not isinstance(command, str):
        return None
    return _verb_of_short(command) if len(command) <= _SHORT_COMMAND else verb(command)


def host_of(url: Any) -> str | None:
    if not isinstance(url, str):
        return None
    try:
        host = urlsplit(url if "://" in url else f"//{url}").hostname
    except ValueError:
        return None
    return host[:LONGEST_TARGET] if host else None


def first_word(value: Any) -> str | None:
    words = value.split(maxsplit=1) if isinstance(value, str) else []
    return words[0][:LONGEST_TARGET] if words else None


def patched_files(patch: Any) -> tuple[str, ...]:
    """The files that a patch in the form of `apply_patch` names."""
    found = _PATCHED_FILE.findall(patch) if isinstance(patch, str) else []
    return tuple(dict.fromkeys(target for path in found[:_MOST_PATCHED] if (target := text_target(path))))
