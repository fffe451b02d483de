"""What of a prompt a person said: harnesses put elements and notes of their own into the same text."""

from __future__ import annotations

import re
from typing import Final

_OPENING: Final = re.compile(
    r"<(system-reminder|task-notification|new-diagnostics|ide_[a-z_]{1,40}|[a-z-]{1,40}-hook|local-command-[a-z]{1,20}"
    r"|command-(?:name|message|args|contents)|bash-(?:input|stdout|stderr))(?:\s[^<>]{0,200})?>"
)
_IMAGE: Final = re.compile(r"\[Image(?:: | #)[^\]\n]{0,1000}\]")


def said_by_person(text: str) -> str:
    """The text without a harness's elements, each from its opening to its end, and notes of images."""
    if "<" in text:
        text = _without_elements(text)
    return _IMAGE.sub(" ", text)


def _without_elements(text: str) -> str:
    kept, end = [], 0
    unclosed: set[str] = set()  # looked for once: a text may open an element a million times
    for opening in _OPENING.finditer(text):
        name = opening[1]
        if opening.start() < end or name in unclosed:
            continue
        closing = f"</{name}>"
        found = text.find(closing, opening.end())
        if found < 0:
            unclosed.add(name)
            continue
        kept.append(text[end : opening.start()])
        end = found + len(closing)
    return "\n".join([*kept, text[end:]])
