"""Finds the word classes of a prompt (debugging, review, ...)."""

from __future__ import annotations

import re
from typing import Final

PROMPT_LIMIT: Final = 64 * 1024
"""Characters; what follows in a longer prompt is pasted."""

# A space matches any white space. Endings are spelled out: `add\w*` would match "address".
_WORDS: Final[dict[str, tuple[str, ...]]] = {
    "debugging": (
        "bugs?",
        "error(?:s|ed|ing)?",
        "crash(?:es|ed|ing)?",
        "tracebacks?",
        "stack traces?",
        "stacktraces?",
        "fail(?:s|ed|ing|ures?)?",
        "broken",
        "fix(?:es|ed|ing)? the",
        "not working",
        "throws",
    ),
    "review": (
        "review(?:s|ed|ing)?",
        "audit(?:s|ed|ing)?",
        "inspect(?:s|ed|ing)?",
        "look(?:s|ed|ing)? over",
    ),
    "refactoring": (
        "refactor(?:s|ed|ing|ings)?",
        "cleanups?",
        "clean(?:s|ed|ing)? up",
        "renam(?:e|es|ed|ing)",
        "extract(?:s|ed|ing)?",
        "restructur(?:e|es|ed|ing)",
        "reorgani[sz](?:e|es|ed|ing)",
        "mov(?:e|es|ed|ing) this",
    ),
    "feature": (
        "add(?:s|ed|ing)?",
        "creat(?:e|es|ed|ing)",
        "implement(?:s|ed|ing)?",
        "new",
        "introduc(?:e|es|ed|ing)",
        "(?:build(?:s|ing)?|built) the",
        "supports? for",
    ),
    "brainstorming": (
        "brainstorm(?:s|ed|ing)?",
        "what if",
        "(?:think(?:s|ing)?|thought) through",
        "should we",
        "design(?:s|ed|ing)?",
        "approach(?:es|ed|ing)?",
        "explor(?:e|es|ed|ing) ideas",
    ),
    "planning": (
        "plan(?:s|ned|ning)?",
        "outlin(?:e|es|ed|ing)",
        "roadmaps?",
        "strateg(?:y|ies)",
    ),
}

CLASSES: Final = tuple(_WORDS)


_OPENING: Final = re.compile(
    r"<(system-reminder|task-notification|new-diagnostics|ide_[a-z_]{1,40}|[a-z-]{1,40}-hook|local-command-[a-z]{1,20}"
    r"|command-(?:name|message|args|contents)|bash-(?:input|stdout|stderr))(?:\s[^<>]{0,200})?>"
)
_IMAGE: Final = re.compile(r"\[Image(?:: | #)[^\]\n]{0,1000}\]")


# One pattern, so the text is scanned once. Matched against lower case: re.IGNORECASE takes three times as long.
_PATTERN: Final = re.compile(
    r"\b(?:"
    + "|".join(f"(?P<{name}>{'|'.join(words)})" for name, words in _WORDS.items()).replace(" ", r"\s+")
    + r")\b"
)


def prompt_words(text: str) -> tuple[str, ...]:
    """In the order of `CLASSES`."""
    head = person_text(text)[:PROMPT_LIMIT].lower()
    classes: set[str | None] = set()
    match = _PATTERN.search(head)
    while match is not None and len(classes) < len(CLASSES):
        classes.add(match.lastgroup)
        match = _PATTERN.search(head, match.start() + 1)  # a phrase may contain a word of another class
    return tuple(name for name in CLASSES if name in classes)


def person_text(text: str) -> str:
    """Leaves out the elements and image notes that a harness added."""
    parts, end = [], 0
    unclosed: set[str] = set()  # a text may open an element a million times
    for opening in _OPENING.finditer(text):
        name = opening[1]
        if opening.start() < end or name in unclosed:
            continue
        closing = f"</{name}>"
        at = text.find(closing, opening.end())
        if at < 0:
            unclosed.add(name)
            continue
        parts.append(text[end : opening.start()])
        end = at + len(closing)
    return _IMAGE.sub(" ", "\n".join([*parts, text[end:]]))
