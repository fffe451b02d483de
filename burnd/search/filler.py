"""Fills an index from plans, with words that are still in memory or read from content. Blocks, in one thread."""

from __future__ import annotations

import contextlib
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from itertools import chain, groupby
from typing import Final

from burnd.content.recall import Recall, Spot
from burnd.ledger.content import Placed
from burnd.recording.crash_guard import WHOLE, InProcessGuard
from burnd.search.backlog import PendingMessage, SessionPlan
from burnd.search.documents import (
    NO_COVERAGE,
    Names,
    compaction_name,
    message_documents,
    title_document,
    title_name,
)
from burnd.search.index import SearchIndex
from burnd.tokens.words import SearchWords, search_words

_SESSIONS_REMEMBERED: Final = 64
_TITLE: Final = "title"
_NOTED: Final = 1000  # sessions in progress that are suspects after a crash
_READ_AT_ONCE: Final = 32  # records whose large contents may be in memory together


class RecentWords:
    """The words of records that were just written. Reading them back would add half of tantivy's CPU time.

    The event loop adds and drops; worker threads read copies.
    """

    MUCH: Final = 8 << 20  # characters at which recording waits a little
    MOST: Final = 24 << 20  # characters beyond which records are read back

    def __init__(self) -> None:
        self._placed: dict[str, list[Placed]] = {}  # by session, in the order of its sidecar
        self._sizes: dict[str, int] = {}
        self.size = 0  # characters

    def add(self, placed: Sequence[Placed]) -> None:
        if self.size > self.MOST:
            return
        for session_id, items in groupby(placed, key=_session):
            some = list(items)
            self._placed.setdefault(session_id, []).extend(some)
            self._resize(session_id, self._sizes.get(session_id, 0) + _characters(some))

    def between(self, session_id: str, start: int, stop: int) -> list[Placed]:
        """The records of a session from `start` on, up to the first one missing or beyond `stop`."""
        items = self._placed.get(session_id, ())
        found: list[Placed] = []
        for item in items[bisect_left(items, start, key=_begin) :]:
            if item.position != start or start + item.length > stop:
                break
            found.append(item)
            start += item.length
        return found

    def drop(self, session_id: str, end: int) -> None:
        items = self._placed.pop(session_id, [])
        left = items[bisect_left(items, end, key=_begin) :]
        if left:
            self._placed[session_id] = left
        self._resize(session_id, _characters(left))

    def drop_sessions(self, session_ids: set[str]) -> None:
        """Drops sessions whose content was erased, since later records have the same positions."""
        for session_id in session_ids:
            if self._placed.pop(session_id, None) is not None:
                self._resize(session_id, 0)

    def _resize(self, session_id: str, size: int) -> None:
        self.size += size - self._sizes.pop(session_id, 0)
        if size:
            self._sizes[session_id] = size

    def clear(self) -> None:
        self._placed.clear()
        self._sizes.clear()
        self.size = 0


def _begin(item: Placed) -> int:
    return item.position


def _session(item: Placed) -> str:
    return item.label.session_id


def _characters(items: Sequence[Placed]) -> int:
    return sum([len(search.words[0]) for item in items if (search := item.search) is not None and search.words])


