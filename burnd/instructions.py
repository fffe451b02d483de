"""Instruction and memory files, for `search_memory`: found, read, split into entries and ranked; never stored.

Neither folder names from logs nor files from repositories are trusted: only regular files of this user or of root are
read, of bounded size and number, and links in a project only within it. A folder that does not answer delays one answer
and is skipped from then on.
"""

from __future__ import annotations

import contextlib
import fnmatch
import os
import stat
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import log
from typing import Final, NamedTuple

import anyio

from burnd.harness.instructions import commented_json
from burnd.harness.registry import PRODUCTS
from burnd.recording.projects import DetachedCall
from burnd.search.query import typed
from burnd.tokens.words import spelled_out

LARGEST_FILE: Final = 1 << 20
MOST_BYTES: Final = 8 << 20  # of all files together
MOST_FILES: Final = 4000
MOST_PROJECTS: Final = 1000
DEEPEST: Final = 64  # parts of a project's path
_LONGEST_PATH: Final = 4096
_MOST_LISTED: Final = 500  # of one memory or rules folder
_MOST_VISITED: Final = 2000  # folders, for one pattern
_MOST_PATTERNS: Final = 100
_LARGEST_SETTINGS: Final = 256 << 10
_IMPORTS_DEEP: Final = 5
_NO_PROGRESS_S, _IN_ALL_S = 1.5, 5.0
_MOST_STUCK: Final = 8
_OWN: Final = "~"  # in place of a project: the user's own files
_MOST_WORDS: Final = 64  # of a query
_PART_WEIGHT: Final = 0.3  # of a part of a camelCase word, as in search over sessions
_K1, _B = 1.2, 0.75  # the usual constants of BM25


class MemoryFile(NamedTuple):
    """`project` is its folder, None for the user's own files."""

    path: str
    kind: str
    project: str | None
    modified_ms: int
    text: str
    is_memory: bool = False  # written by the harness


class MemoryEntry(NamedTuple):
    """A section of an instruction file or a whole memory file."""

    file: MemoryFile
    heading: str
    line: int
    text: str
    copies: tuple[str, ...] = ()  # other files with the same section


class MemoryMatch(NamedTuple):
    entry: MemoryEntry
    score: float


def entries(files: Iterable[MemoryFile]) -> list[MemoryEntry]:
    """Equal ones are one entry of the first file."""
    unique: dict[tuple[str, str], MemoryEntry] = {}
    for file in files:
        name = file.path.rpartition("/")[2].removesuffix(".md")
        whole = [MemoryEntry(file, name, 1, file.text)] if file.text.strip() else []
        for entry in whole if file.is_memory else _sections(file):
            key = (entry.heading, entry.text)
            first = unique.get(key)
            unique[key] = entry if first is None else first._replace(copies=(*first.copies, file.path))
    return list(unique.values())


def fence_after(line: str, fence: str) -> str:
    """The fence that is open after a line, or ""; `fence` is the one before it. ```` ```code``` ```` opens none."""
    text = line.strip()
    marks = text[: len(text) - len(text.lstrip(text[0]))] if text.startswith(("```", "~~~")) else ""
    if not marks:
        return fence
    if not fence:
        return "" if marks[0] == "`" and "`" in text[len(marks) :] else marks
    return "" if marks == text and marks.startswith(fence) else fence


def _sections(file: MemoryFile) -> list[MemoryEntry]:
    """By `#` and `##` headings outside of code."""
    sections: list[MemoryEntry] = []
    heading, begin, lines = "", 1, list[str]()
    fence = ""

    def close() -> None:
        body = lines[1:] if heading else lines
        if any(line.strip() for line in body):
            sections.append(MemoryEntry(file, heading, begin, "".join(lines).strip("\n")))

    for number, line in enumerate(file.text.splitlines(keepends=True), 1):
        fence = fence_after(line, fence)
        if not fence and line.startswith(("# ", "## ")):
            close()
            heading, begin, lines = line.lstrip("#").strip(), number, []
        lines.append(line)
    close()
    return sections


