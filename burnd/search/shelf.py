"""One index and how far it has come: takes in what a plan says, and knows what a commit would make durable."""

from __future__ import annotations

import contextlib
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Final

from burnd.content.recall import Recall, Spot
from burnd.recording.crash_guard import WHOLE, InProcessGuard
from burnd.search.documents import Names, compaction_place, message_documents, title_document, title_place
from burnd.search.engine import Engine
from burnd.search.progress import NOTHING, Current, Message, Plan, Progress
from burnd.search.warm import Warm
from burnd.tokens.record_words import SearchWords, search_words

_SESSIONS_REMEMBERED: Final = 64
_TITLE: Final = "title"
_NOTED: Final = 1000  # sessions in progress that are suspects after a crash
_READ_AT_ONCE: Final = 32  # records of which the large contents may be in memory together


class Shelf:
    """An index being filled. Its methods block, and are called by one thread at a time.

    `shelves` are all that are being filled, each of them enters itself: there is one note on what is in hand.
    """

    def __init__(
        self,
        engine: Engine,
        progress: Mapping[str, Progress],
        guard: InProcessGuard,
        shelves: list[Shelf],
        *,
        told: int | None = None,
        stained: bool = False,
    ) -> None:
        self.engine = engine
        self._guard = guard
        self._shelves = shelves
        shelves.append(self)
        self._in_hand: dict[str, bool] = {}  # what tantivy's own threads may be at work on: is it a whole session?
        self.progress = dict(progress)  # with what is not committed yet
        self.stained = stained  # words that were pruned may still be in its files
        self.due: list[str] = []  # sessions to look at
        self.moved: set[str] = set()  # sessions whose progress is not durable yet
        self.is_ahead = told is not None  # its last commit holds more than was said of it, which was up to this one
        self.doubtful: set[str] = set()  # sessions of which it may hold more: adding must take out first
        self._certain = told or 0  # the last commit of which nothing is in doubt
        self._names: OrderedDict[str, Names] = OrderedDict()

    @property
    def name(self) -> str:
        return self.engine.folder.name

    def needs_calls(self, session_id: str) -> bool:
        """Whether the session's calls are to be looked up: which tool each was of."""
        return session_id not in self._names

    def take_all(self, plans: Sequence[Plan], recall: Recall, warm: Warm | None) -> None:
        """Does what the plans say; a session that an earlier process crashed over is committed by itself."""
        plans = [plan for plan in plans if not self._skips(plan)]
        names = self._guard.suspects()
        suspects = [[plan] for plan in plans if plan.standing.session_id in names]
        others = [plan for plan in plans if plan.standing.session_id not in names]
        for some in filter(None, (*suspects, others)):
            self._pick_up([plan.standing.session_id for plan in some])
            for plan in some:
                self._take(plan, recall, warm)
                self._in_hand[plan.standing.session_id] = plan.after == plan.standing.aim

    def retry(self, session_id: str) -> None:
        """Plans to index a session again, of which something was skipped."""
        self.doubtful.add(session_id)
        self._note(session_id, NOTHING)
        self.due.append(session_id)

    def _skips(self, plan: Plan) -> bool:
        """Whether a session must not be touched. Pruned words of it go when the index is rebuilt without it."""
        session_id = plan.standing.session_id
        if WHOLE not in self._guard.skipped(session_id):
            return False
        self.stained = self.stained or _prunes(plan)
        self.doubtful.discard(session_id)
        self._note(session_id, plan.standing.aim)
        return True

    def _pick_up(self, session_ids: Sequence[str]) -> None:
        """Notes the sessions in progress. A suspect is in progress alone: what was before it is committed first."""
        if not self._guard.suspects().isdisjoint(chain(session_ids, *(shelf._in_hand for shelf in self._shelves))):
            for shelf in self._shelves:
                if shelf._in_hand:
                    shelf._commit()
        self._in_hand |= dict.fromkeys(session_ids, False)
        self._note_hands()

    def _note_hands(self) -> None:
        """Notes the sessions in progress here and on the other shelves."""
        in_hand = [[*shelf._in_hand][-_NOTED:] for shelf in self._shelves]
        self._guard.set_in_progress([*dict.fromkeys(chain.from_iterable(in_hand))])

    def _take(self, plan: Plan, recall: Recall, warm: Warm | None) -> None:
        """Does what a plan says. What cannot be read any more was pruned meanwhile, and a next plan will say so."""
        session_id = plan.standing.session_id
        if plan.anew:
            self.engine.remove_session(session_id)
            self.stained = self.stained or _prunes(plan)
        is_renamed = plan.anew or plan.before.title != plan.after.title
        if is_renamed and _TITLE not in self._guard.skipped(session_id):
            with self._guarded(session_id, _TITLE):
                self._retitle(plan)
        names = self._names_of(plan)
        doubtful = session_id in self.doubtful
        for message, words in self._read(session_id, plan.messages, recall, warm):
            if message.grown or doubtful:
                self.engine.remove(message.place)
                self.engine.remove(compaction_place(message.place))
            self._add(message, words, names)
        if plan.after == plan.standing.aim:
            self.doubtful.discard(session_id)
        self._note(session_id, plan.after)

    def put_down(self) -> None:
        """Nothing of it is in hand any more; what was not committed is taken in again."""
        self.engine.rest()
        self._in_hand.clear()
        self._note_hands()

    def retire(self) -> None:
        """Another has taken its place."""
        self.put_down()
        self._shelves.remove(self)

    def commit(self) -> Current:
        """Makes what was taken in findable and durable.

        While some sessions are in doubt, an older commit is told of: a crash must not make them certain.
        """
        number = self._commit()
        if not self.doubtful:
            self._certain = number
        return Current(folder=self.name, commit=self._certain, stained=self.stained)

    def _commit(self) -> int:
        number = self.engine.commit()
        for session_id, is_whole in self._in_hand.items():
            if is_whole:
                self._guard.clear(session_id)  # it is on the disk, without a crash
        self._in_hand.clear()
        self._note_hands()
        return number

    def _read(
        self, session_id: str, messages: Sequence[Message], recall: Recall, warm: Warm | None
    ) -> Iterator[tuple[Message, list[SearchWords]]]:
        """The messages with their words, without those that are skipped."""
        at_hand = warm.words(session_id) if warm is not None else {}
        skipped = self._guard.skipped(session_id)
        messages = [message for message in messages if not skipped or _name(message) not in skipped]
        if not self._guard.takes_items(session_id):
            yield from _read(session_id, messages, recall, at_hand)
            return
        for message in messages:
            with self._guarded(session_id, _name(message)):
                yield from _read(session_id, [message], recall, at_hand)

    @contextlib.contextmanager
    def _guarded(self, session_id: str, item: str) -> Iterator[None]:
        """Commits one item of a session by itself, if that is taken item by item."""
        if not self._guard.takes_items(session_id):
            yield
            return
        with self._guard.item(session_id, item):
            yield
            self.engine.commit()

    def _note(self, session_id: str, after: Progress) -> None:
        self.moved.add(session_id)
        if after == NOTHING:
            self.progress.pop(session_id, None)
        else:
            self.progress[session_id] = after

    def _retitle(self, plan: Plan) -> None:
        standing = plan.standing
        self.engine.remove(title_place(standing.session_id))
        document = title_document(standing.session_id, standing.title, standing.summary, standing.updated_at)
        if document is not None:
            self.engine.add(document)

    def _add(self, message: Message, records: Sequence[SearchWords], names: Names) -> None:
        for document in message_documents(message.place, records, names):
            self.engine.add(document)

    def _names_of(self, plan: Plan) -> Names:
        session_id = plan.standing.session_id
        names = self._names.get(session_id)
        if names is None:
            names = self._names[session_id] = Names(plan.calls)
            while len(self._names) > _SESSIONS_REMEMBERED:
                self._names.popitem(last=False)
        self._names.move_to_end(session_id)
        return names


def _name(message: Message) -> str:
    return f"{message.place.rail} {message.place.message_id}".strip()


def _prunes(plan: Plan) -> bool:
    """Whether words that an index holds are to go."""
    return plan.anew and (plan.before.covered > 0 or plan.before.title != 0)


def _read(
    session_id: str, messages: Sequence[Message], recall: Recall, at_hand: Mapping[int, SearchWords]
) -> Iterator[tuple[Message, list[SearchWords]]]:
    """Each message with the words of its records: those at hand, and the others from content."""
    missing = [
        Spot(row.position, row.length) for message in messages for row in message.rows if row.position not in at_hand
    ]
    pieces = [missing[begin : begin + _READ_AT_ONCE] for begin in range(0, len(missing), _READ_AT_ONCE)]
    records = chain.from_iterable(recall.records((session_id, piece) for piece in pieces))
    for message in messages:
        words = []
        for row in message.rows:
            known = at_hand.get(row.position)
            if known is None and (record := next(records)) is not None:
                known = search_words(record)
            if known is not None:
                words.append(known)
        yield message, words
