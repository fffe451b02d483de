"""Which of the texts that Codex gives its model a person wrote: most `user` messages are the harness's own."""

from __future__ import annotations

import re
from typing import Final

from burnd.readers.codex_lines import Item, texts

_HEADING: Final = "# AGENTS.md instructions"
_TAG: Final = re.compile(r"</?([a-zA-Z]\w*(?:[_ ][\w ]*)?)[^>]*>")
_PLAIN_TAGS: Final = frozenset({"skill", "image", "INSTRUCTIONS"})
_FOLDER: Final = re.compile(r"<cwd>(.*?)</cwd>|^Current working directory: (.*)$", re.MULTILINE)


def human_texts(item: Item) -> list[str]:
    """What a person wrote of a `user` message: the pieces that are of that kind, or that read like it."""
    said = texts(item.content)
    kinds = item.passed.content_item_kinds if item.passed is not None else None
    if kinds is not None and len(kinds) == len(said):
        return [text for text, kind in zip(said, kinds, strict=True) if kind.startswith("user.") or kind == "user"]
    return [text for text in said if not is_harness_text(text)]


def is_harness_text(text: str) -> bool:
    """Whether a text was put there by Codex: a whole element like `<environment_context>`, or a known heading."""
    body = text.strip()
    if not body or body.startswith(_HEADING):
        return True
    tag = _TAG.match(body)
    if tag is None:
        return False
    name = tag[1].split()[0]
    is_theirs = "_" in name or " instructions" in tag[0] or name in _PLAIN_TAGS
    return is_theirs and (body.endswith((f"</{tag[1]}>", f"</{name}>")) or tag.end() == len(body))


def folder_in(text: str) -> str | None:
    """The folder that an `<environment_context>` names."""
    found = _FOLDER.search(text) if text.lstrip().startswith("<environment_context>") else None
    return (found[1] or found[2] or None) if found else None
