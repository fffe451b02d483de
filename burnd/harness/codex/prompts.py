"""Which of the texts that Codex gives its model a person wrote: most `user` messages are the harness's own."""

from __future__ import annotations

import re
from typing import Final

from burnd.harness.codex.lines import Item, texts

_HEADING: Final = "# AGENTS.md instructions"
_TAG_NAME: Final = re.compile(r"</?([a-zA-Z][\w ]*)")
_PLAIN_TAGS: Final = frozenset({"skill", "image", "INSTRUCTIONS"})
_CWD_LINE: Final = "Current working directory: "


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
    tag = _TAG_NAME.match(body)
    end = body.find(">") + 1
    if tag is None or not end:
        return False
    name = tag[1].split()[0]
    is_theirs = "_" in name or " instructions" in body[:end] or name in _PLAIN_TAGS
    return is_theirs and (body.endswith((f"</{tag[1]}>", f"</{name}>")) or end == len(body))


def folder_in(text: str) -> str | None:
    """The folder that an `<environment_context>` names, in an element or a line of its own."""
    if not text.lstrip().startswith("<environment_context>"):
        return None
    for line in text.split("\n"):
        if line.startswith(_CWD_LINE):
            return line.removeprefix(_CWD_LINE) or None
        folder, closed, _ = line.partition("<cwd>")[2].partition("</cwd>")
        if closed:
            return folder or None
    return None
