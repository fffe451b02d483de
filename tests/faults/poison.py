"""A daemon that is killed by one thing it reads, as a fault in a library or want of memory might make it.

POISON says what does it: a line of a log, a row of opencode's, words that are made ready for search, a document that
tantivy's own threads choke on later, a session that search takes up, a turn whose causes are counted.
"""

from __future__ import annotations

import os
import signal
from typing import Any

from burnd.attribution.rail import Rail
from burnd.ledger import shelving
from burnd.readers.claude_code import ClaudeReader
from burnd.search.engine import Engine
from burnd.search.shelf import Shelf
from burnd.sources import opencode_fetching

MARK = "poison"


def _die_if(is_poisonous: bool) -> None:
    if is_poisonous:
        os.kill(os.getpid(), signal.SIGKILL)


def poison_line() -> None:
    feed = ClaudeReader.feed

    def deadly(self: ClaudeReader, line: bytes, *more: Any) -> Any:
        _die_if(MARK.encode() in line)
        return feed(self, line, *more)

    reader: Any = ClaudeReader
    reader.feed = deadly


def poison_row() -> None:
    fetching: Any = opencode_fetching
    opened = fetching.opened

    def deadly(row: Any) -> Any:
        _die_if(any(MARK in str(part.data) for part in row.parts))
        return opened(row)

    fetching.opened = deadly


def poison_words() -> None:
    module: Any = shelving
    heard = module.heard

    def deadly(record: Any) -> Any:
        _die_if(MARK in str(record.text))
        return heard(record)

    module.heard = deadly


def poison_document() -> None:
    add, commit, added = Engine.add, Engine.commit, list[Any]()

    def remember(self: Engine, document: Any) -> None:
        added.extend(words for words in document.words if MARK in words)
        add(self, document)

    def deadly(self: Engine) -> int:
        _die_if(bool(added))
        return commit(self)

    engine: Any = Engine
    engine.add, engine.commit = remember, deadly


def poison_session() -> None:
    names_of = Shelf._names_of

    def deadly(self: Shelf, plan: Any) -> Any:
        _die_if(plan.standing.session_id == MARK)
        return names_of(self, plan)

    shelf: Any = Shelf
    shelf._names_of = deadly


def poison_turn() -> None:
    feed = Rail.feed

    def deadly(self: Rail, entry: Any) -> Any:
        _die_if(MARK in getattr(entry, "message_id", ""))
        return feed(self, entry)

    rail: Any = Rail
    rail.feed = deadly


if __name__ == "__main__":
    from burnd.cli import main

    globals()[f"poison_{os.environ['POISON']}"]()
    raise SystemExit(main())
