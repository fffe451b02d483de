"""Names for what a call worked on: a path, a command's verb, a host, a first word. Never the arguments themselves."""

from __future__ import annotations

from functools import lru_cache
from itertools import islice
from typing import Any, Final
from urllib.parse import urlsplit

from burnd.classify.shell import verb

LONGEST_TARGET: Final = 1024
_LONGEST_AUTHORITY: Final = 2048
_SHORT_COMMAND: Final = 120
_PATCHED_FILE: Final = tuple(f"*** {what}: " for what in ("Add File", "Update File", "Delete File", "Move to"))
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
    """The host of a URL; None if the URL is too long, since `urlsplit` takes quadratic time for some."""
    if not isinstance(url, str):
        return None
    head = url[:_LONGEST_AUTHORITY]
    head = head if "://" in head else f"//{head}"
    if len(url) > _LONGEST_AUTHORITY and not any(mark in head.partition("//")[2] for mark in "/?#"):
        return None  # the host may be cut off, and the rest be a password before it
    try:
        host = urlsplit(head).hostname
    except ValueError:
        return None
    return host[:LONGEST_TARGET] if host else None


def first_word(value: Any) -> str | None:
    words = value.split(maxsplit=1) if isinstance(value, str) else []
    return words[0][:LONGEST_TARGET] if words else None


def patched_files(patch: Any) -> tuple[str, ...]:
    """The files that a patch in the form of `apply_patch` names."""
    if not isinstance(patch, str) or "*** " not in patch:
        return ()
    named = (line for line in patch.split("\n") if line.startswith(_PATCHED_FILE))
    paths = (line.partition(": ")[2].rstrip() for line in islice(named, _MOST_PATCHED))
    return tuple(dict.fromkeys(target for path in paths if (target := text_target(path))))