class Query:
    def __init__(self, query: str) -> None:
        parts = typed(query)
        self.weights: dict[str, float] = {}
        for piece in (*parts.pieces, *parts.phrases):
            whole, *camel = spelled_out(piece) or ("",)
            for weight, words in ((1.0, [whole]), (_PART_WEIGHT, camel)):
                for word in " ".join(words).split():
                    if word in self.weights or len(self.weights) < _MOST_WORDS:
                        self.weights[word] = max(weight, self.weights.get(word, 0.0))
        phrases = (spelled_out(phrase) for phrase in parts.phrases)
        self.phrases = [f" {' '.join(words[0].split())} " for words in phrases if words]

    def rank(self, candidates: Sequence[MemoryEntry]) -> list[MemoryMatch]:
        """Best first, by BM25. Words of a heading count twice."""
        rows: list[tuple[MemoryEntry, dict[str, int], int]] = []
        uses = dict.fromkeys(self.weights, 0)
        length = 0
        for entry in candidates:
            words = " ".join(spelled_out(f"{entry.heading}\n{entry.text}")).split()
            length += len(words)
            counts = {word: n for word in self.weights if (n := words.count(word))}
            for word in counts:
                uses[word] += 1
            if counts and self.phrases:
                text = " ".join(" ".join(spelled_out(entry.text)[:1]).split())
                counts = counts if all(phrase in f" {text} " for phrase in self.phrases) else {}
            if counts:
                rows.append((entry, counts, len(words)))
        average = length / len(candidates) if length else 1.0
        rarity = {word: log(1 + (len(candidates) - n + 0.5) / (n + 0.5)) for word, n in uses.items()}

        def score(counts: dict[str, int], size: int) -> float:
            scale = _K1 * (1 - _B + _B * size / average)
            return sum(self.weights[w] * rarity[w] * n * (_K1 + 1) / (n + scale) for w, n in counts.items())

        matches = [MemoryMatch(entry, score(counts, size)) for entry, counts, size in rows]
        matches.sort(key=lambda match: (-match.score, match.entry.file.path, match.entry.line))
        return matches


class Homes(NamedTuple):
    user: str
    folders: Mapping[str, Sequence[str]]  # by source


@dataclass
class FilesRead:
    files: list[MemoryFile] = field(default_factory=list)
    skipped: dict[str, int] = field(default_factory=dict)
    unanswered: list[str] = field(default_factory=list)
    is_whole: bool = True  # False if a bound or the deadline was reached


class Reader:
    """Serves one request at a time."""

    def __init__(self) -> None:
        self._stuck: list[tuple[str, DetachedCall[None]]] = []
        self._turn = anyio.Lock()

    async def read(self, homes: Homes, projects: Sequence[str]) -> FilesRead:
        async with self._turn:
            return await self._read(homes, projects)

    async def _read(self, homes: Homes, projects: Sequence[str]) -> FilesRead:
        self._stuck = [(folder, look) for folder, look in self._stuck if not look.is_done]
        stuck = {folder for folder, _ in self._stuck}
        result = FilesRead(unanswered=sorted(stuck), is_whole=len(projects) <= MOST_PROJECTS)
        folders = [one for one in projects[:MOST_PROJECTS] if os.path.isabs(one) and "\0" not in one]
        places = [_OWN, *(one for one in folders if len(one) <= _LONGEST_PATH and one.count("/") <= DEEPEST)]
        waiting = [place for place in dict.fromkeys(places) if place not in stuck]
        deadline = time.monotonic() + _IN_ALL_S
        paths_read: set[str] = set()
        while waiting and len(self._stuck) < _MOST_STUCK:
            walk = _Walk(homes, waiting, places[1:], result, paths_read)
            look = DetachedCall(walk.run)
            steps = -1
            while not look.is_done and walk.steps != steps and time.monotonic() < deadline:
                steps = walk.steps
                with contextlib.suppress(TimeoutError):
                    await look.result(min(_NO_PROGRESS_S, max(deadline - time.monotonic(), 0.01)))
            walk.is_over = True
            result, paths_read = walk.result, walk.paths_read
            if look.is_done:
                return result
            if time.monotonic() < deadline:
                self._stuck.append((walk.place, look))
                result.unanswered.append(walk.place)
            else:
                result.is_whole = False
                waiting = []
            # copies, since the stuck thread may write to the originals later
            result = FilesRead([*result.files], {**result.skipped}, [*result.unanswered], result.is_whole)
            paths_read = {*paths_read}
            waiting = waiting[walk.number + 1 :]
        result.is_whole = result.is_whole and not waiting
        return result


