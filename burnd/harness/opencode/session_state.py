"""A session of opencode's that is being followed: what its messages said last, which of them have settled, what is new.

It does no I/O. Rows are handed to it as they were read, in any number of readings; what comes out in the end depends
only on the rows, not on when they were seen.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec

from burnd.harness.opencode.content import title_of
from burnd.harness.opencode.cursor import Marker, Seen, digest_of
from burnd.harness.opencode.queries import RowVersion
from burnd.harness.opencode.rows import Unusable
from burnd.harness.opencode.said import Said
from burnd.harness.opencode.session import Place, Step, Walked, is_older, session_record, walk
from burnd.index.change import AgentRow, ToldBy
from burnd.recording.batch import Told
from burnd.records import Content, Session, Turn
from burnd.records.content import MAIN
from burnd.records.times import to_iso

QUIET_S = 2.0
IDLE_S = 600.0


class ReadMessage(NamedTuple):
    """A message as it was just read: its facts, its content, its unusable rows, and a hash of its bytes."""

    version: RowVersion
    said: Said
    content: list[Content]
    unused: tuple[Unusable, ...]
    digest: int
    quiet_since: float


class DatabasePiece(msgspec.Struct):
    """What is to be recorded together, and how far it brings the reading."""

    steps: list[Told] = []
    content: list[Content] = []
    sessions: list[Session] = []
    agents: list[AgentRow] = []
    seen: dict[str, Seen | None] = {}
    made_at: dict[tuple[str, str], int] = {}  # of messages with content, by session and message
    copied: set[tuple[str, str]] = set()  # those of them that a fork repeats
    marker: Marker | None = None
    size: int = 0

    def add(self, other: DatabasePiece) -> None:
        self.steps += other.steps
        self.content += other.content
        self.sessions += other.sessions
        self.agents += other.agents
        self.seen |= other.seen
        self.made_at |= other.made_at
        self.copied |= other.copied


class Message:
    """One message: what it said when it was last read, the walk behind it, and what was given away of it."""

    __slots__ = ("content", "digest", "quiet_since", "said", "settled", "step", "told", "unused", "version", "walked")

    def __init__(self, heard: ReadMessage) -> None:
        self.version, self.said, self.digest = heard.version, heard.said, heard.digest
        self.content: list[Content] | None = heard.content
        self.unused = heard.unused
        self.quiet_since = heard.quiet_since
        self.settled = False
        self.walked = Walked()
        self.step: Step | None = None
        self.told: tuple[Turn, bool] | None = None

    def hear(self, heard: ReadMessage, now: float) -> bool:
        """Takes in a newer reading; whether it says anything else than the last one."""
        self.version = heard.version
        if heard.digest == self.digest:
            return False
        self.said, self.digest, self.content, self.unused = heard.said, heard.digest, heard.content, heard.unused
        self.quiet_since, self.settled = now, False
        return True


class SessionState:
    """The messages of one session in its order. Used by one thread at a time."""

    def __init__(self, place: Place, path: str, *, known: bool = False) -> None:
        self.place = place
        self.path = path
        self.known = known  # what it holds was there before: its rows' own times tell how long they were quiet
        self.messages: list[Message] = []
        self.elsewhere: frozenset[str] | None = None  # ids that another database tells of; None: it knows it not
        self.read_as = (0, -1)  # the digest of its row and its number in the event log, when it was last read
        self.partly_read = False
        self._by_id: dict[str, Message] = {}
        self._there: frozenset[str] = frozenset()
        self._walk_from = 0
        self._tell_from = 0
        self._title: Content | None = None
        self._session: Session | None = None
        self._children: dict[str, tuple[str, int]] = {}
        self._left: list[Content] = []

    def unchanged(self, message_id: str, digest: int) -> Said | None:
        """What a message said, if that still stands in its row."""
        message = self._by_id.get(message_id)
        return message.said if message is not None and message.digest == digest else None

    @property
    def has_sequence(self) -> bool:
        """Whether its event log tells of every change."""
        return self.read_as[1] >= 0

    @property
    def pending(self) -> list[str]:
        """The messages that may still change, or were not given away yet because of one before them."""
        return [message.said.id for message in self.messages[self._tell_from :] if not message.settled]

    @property
    def unfinished(self) -> tuple[tuple[str, int, int], ...]:
        """The answers that opencode never finished, or whose calls it never answered, as they were last read."""
        left = [message.version for message in self.messages if message.said.is_unfinished]
        return tuple((version.id, version.updated, version.digest) for version in left)

    @property
    def unused(self) -> list[Unusable]:
        """The rows that could not be used, or only in part."""
        return [row for message in self.messages for row in message.unused]

    @property
    def versions_digest(self) -> int:
        return digest_of(message.version.digest for message in self.messages)

    def changed_among(self, versions: Sequence[RowVersion]) -> list[str]:
        """Which of these messages must be read: new ones, changed ones, and all that have not settled."""
        return [version.id for version in versions if self._must_be_read(version)]

    def move(self, place: Place) -> None:
        """The session's row says something else now."""
        if place != self.place:
            self.place = place
            self._walk_from = self._tell_from = 0

    def take(self, order: Sequence[str], heard: Mapping[str, ReadMessage], now: float) -> None:
        """Takes in the session's order, of what has been read so far, and the messages just read."""
        messages, changed = [], set()
        self._there = frozenset(order)
        for message_id in order:
            message = self._by_id.get(message_id)
            if message is None and message_id in heard:
                message = Message(heard[message_id])
                changed.add(message_id)
            elif message is not None and message_id in heard and message.hear(heard[message_id], now):
                changed.add(message_id)
            if message is not None:
                messages.append(message)
        self._settle_order(messages, changed)

    def news(self, now: float, *, flush: bool = False) -> tuple[DatabasePiece, float | None]:
        """What has changed since the last time, with all that is quiet by now settled; and when more settles."""
        self._walk()
        steps: list[Told] = []
        content, self._left = self._left, []
        last_answer = self._last_answer()
        due: list[float] = []
        in_order = True
        made_at: dict[tuple[str, str], int] = {}
        copied: set[tuple[str, str]] = set()
        first_open = len(self.messages)
        for n in range(self._tell_from, len(self.messages)):
            message = self.messages[n]
            settles = self._settles(message, n < last_answer, n < len(self.messages) - 1)
            message.settled = message.settled or flush or now >= settles
            steps += self._told(message)
            if not message.settled:
                due.append(settles)
                first_open = min(first_open, n)
            in_order = in_order and message.settled
            if in_order and message.content is not None:
                content += message.content if self._is_ours(message.said.id) else []
                name = (self.place.session.id, message.said.id)
                made_at[name] = message.said.created
                copied |= {name} if is_older(self.place, message.said) else set()
                message.content = None
        self._tell_from = first_open
        about, title = self._about()
        piece = DatabasePiece(steps=steps, content=title + content, sessions=about, agents=self._agents())
        piece.made_at, piece.copied = made_at, copied
        return piece, min(due, default=None)

    def orphans(self, shown: Mapping[str, Turn]) -> list[Told]:
        """Turns shown as open whose rows are gone: what was seen of them stands."""
        own = self.place.session.id
        gone = [turn for name, turn in shown.items() if turn.session_id == own and name not in self._there]
        return [Told(turn, True, self.path) for turn in gone]

    def _must_be_read(self, version: RowVersion) -> bool:
        message = self._by_id.get(version.id)
        if message is None or not message.settled:
            return True
        known = message.version
        return version.updated != known.updated or (version.digest not in (0, known.digest))

    def _settle_order(self, messages: list[Message], changed: set[str]) -> None:
        """Finds out from where on the walk must be made again."""
        old = self.messages
        same = 0
        for before, after in zip(old, messages, strict=False):
            if before is not after or after.said.id in changed:
                break
            same += 1
        if len(messages) != len(old) or same < len(old):
            self._walk_from = min(self._walk_from, same)
            self._tell_from = min(self._tell_from, same)
        self.messages = messages
        by_id = {message.said.id: message for message in messages}
        for name, message in self._by_id.items():
            if name not in by_id and message.content is not None and self._is_ours(name):
                self._left += message.content
        self._by_id = by_id

    def _walk(self) -> None:
        walked = self.messages[self._walk_from - 1].walked if self._walk_from else Walked()
        for message in self.messages[self._walk_from :]:
            walked, message.step = walk(self.place, walked, message.said)
            message.walked = walked
        self._walk_from = len(self.messages)

    def _last_answer(self) -> int:
        backwards = range(len(self.messages) - 1, -1, -1)
        return next((n for n in backwards if self.messages[n].said.answered is not None), -1)

    def _settles(self, message: Message, superseded: bool, followed: bool) -> float:
        """When a message counts as settled if nothing changes.

        An answer that is complete, or after which another one began, needs a moment more: parts and errors may
        follow. So does a prompt, whose text is written after its row. Otherwise only a long silence tells.
        """
        over = superseded if message.said.answered is not None else followed
        return message.quiet_since + (QUIET_S if message.said.is_complete or over else IDLE_S)

    def _told(self, message: Message) -> list[Told]:
        if message.step is None or not self._is_ours(message.said.id):
            return []
        turn, told = message.step.turn, message.told
        if told is not None and told[0] == turn and (told[1] or not message.settled):
            return []
        message.told = (turn, message.settled)
        there = self._there if self.elsewhere is None else None
        return [Told(turn, message.settled, self.path, message.step.beside if message.settled else (), there)]

    def _is_ours(self, message_id: str) -> bool:
        return self.elsewhere is None or message_id not in self.elsewhere

    def _about(self) -> tuple[list[Session], list[Content]]:
        """The session's own record and title, where they say something new. One without a message is none yet."""
        if self.elsewhere is not None or not self.messages:
            return [], []
        agent = next((message.said.agent for message in self.messages if message.said.agent), None)
        record, title = session_record(self.place, agent), title_of(self.place.session)
        if is_older(self.place, self.messages[0].said) and not any(message.step for message in self.messages):
            title = None  # a fork's title repeats another's: wait for its first step, which shows the origin
        sessions = [record] if record != self._session else []
        titles = [title] if title is not None and title != self._title else []
        self._session, self._title = record, title
        return sessions, titles

    def _agents(self) -> list[AgentRow]:
        """Which of its calls started which session: the first that names it."""
        children: dict[str, tuple[str, int]] = {}
        for message in self.messages:
            for call, child in message.said.answered.children if message.said.answered is not None else ():
                children.setdefault(child, (call, message.said.created))
        news = [(child, *told) for child, told in children.items() if self._children.get(child) != told]
        self._children = children
        return [AgentRow(child, MAIN, ToldBy.RESULT, call, to_iso(ms), None, None) for child, call, ms in news]