class IndexFiller:
    """Fills one index. `due` are the sessions that it is behind with, `fillers` all that share the guard's note."""

    def __init__(self, index: SearchIndex, guard: InProcessGuard, fillers: list[IndexFiller]) -> None:
        self.index = index
        self.due: list[str] = []
        self._guard = guard
        self._fillers = fillers
        fillers.append(self)
        self._in_progress: dict[str, bool] = {}  # uncommitted sessions, and whether each is complete
        self._names: OrderedDict[str, Names] = OrderedDict()

    def needs_calls(self, session_id: str) -> bool:
        return session_id not in self._names

    def take_all(self, plans: Sequence[SessionPlan], recall: Recall) -> None:
        """Indexes plans. A session that crashed an earlier process is committed alone."""
        plans = [plan for plan in plans if not self._skips(plan)]
        names = self._guard.suspects()
        suspects = [[plan] for plan in plans if plan.session.session_id in names]
        others = [plan for plan in plans if plan.session.session_id not in names]
        for some in filter(None, (*suspects, others)):
            self.begin([plan.session.session_id for plan in some])
            for plan in some:
                self._take(plan, recall)
                self._in_progress[plan.session.session_id] = plan.is_last

    def retry(self, session_id: str) -> None:
        self.index.set_coverage(session_id, NO_COVERAGE)
        self.due = list(dict.fromkeys([*self.due, session_id]))

    def _skips(self, plan: SessionPlan) -> bool:
        """Whether the guard skips a session. Its pruned words go when the index is rebuilt without it."""
        session_id = plan.session.session_id
        if WHOLE not in self._guard.skipped(session_id):
            return False
        self.index.has_erased = self.index.has_erased or plan.erases
        self.index.set_coverage(session_id, plan.session.coverage)
        return True

    def begin(self, session_ids: Sequence[str]) -> None:
        """Notes the sessions in progress. Before and after a suspect, all others are committed."""
        if not self._guard.suspects().isdisjoint(chain(session_ids, *(one._in_progress for one in self._fillers))):
            for filler in self._fillers:
                if filler._in_progress:
                    filler.commit()
        self._in_progress |= dict.fromkeys(session_ids, False)
        self._note()

    def _note(self) -> None:
        in_progress = [[*filler._in_progress][-_NOTED:] for filler in self._fillers]
        self._guard.set_in_progress([*dict.fromkeys(chain.from_iterable(in_progress))])

    def _take(self, plan: SessionPlan, recall: Recall) -> None:
        """Indexes a plan. Content that cannot be read was pruned meanwhile, which a later plan handles."""
        session_id = plan.session.session_id
        skipped = self._guard.skipped(session_id)
        # An item that was committed alone is in the index before the coverage counts it.
        is_uncertain = bool(skipped) or session_id in self._guard.suspects()
        is_in_index = plan.before.covered == 0 and self.index.has(session_id)
        if plan.is_fresh or is_in_index:
            self.index.remove_session(session_id)
            self.index.has_erased = self.index.has_erased or plan.erases or (plan.is_fresh and is_in_index)
        if (plan.is_fresh or is_in_index or plan.before.title != plan.after.title) and _TITLE not in skipped:
            with self._guarded(session_id, _TITLE):
                self._add_title(plan)
        names = self._names_of(plan)
        messages = [message for message in plan.messages if not skipped or _name(message) not in skipped]
        # One document of a commit has the coverage. Items are committed one by one: their session is read again.
        coverage = plan.after._replace(title=0) if not self._guard.takes_items(session_id) else None
        for message, words in self._read(session_id, messages, recall):
            if message.is_indexed or is_uncertain:
                self.index.remove(message.name)
                self.index.remove(compaction_name(message.name))
            for document in message_documents(message.name, words, names):
                self.index.add(document, coverage)
                coverage = None
        self.index.set_coverage(session_id, plan.after)

    def _read(
        self, session_id: str, messages: Sequence[PendingMessage], recall: Recall
    ) -> Iterator[tuple[PendingMessage, Sequence[SearchWords]]]:
        if not self._guard.takes_items(session_id):
            yield from _read(session_id, messages, recall)
            return
        for message in messages:
            with self._guarded(session_id, _name(message)):
                yield from _read(session_id, [message], recall)

    @contextlib.contextmanager
    def _guarded(self, session_id: str, item: str) -> Iterator[None]:
        if not self._guard.takes_items(session_id):
            yield
            return
        with self._guard.item(session_id, item):
            yield
            self.index.commit()

    def _add_title(self, plan: SessionPlan) -> None:
        session = plan.session
        self.index.remove(title_name(session.session_id))
        document = title_document(session.session_id, session.title, session.summary, session.updated_at)
        if document is not None:
            self.index.add(document, plan.after._replace(covered=0))

    def _names_of(self, plan: SessionPlan) -> Names:
        session_id = plan.session.session_id
        names = self._names.get(session_id)
        if names is None:
            names = self._names[session_id] = Names(plan.calls)
            while len(self._names) > _SESSIONS_REMEMBERED:
                self._names.popitem(last=False)
        self._names.move_to_end(session_id)
        return names

    def commit(self) -> None:
        self.index.commit()
        for session_id, is_complete in self._in_progress.items():
            if is_complete:
                self._guard.clear(session_id)
        self._in_progress.clear()
        self._note()

    def close_writer(self) -> None:
        self.index.close_writer()
        self._in_progress.clear()
        self._note()

    def retire(self) -> None:
        self.close_writer()
        self._fillers.remove(self)


def _name(message: PendingMessage) -> str:
    return f"{message.name.rail} {message.name.message_id}".strip()


def _read(
    session_id: str, messages: Sequence[PendingMessage], recall: Recall
) -> Iterator[tuple[PendingMessage, Sequence[SearchWords]]]:
    missing = [
        Spot(position, length) for message in messages for position, length, words in message.records if words is None
    ]
    pieces = [missing[begin : begin + _READ_AT_ONCE] for begin in range(0, len(missing), _READ_AT_ONCE)]
    read = chain.from_iterable(recall.records((session_id, piece) for piece in pieces))
    for message in messages:
        every = []
        for _, _, words in message.records:
            if words is not None:
                every.append(words)
            elif (record := next(read)) is not None:
                every.append(search_words(record))
        yield message, every
