"""Makes texts that slow a parser down, and a probe that tells linear from quadratic time. A text for a regular
expression is derived from it: a match up to one of its repeats, many repetitions, then an ending that makes the
match fail."""

from __future__ import annotations

import random
import re
import time
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any, Final

codes: Any = import_module("re._constants")
parser: Any = import_module("re._parser")

FILLERS: Final = (
    *"a <@/\n\\\"'`([{,*1",
    *("<a", "<a_b>", "<a-b></a-b>", "<cwd>", "<cwd>x</cwd", "*** Add File: a ", "*** Update File: a\n"),
    *("\\\n", '\\"', "\\u", "$(", "${", "[,", '{"a":', "-1e", "a@b:", "a/", "://", "<<a\n", "a=(", "sudo ", "eval "),
    *("fix ", "aB", "a1", "e\u0301", "\u0301\u0323", "\u0f73", "\u00df", "\u5b57", "\U0001f600", "\u05d0\u05bc"),
    *("\u201ea", "\x1b]", "[Image #1", "<system-reminder>", "<ide_x>a</ide_x>", 'cmd: "', "a a a a a ", "/* ", "@a "),
)
SHORT: Final = 4_096
_STEP_S: Final = 0.5e-9  # quadratic work takes longer than that for every pair of characters
_QUICK_S: Final = 0.008  # what takes less is not measured well
_ATTEMPTS: Final = 3


def is_linear(work: Callable[[str], object], text: Callable[[int], str], *sizes: int) -> bool:
    """True if 4 times the text takes far less than 16 times the CPU time. Compares at the first size that is slow
    enough to measure. One size is enough for a regular expression: quadratic work on it is eight million steps. Some
    parsers change algorithm at a size, so without given sizes the comparison is repeated with 4 times as much."""
    for size in sizes or (SHORT // 2, 4 * SHORT):
        if _seconds(work, text(size)) >= max(_QUICK_S, _STEP_S * size**2):
            compared = (size,) if sizes else (size, 4 * size)
            return any(_grows_slowly(work, text(one), text(4 * one)) for one in compared)
    return True


def _grows_slowly(work: Callable[[str], object], short: str, long: str) -> bool:
    return any(_seconds(work, long) < 9 * _seconds(work, short) for _ in range(_ATTEMPTS))


def _seconds(work: Callable[[str], object], text: str) -> float:
    began = time.thread_time()
    work(text)
    return time.thread_time() - began


def repeated(filler: str, before: str = "", behind: str = "") -> Callable[[int], str]:
    return lambda size: before + filler * (size // len(filler) + 1) + behind


def texts_for(pattern: re.Pattern[Any]) -> Iterator[tuple[str, str]]:
    """Beginnings of a text, and what to repeat after them."""
    source: str | bytes = pattern.pattern
    text = source if isinstance(source, str) else source.decode("latin-1")
    tree = parser.parse(text, pattern.flags if text is source else pattern.flags & ~re.UNICODE)
    found: dict[tuple[str, str], None] = {}
    for seed in range(4):
        sampler = _Sampler(random.Random(seed))
        sampler.sample(tree, "")
        atoms = sorted(sampler.atoms)
        pairs = [("", sampler.random.choice(atoms) + sampler.random.choice(atoms)) for _ in range(8)] if atoms else []
        found.update(dict.fromkeys([*sampler.pumps, *(("", atom) for atom in atoms), *pairs]))
    return ((before, pump) for before, pump in found if pump)


class _Sampler:
    """Goes through a parsed expression and makes up a text that matches it."""

    def __init__(self, source: random.Random) -> None:
        self.random = source
        self.pumps: dict[tuple[str, str], None] = {}
        self.atoms: set[str] = {" ", "a", "\n"}
        self._groups: dict[int | None, str] = {}

    def sample(self, tree: Any, before: str) -> str:
        text = ""
        for code, value in tree:
            text += self._node(code, value, before + text)
            self.pumps["", text] = None
        return text

    def _node(self, code: Any, value: Any, before: str) -> str:
        if code in (codes.LITERAL, codes.NOT_LITERAL, codes.IN, codes.ANY):
            atom = self.random.choice(_characters(code, value))
            self.atoms.add(atom)
            return atom
        if code is codes.BRANCH:
            return self.sample(self.random.choice(value[1]), before)
        if code is codes.SUBPATTERN:
            self._groups[value[0]] = self.sample(value[3], before)
            return self._groups[value[0]]
        if code is codes.ATOMIC_GROUP:
            return self.sample(value, before)
        if code is codes.GROUPREF:
            return self._groups.get(value, "")
        if code in (codes.MAX_REPEAT, codes.MIN_REPEAT, codes.POSSESSIVE_REPEAT):
            least, most, body = value
            if most >= 10:
                self.pumps[before, self.sample(body, before)] = None
            count = min(max(least, self.random.choice((0, 1, 2))), most)
            return "".join(self.sample(body, before) for _ in range(count))
        return ""  # assertions


_CANDIDATES: Final = " a0A<>/@:;-_.\"'\\\n=[]{}()\u4e00"
_BY_CATEGORY: Final = {
    codes.CATEGORY_DIGIT: "0",
    codes.CATEGORY_SPACE: " ",
    codes.CATEGORY_WORD: "a",
    codes.CATEGORY_NOT_DIGIT: "-",
    codes.CATEGORY_NOT_SPACE: "-",
    codes.CATEGORY_NOT_WORD: "-",
}


def _characters(code: Any, value: Any) -> list[str]:
    if code is codes.LITERAL:
        return [chr(value)]
    if code is codes.ANY:
        return list('a <"')
    if code is codes.NOT_LITERAL:
        return [char for char in _CANDIDATES if ord(char) != value]
    if value[0][0] is not codes.NEGATE:
        return [_BY_CATEGORY.get(what, "") if kind is codes.CATEGORY else chr(_first(what)) for kind, what in value]
    one = re.compile("[^" + "".join(_written(kind, what) for kind, what in value[1:]) + "]")
    return [char for char in _CANDIDATES if one.match(char)] or ["\u00e9"]


def _first(what: Any) -> int:
    return int(what[0] if isinstance(what, tuple) else what)


def _written(kind: Any, what: Any) -> str:
    if kind is codes.LITERAL:
        return re.escape(chr(what))
    if kind is codes.RANGE:
        return f"{re.escape(chr(what[0]))}-{re.escape(chr(what[1]))}"
    classes = {codes.CATEGORY_DIGIT: r"\d", codes.CATEGORY_SPACE: r"\s", codes.CATEGORY_WORD: r"\w"}
    return (
        classes.get(what)
        or {
            codes.CATEGORY_NOT_DIGIT: r"\D",
            codes.CATEGORY_NOT_SPACE: r"\S",
            codes.CATEGORY_NOT_WORD: r"\W",
        }[what]
    )
