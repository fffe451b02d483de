"""Standing instruction files of a folder, read as a product reads them, for `burnctl overhead`. burnctl imports it."""

from __future__ import annotations

import json
import os
import re

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

_LARGEST = 4 << 20
_IMPORTS_DEEP = 5
_MOST_RULES = 1000
_CODE_SPAN = r"`[^`]*`"
# An unclosed string or comment matches to the end of the file, which keeps the search linear.
_STRING = r'(?s)("(?:\\.|[^"\\])*+"?)'
_STRING_OR_COMMENT = rf"{_STRING}|//[^\n]*|/\*(?:[^*]|\*(?!/))*+(?:\*/)?"
_STRING_OR_LAST_COMMA = rf"{_STRING}|,(?=\s*[}}\]])"
_IMPORT = r"(?<!\S)@([^\s\0`'\"<>|]+)"
_MOST_FOLDERS, _DEEPEST = 20_000, 64
_SKIPPED = {"node_modules", "vendor", "target", "dist", "build", "__pycache__", "venv"}


class MemoryFile:
    """A file, the product that reads it, and how it enters the context.

    `how` is managed, global, project, nested, import or memory. A nested one is read only for work below its folder or
    in files that it names, and is not in the prefix. `sections` are (heading, bytes); the first heading may be empty.
    The size of a `logged` file is that at the start of the newest session.
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


class InstructionFiles:
    """The instruction files of one product, each once, followed by the files that it imports."""

    def __init__(self, source: str, *, follows_imports: bool = False) -> None:
        self._source, self._follows_imports = source, follows_imports
        self._files: list[MemoryFile] = []
        self._paths: set[str] = set()
        self._nested: list[str] = []

    def files(self) -> list[MemoryFile]:
        for path in self._nested:
            self._add(path, "nested", None, 0)
        return self._files

    def add(self, path: str, how: str, only: Callable[[bytes], bytes] | None = None) -> bool:
        path = os.path.normpath(path)
        if how == "nested":
            self._nested.append(path)
            return os.path.isfile(path)
        return self._add(path, how, only, 0)

    def add_first(self, paths: Iterable[str], how: str) -> None:
        for path in paths:
            if self.add(path, how):
                return

    def _add(self, path: str, how: str, only: Callable[[bytes], bytes] | None, depth: int) -> bool:
        real = os.path.realpath(path)
        text = read(real) if real not in self._paths else None
        if text is None:
            return False
        self._paths.add(real)
        part = only(text) if only is not None else text
        self._files.append(MemoryFile(path, self._source, how, len(part), list(sections(part))))
        if self._follows_imports and how != "memory" and depth < _IMPORTS_DEEP:
            for name in imports(text):
                where = os.path.normpath(os.path.join(os.path.dirname(real), os.path.expanduser(name)))
                self._add(where, "nested" if how == "nested" else "import", None, depth + 1)
        return True


def markdown_below(folder: str) -> list[str]:
    """All Markdown files below a folder, in order; follows links, but not in a circle."""
    paths: list[str] = []
    waiting, visited = [folder], {os.path.realpath(folder)}
    while waiting and len(paths) < _MOST_RULES:
        try:
            with os.scandir(waiting.pop()) as iterator:
                entries = list(iterator)
        except OSError:
            continue
        paths += [entry.path for entry in entries if entry.name.endswith(".md")]
        inner = {os.path.realpath(entry.path): entry.path for entry in entries if entry.is_dir()}
        waiting += [path for real, path in inner.items() if real not in visited]
        visited.update(inner)
    return sorted(paths)


def read(path: str) -> bytes | None:
    try:
        if not os.path.isfile(path) or os.path.getsize(path) > _LARGEST:
            return None
        with open(path, "rb") as file:
            return file.read(_LARGEST)
    except (OSError, ValueError):
        return None


def commented_json(text: str) -> dict[str, object]:
    """The object of a JSON text that may have comments and trailing commas; empty for any other text."""
    plain = re.sub(_STRING_OR_COMMENT, lambda match: match[1] or " ", text)
    strict = re.sub(_STRING_OR_LAST_COMMA, lambda match: match[1] or "", plain)
    try:
        value = json.loads(strict) if strict.strip() else {}
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def imports(text: bytes) -> Iterator[str]:
    for line in _outside_code(text):
        plain = re.sub(_CODE_SPAN, "", line)
        for name in re.findall(_IMPORT, plain):
            yield name.rstrip(".,;:!?)")


def sections(text: bytes) -> Iterator[tuple[str, int]]:
    """Headings of the first two levels, with the bytes of their sections."""
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


def upwards(folder: str) -> list[str]:
    folders = [os.path.abspath(folder)]
    while (above := os.path.dirname(folders[-1])) != folders[-1]:
        folders.append(above)
    return folders[::-1]


def repository(folder: str) -> str | None:
    return next((above for above in reversed(upwards(folder)) if os.path.exists(os.path.join(above, ".git"))), None)


def in_repository(folder: str) -> list[str] | None:
    """The folders from the repository's root down to this one; None outside a repository."""
    root = repository(folder)
    return [above for above in upwards(folder) if len(above) >= len(root)] if root is not None else None


def below(folder: str) -> Iterator[tuple[str, set[str]]]:
    """The folders below with the names in each. `os.walk` is limited by Python's stack."""
    waiting, count = [(folder, 0)], 0
    while waiting and count < _MOST_FOLDERS:
        where, deep = waiting.pop()
        count += 1
        try:
            with os.scandir(where) as iterator:
                entries = sorted(iterator, key=lambda entry: entry.name, reverse=True)
        except OSError:
            continue
        if deep:
            yield where, {entry.name for entry in entries}
        if deep < _DEEPEST:
            waiting += [(entry.path, deep + 1) for entry in entries if _is_searched(entry)]


def _is_searched(entry: os.DirEntry[str]) -> bool:
    return entry.name not in _SKIPPED and not entry.name.startswith(".") and entry.is_dir(follow_symlinks=False)
