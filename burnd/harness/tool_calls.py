"""Describes tool calls without their arguments, for every harness: targets, hashes and sizes.

Equal hashes mean equal calls, results or edits; an edit and its revert have their two hashes swapped.
"""

from __future__ import annotations

import binascii
import hashlib
import re
from functools import lru_cache
from itertools import islice
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec

from burnd.classify.shell import runs, verb
from burnd.records.foreign_json import Rejected

HASH_DIGITS: Final = 16
LONGEST_TARGET: Final = 1024
_LONGEST_AUTHORITY: Final = 2048
_SHORT_COMMAND: Final = 120
_PATCHED_FILE: Final = tuple(f"*** {what}: " for what in ("Add File", "Update File", "Delete File", "Move to"))
_MOST_PATCHED: Final = 100

_CREATES_PULL_REQUEST: Final = {(*tool, verb) for tool in (("gh", "pr"), ("glab", "mr")) for verb in ("create", "new")}
_SUBSTITUTED_PULL_REQUEST: Final = re.compile(r"(?:\$\(|`)\s*(?:gh\s+pr|glab\s+mr)\s+(?:create|new)\b")
_PULL_REQUEST: Final = re.compile(r"https://[\w.-]{1,100}(?:/[\w.-]{1,100}){2,8}/(?:pull|merge_requests)/\d{1,9}")
_PULL_REQUEST_TAIL: Final = 4096

_encode_sorted: Final = msgspec.json.Encoder(order="sorted").encode
# Agents repeat their short commands all day.
_verb_of_short: Final = lru_cache(maxsize=1024)(verb)

Change = tuple[str, str]  # the text before an edit and after it


def text_target(value: Any) -> str | None:
    return value[:LONGEST_TARGET] if isinstance(value, str) and value else None


def verb_of(command: Any) -> str | None:
    if not isinstance(command, str):
        return None
    return _verb_of_short(command) if len(command) <= _SHORT_COMMAND else verb(command)


def host_of(url: Any) -> str | None:
    """The host of a URL; None if it is too long, since `urlsplit` takes quadratic time for some."""
    if not isinstance(url, str):
        return None
    head = url[:_LONGEST_AUTHORITY]
    head = head if "://" in head else f"//{head}"
    if len(url) > _LONGEST_AUTHORITY and not any(mark in head.partition("//")[2] for mark in "/?#"):
        return None  # the host may be cut off, and the head end within a password
    try:
        host = urlsplit(head).hostname
    except ValueError:
        return None
    return host[:LONGEST_TARGET] if host else None


def first_word(value: Any) -> str | None:
    words = value.split(maxsplit=1) if isinstance(value, str) else []
    return words[0][:LONGEST_TARGET] if words else None


def patched_files(patch: Any) -> tuple[str, ...]:
    if not isinstance(patch, str) or "*** " not in patch:
        return ()
    headers = (line for line in patch.split("\n") if line.startswith(_PATCHED_FILE))
    paths = (line.partition(": ")[2].rstrip() for line in islice(headers, _MOST_PATCHED))
    return tuple(dict.fromkeys(target for path in paths if (target := text_target(path))))


def creates_pull_request(command: object) -> bool:
    if not isinstance(command, str) or ("gh" not in command and "glab" not in command):
        return False
    is_run = any(words[:3] in _CREATES_PULL_REQUEST for words in runs(command))
    return is_run or _SUBSTITUTED_PULL_REQUEST.search(command) is not None


def pull_request_in(text: str) -> str | None:
    """The last address of a pull or merge request in a text."""
    addresses = _PULL_REQUEST.findall(text[-_PULL_REQUEST_TAIL:])
    return addresses[-1] if addresses else None


def short_hash(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:HASH_DIGITS]


def args_hash(raw: msgspec.Raw, value: Any | Rejected) -> str:
    """The hash of a call's arguments in any key order; of their bytes if they cannot be decoded."""
    return short_hash(bytes(raw) if isinstance(value, Rejected) else _encode_sorted(value))


def edit_hash(target: str | None, arguments: dict[str, Any]) -> str | None:
    """The hash of an edit given as old and new text or a list of `edits`; None if it is no edit."""
    edits = arguments.get("edits")
    changes: list[Change] = []
    for edit in edits if isinstance(edits, list) else [arguments]:
        if not isinstance(edit, dict):
            return None
        old, new = edit.get("old_string", edit.get("oldString")), edit.get("new_string", edit.get("newString"))
        if not isinstance(old, str) or not isinstance(new, str):
            return None
        changes.append((old, new))
    return _change_hash(target, changes)


def patch_hash(target: str | None, patch: Any) -> str | None:
    if not isinstance(patch, str):
        return None
    lines = patch.splitlines()
    before = [" " + line[1:] if line.startswith("-") else line for line in lines if not line.startswith("+")]
    after = [" " + line[1:] if line.startswith("+") else line for line in lines if not line.startswith("-")]
    return _change_hash(target, [("\n".join(before), "\n".join(after))])


def _change_hash(target: str | None, changes: list[Change]) -> str | None:
    """The hashes of both sides, `before>after`; a revert, which undoes the last change first, has them swapped."""
    revert = [(new, old) for old, new in reversed(changes)]
    if target is None or changes == revert:
        return None
    ordered = min(changes, revert)
    sides = [_side_hash(target, ordered), _side_hash(target, [(new, old) for old, new in ordered])]
    return ">".join(sides if ordered is changes else reversed(sides))


def _side_hash(target: str, changes: list[Change]) -> str:
    """The hash of the left side; an empty text is identified by the right one."""
    return short_hash(msgspec.json.encode([target, [left or [right] for left, right in changes]]))


def size(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode())


def decoded_size(base64_text: str) -> int:
    length = len(base64_text)
    return length * 3 // 4 - base64_text.count("=", max(0, length - 2))


def inline_data(url: str) -> str | None:
    head, comma, data = url.partition(",") if url.startswith("data:") else ("", "", "")
    return data if comma and head.endswith(";base64") else None


def inline_bytes(url: str) -> bytes | None:
    """The bytes of a `data:` URL; None if it has none or they are damaged."""
    data = inline_data(url)
    try:
        return binascii.a2b_base64(data) if data else None
    except ValueError:
        return None


@lru_cache(maxsize=256)
def release(version: str | None) -> tuple[int, ...] | None:
    """A version as comparable numbers; None if it is not numeric."""
    if not version:
        return None
    numbers = version.split("-", 1)[0].split(".")
    return tuple(map(int, numbers)) if all(n.isdecimal() and len(n) < 10 for n in numbers) else None