class _Walk:
    """Runs in a thread that may get stuck."""

    def __init__(
        self, homes: Homes, places: Sequence[str], projects: Sequence[str], result: FilesRead, paths_read: set[str]
    ) -> None:
        self.homes, self.places, self.result, self.paths_read = homes, places, result, paths_read
        self.number = self.steps = 0
        self.is_over = False
        self._projects = projects
        self._bytes = sum(len(file.text) for file in result.files)
        self._folders: set[str] = set()
        self._patterns: list[tuple[str, str]] = []  # with their kind

    @property
    def place(self) -> str:
        return self.places[self.number]

    def run(self) -> None:
        for number, place in enumerate(self.places):
            self.number = number
            if self.is_over:
                return
            if place == _OWN:
                self._read_own()
            else:
                self._read_project(place)

    def _read_own(self) -> None:
        """Files of the machine and the user, those that configurations name, memories."""
        for product in PRODUCTS:
            homes, files = self.homes.folders.get(product.source, ()), product.instructions
            for folder in (*files.managed, *homes):
                self._read_names(folder, files.own, None, None, follows_imports=files.follows_imports)
            for path in (os.path.join(folder, name) for folder in homes for name in files.own_configs):
                self._patterns += [(pattern, files.pattern_kind) for pattern in self._named_in(path, None)]
        for pattern, kind in self._patterns:
            if os.path.isabs(path := _expanded(pattern, self.homes.user)):
                for match in _matching("/", path):
                    self._read(match, kind, None, None)
        for product in PRODUCTS:
            homes = self.homes.folders.get(product.source, ())
            for folder, project in product.memory_folders(homes, self._projects):
                for path in _markdown(folder, deep=3):
                    self._read(path, product.instructions.memory_kind, project, None, is_memory=True)

    def _read_project(self, project: str) -> None:
        """Also the folders above. Links may lead anywhere in the repository, else only within the folder.

        A home folder is no repository: a link could lead to all files of the user.
        """
        chain = [os.path.normpath(project)]  # and the folders above it
        while (above := os.path.dirname(chain[-1])) not in (chain[-1], "/"):
            chain.append(above)
        repositories = (folder for folder in chain if os.path.lexists(os.path.join(folder, ".git")))
        home = os.path.realpath(self.homes.user)
        repository = next((folder for folder in repositories if not _is_in(home, os.path.realpath(folder))), None)
        within = chain[: chain.index(repository) + 1] if repository is not None else chain[:1]
        patterns = [*self._patterns]
        configs = [(name, one.instructions.pattern_kind) for one in PRODUCTS for name in one.instructions.configs]
        for folder in chain:
            root = os.path.realpath(repository if repository is not None and folder in within else folder)
            if folder not in self._folders:
                self._folders.add(folder)
                for files in (product.instructions for product in PRODUCTS):
                    self._read_names(folder, files.project, folder, root, follows_imports=files.follows_imports)
            for name, kind in configs if folder in within else ():
                patterns += [(pattern, kind) for pattern in self._named_in(os.path.join(folder, name), root)]
        for pattern, kind in dict.fromkeys(patterns[:_MOST_PATTERNS]):
            path = _expanded(pattern, self.homes.user)
            for folder in within:
                below = os.path.relpath(path, folder) if os.path.isabs(path) else path
                for match in _matching(folder, below):
                    self._read(match, kind, folder, os.path.realpath(within[-1]))

    def _read_names(
        self, folder: str, names: Mapping[str, str], project: str | None, root: str | None, *, follows_imports: bool
    ) -> None:
        """Names with a slash at the end are folders of Markdown files."""
        for name, kind in names.items():
            path = os.path.join(folder, name)
            for one in _markdown(path, deep=4) if name.endswith("/") else (path,):
                self._read_with_imports(one, kind, project, root, _IMPORTS_DEEP if follows_imports else 0)

    def _read_with_imports(self, path: str, kind: str, project: str | None, root: str | None, depth: int) -> None:
        text = self._read(path, kind, project, root)
        if text is None or depth == 0:
            return
        for name in _imports(text):
            target = os.path.join(os.path.dirname(os.path.realpath(path)), _expanded(name, self.homes.user))
            self._read_with_imports(os.path.normpath(target), kind, project, root, depth - 1)

    def _read(
        self, path: str, kind: str, project: str | None, root: str | None, *, is_memory: bool = False
    ) -> str | None:
        """None if it was read already or is not in `root`."""
        self.steps += 1
        if self.is_over or "\0" in path or not os.path.lexists(path):
            return None
        if len(self.result.files) >= MOST_FILES or self._bytes >= MOST_BYTES:
            self.result.is_whole = False
            return None
        real = os.path.realpath(path)
        if real in self.paths_read:
            return None
        if root is not None and not _is_in(real, root):
            self._skip("links")
            return None
        self.paths_read.add(real)
        try:
            data, status = _opened(real, LARGEST_FILE)
        except _Unsafe as error:
            self._skip(str(error))
            return None
        except (OSError, ValueError):
            return None
        text = data.decode("utf-8", "replace")
        self._bytes += len(data)
        self.result.files.append(MemoryFile(path, kind, project, status.st_mtime_ns // 1_000_000, text, is_memory))
        return text

    def _skip(self, why: str) -> None:
        self.result.skipped[why] = self.result.skipped.get(why, 0) + 1

    def _named_in(self, path: str, root: str | None) -> list[str]:
        """Patterns under `instructions`, without URLs."""
        if not os.path.lexists(path):
            return []
        real = os.path.realpath(path)
        if root is not None and not _is_in(real, root):
            return []
        try:
            data, _ = _opened(real, _LARGEST_SETTINGS)
        except (_Unsafe, OSError, ValueError):
            return []
        names = commented_json(data.decode("utf-8", "replace")).get("instructions")
        patterns = names[:_MOST_PATTERNS] if isinstance(names, list) else []
        return [p for p in patterns if isinstance(p, str) and "://" not in p and len(p) <= _LONGEST_PATH]


class _Unsafe(Exception):
    pass


def _opened(path: str, most: int) -> tuple[bytes, os.stat_result]:
    """Raises _Unsafe with the reason, or OSError."""
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            raise OSError("not a regular file")
        if status.st_uid not in (os.geteuid(), 0):
            raise _Unsafe("foreign")
        if status.st_size > most:
            raise _Unsafe("large")
        return os.pread(fd, most, 0), status
    finally:
        os.close(fd)


def _is_in(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def _expanded(name: str, user: str) -> str:
    return user + name[1:] if name == "~" or name.startswith("~/") else name


def _markdown(folder: str, deep: int) -> Iterator[str]:
    """Not in linked folders."""
    waiting, count = [(folder, deep)], 0
    while waiting and count < _MOST_LISTED:
        where, levels = waiting.pop()
        try:
            with os.scandir(where) as scan:
                some = sorted(scan, key=lambda entry: entry.name)
        except OSError:
            continue
        for entry in some:
            count += 1
            if entry.name.endswith(".md") and count <= _MOST_LISTED:
                yield entry.path
            elif levels > 1 and entry.is_dir(follow_symlinks=False):
                waiting.append((entry.path, levels - 1))


def _matching(folder: str, pattern: str) -> Iterator[str]:
    """With `*`, `?` and `**` in the pattern; not in linked folders."""
    parts = [part for part in pattern.split("/") if part not in ("", ".")][:DEEPEST]
    if not any(set(part) & set("*?[") for part in parts):
        yield os.path.normpath(os.path.join(folder, *parts))
        return
    waiting, visited = [(folder, 0)], set[tuple[str, int]]()
    while waiting and len(visited) < _MOST_VISITED:
        where, number = waiting.pop()
        if (where, number) in visited or number >= len(parts):
            continue
        visited.add((where, number))
        part, is_last = parts[number], number == len(parts) - 1
        try:
            with os.scandir(where) as scan:
                inner = sorted(scan, key=lambda entry: entry.name, reverse=True)
        except OSError:
            continue
        if part == "**":
            waiting.append((where, number + 1))
        for entry in inner:
            is_folder = entry.is_dir(follow_symlinks=False)
            if part == "**":
                waiting += [(entry.path, number)] if is_folder and not entry.name.startswith(".") else []
            elif fnmatch.fnmatchcase(entry.name, part):
                if is_last and not is_folder:
                    yield entry.path
                elif is_folder:
                    waiting.append((entry.path, number + 1))


def _imports(text: str) -> Iterator[str]:
    """Names after an `@` outside of code."""
    fence = ""
    for line in text.splitlines():
        fence = fence_after(line, fence)
        if not fence and "@" in line:
            for piece in line.split("`")[::2]:
                for word in piece.split():
                    if word.startswith("@") and (name := word[1:].rstrip(".,;:!?)")):
                        yield name
