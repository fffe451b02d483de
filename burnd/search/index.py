"""The tantivy index: fields, documents, commits, and how much of each session it covers.

tantivy's commit payload cannot be set from Python, so one document of each part of a session that is indexed has the
session's coverage: after a crash both are there or neither. Separate documents would change BM25's statistics, and
with them the order of hits, with the number of commits.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import structlog
import tantivy

from burnd.ledger import files
from burnd.records.codec import hash_of
from burnd.search.documents import NO_COVERAGE, Coverage, Document, MessageName, session_key
from burnd.tokens.words import LONGEST_WORD, SIGNS, analyzer

log = structlog.get_logger()

LAYOUT: Final = 10  # raise it when fields or words change: an index of another layout is rebuilt
# Memory of the writer before it begins a new segment: for a backlog and for live messages. It is cleared for every
# commit, which takes 8 ms with the large one and 5 ms with the small one, the smallest that tantivy allows. A backlog
# takes 26 ms per MB of text with the small one, 17 ms with the large one, and 16 ms with twice as much.
BACKLOG_HEAP: Final = 30_000_000
LIVE_HEAP: Final = 15_000_000
WORDS: Final = "words"
_SIGN: Final = max(len(sign.encode()) for sign in SIGNS.values())
# Values of the field `role` for documents with coverage, and for an index with erased words.
_COVERAGE, _ERASED = "coverage", "erased"
_FOLDER: Final = re.compile(rf"v{LAYOUT}-(\d+)")


class Unusable(Exception):
    """The files of an index cannot be read or written; `str` has the reason."""


def _schema() -> tantivy.Schema:
    """Fields without positions, which would double the size; phrases are checked in the content."""
    builder = tantivy.SchemaBuilder()
    builder.add_text_field(WORDS, tokenizer_name=WORDS, index_option="freq")
    for field in ("role", "called"):
        builder.add_text_field(field, tokenizer_name="raw", index_option="basic")
    builder.add_integer_field("session", indexed=True, fast=True)
    builder.add_integer_field("message", indexed=True)
    builder.add_integer_field("ts", fast=True)
    builder.add_bytes_field("place", stored=True)
    for field in Coverage._fields:
        builder.add_integer_field(field, fast=True)
    return builder.build()


def _split_at_spaces() -> tantivy.TextAnalyzer:
    """An analyzer for texts that were split into words before."""
    short = tantivy.Filter.remove_long(LONGEST_WORD + _SIGN + 1)
    return tantivy.TextAnalyzerBuilder(tantivy.Tokenizer.whitespace()).filter(short).build()


class SearchIndex:
    """An index in a folder, created if it is missing. One thread at a time may write; any may search."""

    def __init__(self, folder: Path) -> None:
        files.make_folder(folder)
        self.folder = folder
        self.schema = _schema()
        self.analyzer = analyzer()
        self._writer: tantivy.IndexWriter | None = None
        self.is_backlog = False  # gives the next writer more memory
        self._heap = 0
        self._changed: set[str] = set()  # sessions whose coverage is not committed
        with as_unusable(), _text_path(folder) as path:
            self._index = tantivy.Index(self.schema, path)
            self._index.register_tokenizer(WORDS, _split_at_spaces())
            self.searcher = self._index.searcher()
            self.has_erased = self._is_erased = self.searcher.doc_freq("role", _ERASED) > 0
            self._coverage = self._stored_coverage()

    def _stored_coverage(self) -> dict[int, Coverage]:
        number = self.searcher.doc_freq("role", _COVERAGE)
        if not number:
            return {}
        query = tantivy.Query.term_query(self.schema, "role", _COVERAGE, "basic")
        addresses = [address for _, address in self.searcher.search(query, number, count=False).hits]
        columns = [self.searcher.fast_field_values(name, addresses) for name in ("session", *Coverage._fields)]
        found: dict[int, Coverage] = {}
        for row in zip(*columns, strict=True):
            key, covered, pruned, title = (int(value or 0) for value in row)
            before = found.get(key, NO_COVERAGE)
            found[key] = Coverage(max(covered, before.covered), max(pruned, before.pruned), title or before.title)
        return found

    @property
    def covered_keys(self) -> frozenset[int]:
        return frozenset(self._coverage)

    def has(self, session_id: str) -> bool:
        """Whether it has documents of a session, including deleted ones."""
        return self.searcher.doc_freq("session", session_key(session_id)) > 0

    def coverage(self, session_id: str) -> Coverage:
        """How much of a session it has, including uncommitted changes.

        After a restart it may be less, if the last messages had no words: these are read again.
        """
        return self._coverage.get(session_key(session_id), NO_COVERAGE)

    def set_coverage(self, session_id: str, coverage: Coverage) -> None:
        self._changed.add(session_id)
        if coverage == NO_COVERAGE:
            self._coverage.pop(session_key(session_id), None)
        else:
            self._coverage[session_key(session_id)] = coverage

    @property
    def uncommitted(self) -> int:
        """Sessions with uncommitted changes."""
        return len(self._changed)

    def add(self, document: Document, coverage: Coverage | None = None) -> None:
        """Adds a document, with `coverage` of its session. An earlier one of the same message must be removed first."""
        written = document.name.written()
        entry = tantivy.Document()  # filled field by field: from a dict, tantivy would guess the types
        entry.add_integer("message", hash_of(written))
        entry.add_integer("session", session_key(document.name.session_id))
        for words in document.words:
            entry.add_text(WORDS, words)
        for role in document.roles:
            entry.add_text("role", role)
        for tool in document.tools:
            entry.add_text("called", tool)
        entry.add_integer("ts", document.ts)
        entry.add_bytes("place", written)
        if coverage is not None:
            entry.add_text("role", _COVERAGE)
            for name, value in zip(Coverage._fields, coverage, strict=True):
                entry.add_integer(name, value)
        try:  # a context manager would take as long as tantivy itself
            self._open_writer().add_document(entry)
        except BaseException as error:
            _raise_unusable(error)
            raise

    def remove(self, name: MessageName) -> None:
        with as_unusable():
            self._open_writer().delete_documents_by_term("message", hash_of(name.written()))

    def remove_session(self, session_id: str) -> None:
        with as_unusable():
            self._open_writer().delete_documents_by_term("session", session_key(session_id))

    def commit(self) -> None:
        """Makes all changes durable and findable."""
        with as_unusable():
            writer = self._open_writer()
            if self.has_erased and not self._is_erased:
                entry = tantivy.Document()
                entry.add_text("role", _ERASED)
                writer.add_document(entry)
            writer.commit()
            self._changed, self._is_erased = set(), self.has_erased
            self._index.reload()
            self.searcher = self._index.searcher()
        if self._heap != self._best_heap():
            self._writer = None
        self._make_private()

    def close_writer(self) -> None:
        """Ends the writer without a commit."""
        self._writer = None

    def _open_writer(self) -> tantivy.IndexWriter:
        if self._writer is None:
            self._heap = self._best_heap()
            self._writer = self._index.writer(self._heap, 1)
        return self._writer

    def _best_heap(self) -> int:
        return BACKLOG_HEAP if self.is_backlog else LIVE_HEAP

    def _make_private(self) -> None:
        """Sets the mode of tantivy's files, which a merge may delete at any time."""
        with contextlib.suppress(FileNotFoundError), os.scandir(self.folder) as entries:
            for entry in entries:
                with contextlib.suppress(FileNotFoundError):
                    if entry.stat().st_mode & 0o177:
                        os.chmod(entry.path, 0o600)


