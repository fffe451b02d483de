"""One folder of tantivy's: its fields, what is put in, taken out and committed. All of tantivy that writes is here."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Final

import tantivy

from burnd.ledger import files
from burnd.records.codec import hash_of
from burnd.search.documents import Document, Place, session_key
from burnd.tokens.record_words import SIGNS
from burnd.tokens.words import LONGEST_WORD, analyzer

LAYOUT: Final = 9  # raise it when fields or words change: an index of another layout is rebuilt
# What a writer may take before it begins a new segment. Small ones cost most of the time in merging; it is only
# taken while a backlog is read, since every commit gives it back.
HEAP: Final = 30_000_000
_SIGN: Final = max(len(sign.encode()) for sign in SIGNS.values())
WORDS: Final = "words"


class Unusable(Exception):
    """Raised when the files of an index cannot be read or written; `str` says why."""


def _between_spaces() -> tantivy.TextAnalyzer:
    """For texts that are words already."""
    short = tantivy.Filter.remove_long(LONGEST_WORD + _SIGN + 1)
    return tantivy.TextAnalyzerBuilder(tantivy.Tokenizer.whitespace()).filter(short).build()


def _schema() -> tantivy.Schema:
    """Positions are left out: they would double the size, and phrases can be checked against the content."""
    builder = tantivy.SchemaBuilder()
    builder.add_text_field(WORDS, tokenizer_name=WORDS, index_option="freq")
    for field in ("role", "called"):
        builder.add_text_field(field, tokenizer_name="raw", index_option="basic")
    builder.add_integer_field("session", indexed=True, fast=True)
    builder.add_integer_field("message", indexed=True)
    builder.add_integer_field("ts", fast=True)
    builder.add_bytes_field("place", stored=True)
    return builder.build()


class Engine:
    """An index in a folder, made when there is none. Writing is for one thread at a time; finding for any."""

    def __init__(self, folder: Path) -> None:
        files.make_folder(folder)
        self.folder = folder
        self.schema = _schema()
        self.analyzer = analyzer()
        with in_our_words(), _text_path(folder) as path:
            self._index = tantivy.Index(self.schema, path)
            self._index.register_tokenizer(WORDS, _between_spaces())
            self.searcher = self._index.searcher()
        self._writer: tantivy.IndexWriter | None = None

    def add(self, document: Document) -> None:
        """Adds a document; one of the same message must have been taken out before."""
        written = document.place.written()
        made = tantivy.Document()  # filled piece by piece: given all at once, it has to guess what each is
        for words in document.words:
            made.add_text(WORDS, words)
        for role in document.roles:
            made.add_text("role", role)
        for tool in document.tools:
            made.add_text("called", tool)
        made.add_integer("session", session_key(document.place.session_id))
        made.add_integer("message", hash_of(written))
        made.add_integer("ts", document.ts)
        made.add_bytes("place", written)
        with in_our_words():
            self._open_writer().add_document(made)

    def remove(self, place: Place) -> None:
        with in_our_words():
            self._open_writer().delete_documents_by_term("message", hash_of(place.written()))

    def remove_session(self, session_id: str) -> None:
        with in_our_words():
            self._open_writer().delete_documents_by_term("session", session_key(session_id))

    def commit(self) -> int:
        """Makes everything so far durable and findable; returns the commit's number."""
        with in_our_words():
            number = self._open_writer().commit()
            self._index.reload()
            self.searcher = self._index.searcher()
        self._make_private()
        return number

    def number(self) -> int:
        """The number of the last commit; 0 where there was none."""
        with in_our_words():
            return int(self._open_writer().commit_opstamp)

    def rest(self) -> None:
        """Lets go of the writer's memory and threads; what was not committed is forgotten."""
        self._writer = None

    def size(self) -> int:
        return sum(entry.stat().st_size for entry in self._files())

    def _open_writer(self) -> tantivy.IndexWriter:
        if self._writer is None:
            self._writer = self._index.writer(HEAP, 1)
        return self._writer

    def _make_private(self) -> None:
        for entry in self._files():
            if entry.stat().st_mode & 0o177:
                with contextlib.suppress(FileNotFoundError):
                    os.chmod(entry.path, 0o600)

    def _files(self) -> Iterator[os.DirEntry[str]]:
        """The files as they are now; merging may take some away at any time."""
        with contextlib.suppress(FileNotFoundError), os.scandir(self.folder) as entries:
            for entry in entries:
                with contextlib.suppress(FileNotFoundError):
                    entry.stat()
                    yield entry


@contextlib.contextmanager
def _text_path(folder: Path) -> Iterator[str]:
    """A UTF-8 path to the folder, as tantivy's binding requires; tantivy resolves it to the real path."""
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


class _InOurWords:
    """tantivy raises ValueError for what is wrong with its files, RuntimeError for a writer that is gone, and panics.

    A panic of Rust is no Exception in Python, so that nobody takes it for one of theirs: it is told by its name.
    """

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, ValueError | RuntimeError | OSError) or type(error).__name__ == "PanicException":
            raise Unusable(f"{type(error).__name__}: {str(error)[:200]}") from error


_in_our_words: Final = _InOurWords()  # one for all: there is a document for every message


def in_our_words() -> _InOurWords:
    """Around whatever is asked of tantivy: its failures become Unusable."""
    return _in_our_words
