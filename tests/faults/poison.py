"""A daemon that crashes on one input, as with a fault in a library. POISON names it: a line of a log, an opencode row,
words prepared for search, a document that crashes tantivy's threads later, a session that search reads, a turn that
is explained. With `kill` it is killed from outside while it reads a line, with `memory` a line needs too much
memory. Its child processes that read logs are this module as well, without arguments, so the poisoned modules are
imported late."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

from burnd.harness.claude_code.reader import ClaudeReader
from burnd.ledger import content
from burnd.recording import child_process

MARK = "poison"
IS_CHILD = len(sys.argv) == 1


def _die_if(is_poisonous: bool) -> None:
    if is_poisonous:
        os.abort()


def poison_line() -> None:
    feed = ClaudeReader.feed

    def deadly(self: ClaudeReader, line: bytes, *more: Any) -> Any:
        _die_if(MARK.encode() in line)
        return feed(self, line, *more)

    reader: Any = ClaudeReader
    reader.feed = deadly


def poison_backlog() -> None:
    """A line, while a child reads all logs."""
    from burnd.logfiles import follower

    poison_line()
    follower.CHILD_FROM_BYTES = 0


def poison_kill() -> None:
    """Kills the daemon and the child that reads for it: no process knows why."""
    feed = ClaudeReader.feed

    def killed(self: ClaudeReader, line: bytes, *more: Any) -> Any:
        if MARK.encode() in line:
            os.kill(os.getppid() if IS_CHILD else os.getpid(), signal.SIGKILL)
            os.kill(os.getpid(), signal.SIGKILL)
        return feed(self, line, *more)

    reader: Any = ClaudeReader
    reader.feed = killed


def poison_memory() -> None:
    """In the child, whose memory is bounded; the daemon itself dies of it in some way."""
    feed = ClaudeReader.feed

    def hungry(self: ClaudeReader, line: bytes, *more: Any) -> Any:
        if MARK.encode() in line:
            _die_if(not IS_CHILD)
            bytes(2 << 30)
        return feed(self, line, *more)

    reader: Any = ClaudeReader
    reader.feed = hungry


def poison_nothing() -> None:
    pass


def poison_row() -> None:
    from burnd.harness.opencode import reader as opencode_reader

    reader: Any = opencode_reader
    decode_message = reader.decode_message

    def deadly(row: Any) -> Any:
        _die_if(any(MARK in str(part.data) for part in row.parts))
        return decode_message(row)

    reader.decode_message = deadly


def poison_words() -> None:
    module: Any = content
    search_words = module.search_words

    def deadly(record: Any) -> Any:
        _die_if(MARK in str(record.text))
        return search_words(record)

    module.search_words = deadly


def poison_document() -> None:
    from burnd.search.index import SearchIndex

    add, commit, added = SearchIndex.add, SearchIndex.commit, list[Any]()

    def remember(self: SearchIndex, document: Any, *coverage: Any) -> None:
        added.extend(words for words in document.words if MARK in words)
        add(self, document, *coverage)

    def deadly(self: SearchIndex) -> None:
        _die_if(bool(added))
        commit(self)

    index: Any = SearchIndex
    index.add, index.commit = remember, deadly


def poison_session() -> None:
    from burnd.search.filler import IndexFiller

    names_of = IndexFiller._names_of

    def deadly(self: IndexFiller, plan: Any) -> Any:
        _die_if(plan.session.session_id == MARK)
        return names_of(self, plan)

    filler: Any = IndexFiller
    filler._names_of = deadly


def poison_turn() -> None:
    from burnd.attribution.rail import Rail

    feed = Rail.feed

    def deadly(self: Rail, entry: Any) -> Any:
        _die_if(MARK in getattr(entry, "message_id", ""))
        return feed(self, entry)

    rail: Any = Rail
    rail.feed = deadly


if __name__ == "__main__":
    os.environ["PYTHONPATH"] = str(Path(__file__).parents[2])
    child_process.MODULE = "tests.faults.poison"
    globals()[f"poison_{os.environ['POISON']}"]()
    if IS_CHILD:
        child_process.main()
    else:
        from burnd.cli import main

        raise SystemExit(main())