class Folders:
    """The numbered folders in `index/search`. The lowest number is in use; a higher one is built to replace it.

    No number is used twice, since threads of a closed writer may write to its folder for a moment.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._last = 0

    def open(self, *, rebuild: bool = False) -> SearchIndex:
        """Opens the index in use, or an empty one if it is missing or damaged. Removes other folders."""
        self._move_aside()
        numbers = self._numbers()
        index = None
        if numbers and not rebuild:
            try:
                index = SearchIndex(self._root / f"v{LAYOUT}-{min(numbers)}")
            except Unusable as error:
                log.warning("search.damaged", error=str(error))
        index = index or self.create()
        self.remove_others(index)
        return index

    def create(self) -> SearchIndex:
        files.make_folder(self._root)
        self._last = max([self._last, *self._numbers()]) + 1
        return SearchIndex(self._root / f"v{LAYOUT}-{self._last}")

    def remove_others(self, index: SearchIndex) -> None:
        """Removes all other folders, renamed first so that none is opened with files missing."""
        for folder in self._root.iterdir():
            if folder != index.folder:
                removed = folder.with_name(f"removed-{secrets.token_hex(4)}")
                with contextlib.suppress(OSError):
                    folder.rename(removed)
                shutil.rmtree(removed, ignore_errors=True)

    def _numbers(self) -> list[int]:
        names = os.listdir(self._root) if self._root.is_dir() else ()
        return [int(found[1]) for name in names if (found := _FOLDER.fullmatch(name))]

    def _move_aside(self) -> None:
        if os.path.lexists(self._root) and not self._root.is_dir():
            aside = self._root.with_name(f"{self._root.name}.aside-{secrets.token_hex(4)}")
            os.replace(self._root, aside)
            if aside.is_file() and not aside.is_symlink():
                aside.chmod(files.FILE_MODE)
            log.warning("search.moved_aside", name=aside.name)


@contextlib.contextmanager
def _text_path(folder: Path) -> Iterator[str]:
    """A path in UTF-8, as tantivy's binding requires."""
    try:
        str(folder).encode()
    except UnicodeEncodeError:
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            yield f"/proc/self/fd/{fd}"
        finally:
            os.close(fd)
    else:
        yield str(folder)


def _raise_unusable(error: BaseException) -> None:
    """Turns errors of tantivy into Unusable: ValueError for its files, RuntimeError for its writer, and Rust panics.

    A panic's class cannot be imported and is no Exception.
    """
    if isinstance(error, ValueError | RuntimeError | OSError) or type(error).__name__ == "PanicException":
        raise Unusable(f"{type(error).__name__}: {str(error)[:200]}") from error


@contextlib.contextmanager
def as_unusable() -> Iterator[None]:
    """Turns failures of tantivy's calls into Unusable."""
    try:
        yield
    except BaseException as error:
        _raise_unusable(error)
        raise
