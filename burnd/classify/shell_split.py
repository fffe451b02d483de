"""Splits a command line into the simple commands a shell would run, in the order they are written."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice
from typing import Final

from burnd.classify.families import word_set
from burnd.classify.shell_scan import SUBSTITUTED, Word, tokens

_COMMAND_LIMIT: Final = 1_000
"""No real command line has more parts; the limit keeps a hostile one cheap."""

_LEADS: Final = word_set("! { } if then elif else fi while until do done esac coproc")
"""Reserved words that a command may follow directly."""

_HEADERS: Final = word_set("for select case")
"""Reserved words whose own words are data up to the next operator."""

RESERVED: Final = _LEADS | _HEADERS | {"function", "[[", "]]", "in"}

_EASY: Final = re.compile(r"[\w@%+=:,./ -]*")
"""Words and blanks, as most commands are."""

_NEXT_PATTERN: Final = word_set(";; ;& ;;&")


def simple_commands(text: str) -> Iterator[list[str]]:
    """Each simple command as its list of words, program or assignments first."""
    if _EASY.fullmatch(text) and not RESERVED.intersection(words := text.split()):
        return iter([words] if words else ())
    return islice(_split(text), _COMMAND_LIMIT)


def _split(text: str) -> Iterator[list[str]]:
    part = _Part()
    for token in tokens(text):
        if isinstance(token, Word):
            part.add(token)
        elif part.is_cut_by(token):
            words = part.take()
            if words:
                yield words
    words = part.take()
    if words:
        yield words


class _Part:
    """The part of the line being read: one simple command so far, or a piece of syntax that runs nothing."""

    def __init__(self) -> None:
        self.words: list[str] = []
        self.is_data = False
        self.in_test = False
        self.in_pattern = False
        self.names_function = False

    def add(self, word: Word) -> None:
        leads = not self.words
        if leads and word.bare and self._is_syntax(word.text):
            return
        # No shell would run a program whose name ends within a quote.
        self.words.append(word.text if word.closed or not leads else SUBSTITUTED)
        if word.bare and word.text == "]]":
            self.in_test = False

    def _is_syntax(self, text: str) -> bool:
        """Take note of a word in command position that has a meaning to the shell itself."""
        if self.names_function:
            self.names_function = False
            return True
        if text == "esac":
            self.in_pattern = False
        if text == "function":
            self.names_function = True
        self.in_test = text == "[["
        self.is_data = self.is_data or text in _HEADERS
        self.in_pattern = self.in_pattern or text == "case"
        return text in _LEADS or text == "function"

    def is_cut_by(self, operator: str) -> bool:
        """Whether the operator ends this part; `&&` within `[[ ]]` does not."""
        if self.in_test:
            return False
        if self.in_pattern or (operator == "(" and self.words):
            self.is_data = True
        if operator == ")":
            self.in_pattern = False
        elif operator in _NEXT_PATTERN:
            self.in_pattern = True
        return True

    def take(self) -> list[str]:
        """The words of the finished command, none where they were data; the next part starts afresh."""
        words = [] if self.is_data or self.in_test else self.words
        self.words = []
        self.is_data = self.in_pattern
        self.names_function = False
        return words
