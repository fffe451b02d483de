"""Where the search index lies: one folder for each time it was made, of which one is in use."""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import structlog

from burnd.ledger import files
from burnd.recording.crash_guard import InProcessGuard
from burnd.search.engine import LAYOUT, Engine, Unusable
from burnd.search.progress import Current, Progress
from burnd.search.shelf import Shelf

log = structlog.get_logger()
_PREFIX: Final = f"v{LAYOUT}-"


class Folders:
    """The folders inside `index/search`. Which one is in use is said in the index database, in one row."""

    def __init__(self, root: Path, guard: InProcessGuard) -> None:
        self._root = root
        self._guard = guard
        self._shelves: list[Shelf] = []

    def open(self, current: Current | None, states: Mapping[str, Progress]) -> Shelf:
        """The index in use, as far as it can be used; else an empty one. All others are removed."""
        shelf = self._opened(current, states) if current is not None else None
        self.keep_only(shelf.name if shelf is not None else "")
        return shelf or self.fresh()

    def fresh(self) -> Shelf:
        """An empty index in a folder of its own."""
        self._move_aside()
        files.make_folder(self._root)
        return Shelf(Engine(self._root / f"{_PREFIX}{secrets.token_hex(4)}"), {}, self._guard, self._shelves)

    def _move_aside(self) -> None:
        """Renames a file in the folder's place, which would stop the daemon at every start."""
        if os.path.lexists(self._root) and not self._root.is_dir():
            aside = self._root.with_name(f"{self._root.name}.aside-{secrets.token_hex(4)}")
            os.replace(self._root, aside)
            if aside.is_file() and not aside.is_symlink():
                aside.chmod(files.FILE_MODE)
            log.warning("search.moved_aside", name=aside.name)

    def keep_only(self, name: str) -> None:
        for folder in self._root.iterdir() if self._root.is_dir() else ():
            if folder.name != name:
                shutil.rmtree(folder, ignore_errors=True)

    def _opened(self, current: Current, states: Mapping[str, Progress]) -> Shelf | None:
        folder = self._root / current.folder
        if not current.folder.startswith(_PREFIX) or folder.parent != self._root or not folder.is_dir():
            return None
        try:
            engine = Engine(folder)
            number = engine.number()
        except Unusable:
            log.warning("search.damaged")
            return None
        if number < current.commit:  # the folder is older than what was said of it
            engine.rest()
            return None
        told = current.commit if number > current.commit else None
        return Shelf(engine, states, self._guard, self._shelves, told=told, stained=current.stained)
