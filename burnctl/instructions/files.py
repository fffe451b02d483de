"""Instruction files: what is kept of one, what it imports, and the list of them, each once for a harness."""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

_LARGEST = 4 << 20
_IMPORTS_DEEP = 5
_MOST_RULES = 1000
_CODE_SPAN = r"`[^`]*`"
_IMPORT = r"(?<!\S)@([^\s\0`'\"<>|]+)"
CLAUDE, OPENCODE, CODEX = "claude-code", "opencode", "codex"


class MemoryFile:
    """A file, what it is for, and how it comes into the context.

    `how` is managed, global, project, nested, import or memory; a nested one is only read when work is done below its
    folder, or in files that it names, and is not in the prefix. `sections` are (heading, bytes), what stands before the
    first heading under an empty one. The size of a `logged` file is that at the start of the newest session.
    """

    __slots__ = ("how", "logged", "path", "sections", "size", "source")

    def __init__(
        self,
        path: str,
        source: str,
        how: str,
        size: int,
        sections: Sequence[tuple[str, int]] = (),
        *,
        logged: bool = False,
    ) -> None:
        self.path, self.source, self.how, self.logged = path, source, how, logged
        self.size = size
        self.sections = list(sections)

    @property
    def in_prefix(self) -> bool:
        return self.how != "nested"


class Found:
    """Files, each once for a harness, with what they import behind them; those that are only read when needed last."""

    def __init__(self) -> None:
        self._files: list[MemoryFile] = []
        self._known: set[tuple[str, str]] = set()
        self._later: list[tuple[str, str]] = []

    def files(self) -> list[MemoryFile]:
        """All of them. What is read at the start is not read again when needed."""
        for path, source in self._later:
            self._add(path, source, "nested", None, 0)
        return self._files

    def add(self, path: str, source: str, how: str, only: Callable[[bytes], bytes] | None = None) -> bool:
        """Whether there is such a file that was not there yet; `only` says what of it is read."""
        path = os.path.normpath(path)
        if how == "nested":
            self._later.append((path, source))
            return os.path.isfile(path)
        return self._add(path, source, how, only, 0)

    def _add(self, path: str, source: str, how: str, only: Callable[[bytes], bytes] | None, deep: int) -> bool:
        real = os.path.realpath(path)
        text = read(real) if (real, source) not in self._known else None
        if text is None:
            return False
        self._known.add((real, source))
        part = only(text) if only is not None else text
        self._files.append(MemoryFile(path, source, how, len(part), list(sections(part))))
        if source == CLAUDE and how != "memory" and deep < _IMPORTS_DEEP:
            for name in imports(text):
                where = os.path.normpath(os.path.join(os.path.dirname(real), os.path.expanduser(name)))
                self._add(where, source, "nested" if how == "nested" else "import", None, deep + 1)
        return True


def markdown_below(folder: str) -> list[str]:
    """All Markdown files of a folder and below it, in order; links are followed, none in a circle."""
    found: list[str] = []
    waiting, known = [folder], {os.path.realpath(folder)}
    while waiting and len(found) < _MOST_RULES:
        try:
            with os.scandir(waiting.pop()) as listed:
                entries = list(listed)
        except OSError:
            continue
        found += [entry.path for entry in entries if entry.name.endswith(".md")]
        inner = {os.path.realpath(entry.path): entry.path for entry in entries if entry.is_dir()}
        waiting += [path for real, path in inner.items() if real not in known]
        known.update(inner)
    return sorted(found)


def read(path: str) -> bytes | None:
    """A plain file's text; None for what is none, or is larger than any instruction could be."""
    try:
        if not os.path.isfile(path) or os.path.getsize(path) > _LARGEST:
            return None
        with open(path, "rb") as file:
            return file.read(_LARGEST)
    except (OSError, ValueError):
        return None


def imports(text: bytes) -> Iterator[str]:
    """The files that `@path` names, outside of code."""
    import re

    for line in _outside_code(text):
        plain = re.sub(_CODE_SPAN, "", line)
        for name in re.findall(_IMPORT, plain):
            yield name.rstrip(".,;:!?)")


def sections(text: bytes) -> Iterator[tuple[str, int]]:
    """Headings with the bytes that stand below each; those of the first two levels begin a section."""
    heading, size = "", 0
    code = False
    for line in text.splitlines(keepends=True):
        stripped = line.lstrip()
        if stripped.startswith((b"```", b"~~~")):
            code = not code
        if not code and stripped.startswith((b"# ", b"## ")):
            if size:
                yield heading, size
            heading, size = stripped.lstrip(b"#").strip().decode("utf-8", "replace"), 0
        size += len(line)
    if size:
        yield heading, size


def _outside_code(text: bytes) -> Iterator[str]:
    code = False
    for line in text.decode("utf-8", "replace").splitlines():
        if line.lstrip().startswith(("```", "~~~")):
            code = not code
        elif not code:
            yield line
