"""Owns the prompt words: which classes of words a human prompt holds, never the words themselves."""

from __future__ import annotations

import re
from typing import Final

from burnd.classify.said import said_by_person

PROMPT_LIMIT: Final = 64 * 1024
"""A longer prompt is pasted material beyond this point; what a person asks for stands before it."""

# Each entry is a whole word or a phrase. White space in a phrase stands for any white space in the prompt.
# Endings are spelled out, because a general ending (`add\w*`) would take "address" for "add".
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


def _alternatives(entries: tuple[str, ...]) -> str:
    return "|".join(entry.replace(" ", r"\s+") for entry in entries)


# One pattern for all classes: the text is gone through once, not once for each. No word begins two classes' entries.
# It is for small letters: a pattern that minds no case takes three times as long.
_PATTERN: Final = re.compile(
    r"\b(?:" + "|".join(f"(?P<{name}>{_alternatives(entries)})" for name, entries in _WORDS.items()) + r")\b"
)


def prompt_words(text: str) -> tuple[str, ...]:
    """The classes whose words a person said in the prompt, always in the order of `CLASSES`."""
    head = said_by_person(text)[:PROMPT_LIMIT].lower()
    found: set[str | None] = set()
    match = _PATTERN.search(head)
    while match is not None and len(found) < len(CLASSES):
        found.add(match.lastgroup)
        match = _PATTERN.search(head, match.start() + 1)  # a phrase may hold another class's word
    return tuple(name for name in CLASSES if name in found)
