"""Splits a shell command line into simple commands."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice
from typing import Final, NamedTuple

from burnd.classify.shell_programs import word_set

SUBSTITUTED: Final = "$()"
"""Replaces a command substitution in a word."""

_NESTING_LIMIT: Final = 32

_COMMAND_LIMIT: Final = 1_000

_LEADS: Final = word_set("! { } if then elif else fi while until do done esac coproc")
"""Reserved words that a command may follow directly."""

_HEADERS: Final = word_set("for select case")
"""Reserved words whose own words are data up to the next operator."""

RESERVED: Final = _LEADS | _HEADERS | {"function", "[[", "]]", "in"}

_EASY: Final = re.compile(r"[\w@%+=:,./ -]*")
"""Words and blanks, as most commands are."""

_NEXT_PATTERN: Final = word_set(";; ;& ;;&")


_BLANK = re.compile(r"[ \t\r]*(?:\\\r?\n[ \t\r]*)*")
_PLAIN = re.compile(r"[^ \t\r\n\\'\"`$;&|()<>]+")
_OPERATOR = re.compile(r"\n|;;&|;;|;&|;|&&|&|\|\||\|&|\||\(|\)")
_REDIRECTION = re.compile(r"&>>|&>|<<<|<<-|<<|<>|<&|>>|>&|>\||<(?!\()|>(?!\()")
_QUOTING = re.compile(r"[\\'\"`$]")
_LINE = re.compile(r"[^\n]*")
_IN_DOUBLE_QUOTES = re.compile(r"[^\"\\`$]+")
_IN_ANSI_QUOTES = re.compile(r"[^'\\]*(?:\\.[^'\\]*)*", re.DOTALL)
_IN_BACKTICKS = re.compile(r"[^`\\]*(?:\\.[^`\\]*)*", re.DOTALL)
_IN_COMMANDS = re.compile(r"[^()\\'\"`$#<\n]+")
_IN_EXPRESSION = re.compile(r"[^(){}\\\"`$]+")


class Word(NamedTuple):
    """`bare`: nothing in it was quoted, escaped or expanded. Not `closed` if the text ends within a quote."""

    text: str
    bare: bool
    closed: bool = True


class _Heredoc(NamedTuple):
    delimiter: str
    strips_tabs: bool


def tokens(text: str) -> Iterator[Word | str]:
    """Without redirections, comments and here-document bodies."""
    return _Scanner(text).tokens()


class _Scanner:
    """Every method moves the position forward only, so a scan is linear in the text."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.pos = 0
        self.depth = 0
        self.heredocs: list[_Heredoc] = []

    def tokens(self) -> Iterator[Word | str]:
        while self._skip(_BLANK) < len(self.text):
            if self._at("#"):
                self._skip(_LINE)
            elif self._redirection():
                pass
            elif self._at("(("):
                self._group("(", ")", runs=False)
            elif (token := self._operator() or self._word()) is not None:
                yield token

    def _at(self, prefix: str) -> bool:
        return self.text.startswith(prefix, self.pos)

    def _skip(self, pattern: re.Pattern[str]) -> int:
        match = pattern.match(self.text, self.pos)
        if match:
            self.pos = match.end()
        return self.pos

    def _take(self, pattern: re.Pattern[str]) -> str:
        start = self.pos
        return self.text[start : self._skip(pattern)]

    def _operator(self) -> str | None:
        operator = self._take(_OPERATOR)
        if operator == "\n":
            heredocs, self.heredocs = self.heredocs, []
            for heredoc in heredocs:
                while self.pos < len(self.text):
                    line = self._take(_LINE)
                    self.pos += 1
                    if (line.lstrip("\t") if heredoc.strips_tabs else line).rstrip("\r") == heredoc.delimiter:
                        break
        return operator or None

    def _redirection(self) -> bool:
        """A redirection's target is never a command."""
        operator = self._take(_REDIRECTION)
        if not operator:
            return False
        self._skip(_BLANK)
        target = self._word()
        if operator in ("<<", "<<-") and target:
            self.heredocs.append(_Heredoc(target.text, operator == "<<-"))
        return True

    def _word(self) -> Word | None:
        start = self.pos
        pieces: list[str] = []
        while self.pos < len(self.text):
            piece = self._take(_PLAIN) or self._piece(pieces)
            if piece is None:
                break
            pieces.append(piece)
        raw = self.text[start : self.pos]
        if not raw or (raw.isdigit() and self.text[self.pos : self.pos + 1] in ("<", ">")):
            return None
        return Word("".join(pieces), _QUOTING.search(raw) is None, self.pos <= len(self.text))

    def _piece(self, before: list[str]) -> str | None:
        """None at the end of the word."""
        char = self.text[self.pos]
        if char == "\\":
            return self._escaped()
        if char == "'":
            return self._single_quoted()
        if char == '"':
            return self._double_quoted()
        if char == "`":
            return self._backticks()
        if char == "$":
            return self._dollar(quoted=False)
        if self._at("<(") or self._at(">("):
            self.pos += 1
            return self._group("(", ")", runs=True)
        if char == "(" and before and before[-1].endswith(("=", "?", "*", "+", "@", "!")):
            return self._group("(", ")", runs=True)
        return None

    def _escaped(self) -> str:
        escaped = self.text[self.pos + 1 : self.pos + 2]
        self.pos += 2
        return "" if escaped == "\n" else escaped

    def _single_quoted(self) -> str:
        start = self.pos + 1
        end = self.text.find("'", start)
        end = len(self.text) if end < 0 else end
        self.pos = end + 1
        return self.text[start:end]

    def _double_quoted(self) -> str:
        self.pos += 1
        pieces: list[str] = []
        while self.pos < len(self.text) and not self._at('"'):
            if plain := self._take(_IN_DOUBLE_QUOTES):
                pieces.append(plain)
            elif self._at("`"):
                pieces.append(self._backticks())
            elif self._at("$"):
                pieces.append(self._dollar(quoted=True))
            else:
                backslash = "" if self.text[self.pos + 1 : self.pos + 2] in tuple('"\\$`\n') else "\\"
                pieces.append(backslash + self._escaped())
        self.pos += 1
        return "".join(pieces)

    def _backticks(self) -> str:
        self.pos += 1
        self._skip(_IN_BACKTICKS)
        self.pos += 1
        return SUBSTITUTED

    def _dollar(self, *, quoted: bool) -> str:
        self.pos += 1
        if self._at("("):
            return self._group("(", ")", runs=not self._at("(("))
        if self._at("{"):
            return self._group("{", "}", runs=False)
        if not quoted and self._at("'"):
            self.pos += 1
            inside = self._take(_IN_ANSI_QUOTES)
            self.pos += 1
            return inside
        return "" if not quoted and self._at('"') else "$"

    def _group(self, opener: str, closer: str, *, runs: bool) -> str:
        """`runs`: the group contains commands, so comments and here-documents count."""
        if self.depth == _NESTING_LIMIT:
            self.pos += 1
            return SUBSTITUTED
        outer, self.heredocs = self.heredocs, []
        self.depth += 1
        plain = _IN_COMMANDS if runs else _IN_EXPRESSION
        level = 0
        while self.pos < len(self.text):
            level += self._at(opener) - self._at(closer)
            if level == 0:
                break
            self._pass_in_group(plain, runs=runs)
        self.pos += 1
        self.depth -= 1
        self.heredocs = outer
        return "${}" if opener == "{" else SUBSTITUTED

    def _pass_in_group(self, plain: re.Pattern[str], *, runs: bool) -> None:
        char = self.text[self.pos]
        if char == "\\":
            self.pos += 2
        elif char == '"':
            self._double_quoted()
        elif char == "`":
            self._backticks()
        elif char == "$":
            self._dollar(quoted=False)
        elif runs and char == "'":
            self._single_quoted()
        elif runs and char == "\n":
            self._operator()
        elif runs and char == "#" and self.text[self.pos - 1] in " \t\n;(":
            self._skip(_LINE)
        elif not (runs and char == "<" and self._redirection()) and not self._take(plain):
            self.pos += 1


def simple_commands(text: str) -> Iterator[list[str]]:
    if _EASY.fullmatch(text) and not RESERVED.intersection(words := text.split()):
        return iter([words] if words else ())
    return islice(_split(text), _COMMAND_LIMIT)


def _split(text: str) -> Iterator[list[str]]:
    part = _CommandBuilder()
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


class _CommandBuilder:
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
        # no shell would run a program whose name ends within a quote
        self.words.append(word.text if word.closed or not leads else SUBSTITUTED)
        if word.bare and word.text == "]]":
            self.in_test = False

    def _is_syntax(self, text: str) -> bool:
        """Updates the state."""
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
        """`&&` within `[[ ]]` does not end a part."""
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
        """Returns the words, none if they were data, and resets the state."""
        words = [] if self.is_data or self.in_test else self.words
        self.words = []
        self.is_data = self.in_pattern
        self.names_function = False
        return words
