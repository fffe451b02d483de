"""Reads logs by the quick passes of all harnesses, in several processes, and merges them into turns billed once."""

from __future__ import annotations

import gc
import multiprocessing
import os
import sqlite3
import sys
from array import array
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from hashlib import blake2b
from importlib import import_module
from itertools import chain, pairwise
from typing import Final, NamedTuple

import msgspec
import zstandard
from msgspec.structs import replace

from burnd.harness.quick_pass import LogTask, LogTotals
from burnd.index.rows import TurnRow
from burnd.ledger.journal import identity, outranks
from burnd.logfiles.scanner import Refused
from burnd.recording.candidate import Candidate, billed_turn, turn_of
from burnd.recording.dedupe import overhead_size
from burnd.recording.ownership import (
    Decision,
    Partings,
    SharedMessage,
    break_tie,
    copied_rows,
    copy_of,
    decide,
    is_contested,
    shared_message,
)
from burnd.recording.projects import ProjectKeys
from burnd.records import Compaction, Copy, Overhead, Request, Session, Turn
from burnd.records.codec import Entry, bounded_turn
from burnd.records.content import MAIN
from burnd.records.times import index_ms

_MOST_PROCESSES: Final = 4
_CHUNKS: Final = 128  # of logs per process: each takes a message there and back
_HASH_BYTES: Final = 8
_SMALL_BYTES: Final = 8 << 20  # as quickly read here as in processes that must be started first


class PackedLog(NamedTuple):
    """A log's addition, compressed: two gigabytes of logs take some tens of megabytes.

    `candidates` are needed only for messages that other logs have, by `hashes`.
    """

    facts: bytes
    groups: bytes
    candidates: bytes
    hashes: bytes


@contextmanager
def log_contents(
    tasks: Sequence[LogTask], processes: int | None = None
) -> Iterator[Iterator[tuple[int, list[PackedLog]]]]:
    """Reads logs in several processes: the size of each with its content, in any order.

    A log that cannot be read, as the full read could not, has no content.
    """
    count = min(processes or os.cpu_count() or 1, _MOST_PROCESSES, len(tasks))
    if count < 2 or sum(task.size for task in tasks) < _SMALL_BYTES:
        yield map(read_packed, tasks)
        return
    # Forking spares each child the imports; on macOS a forked child may crash in system libraries.
    context = multiprocessing.get_context("fork" if sys.platform == "linux" else "spawn")
    with context.Pool(count, initializer=gc.disable) as pool:
        largest_first = sorted(tasks, key=lambda task: -task.size)  # so that all end at the same time
        yield pool.imap_unordered(read_packed, largest_first, chunksize=1 + len(tasks) // (count * _CHUNKS))


def read_packed(task: LogTask) -> tuple[int, list[PackedLog]]:
    """The size of a log, and what it adds. Its reader is a cycle, freed here: the collector is off in a worker.

    Of 800 MB of logs a worker had 97 MB without this, 27 MB with it.
    """
    try:
        logs: list[LogTotals] = import_module(task.module).read_logs(task)
        return task.size, [_packed(log) for log in logs]
    except (Refused, OSError, sqlite3.Error):
        return task.size, []
    finally:
        gc.collect(0)


def _packed(log: LogTotals) -> PackedLog:
    by_kind: dict[tuple[object, ...], tuple[list[Candidate], list[TurnRow]]] = {}
    for one in log.candidates:
        place = (one.session_id, one.rail_id, one.project, one.project_key, one.git_branch)
        terms = (one.model, one.provider, one.speed, one.service_tier, one.inference_geo)
        key = (place, terms, None if one.stated_usd is None else one.message_id)
        group = by_kind.get(key)
        if group is None:
            group = by_kind[key] = [], []
        group[0].append(one)
        group[1].append(_row(one, _searches(one)))
    candidates = [one for group, _ in by_kind.values() for one in group]
    groups = [(group[0], rows) for group, rows in by_kind.values()]
    hashes = b"".join(map(_hash, candidates))
    log.candidates = []
    return PackedLog(_encode(log), _compress(_encode(groups)), _compress(_encode(candidates)), hashes)


def _searches(one: Candidate) -> int:
    """The billed searches; most messages have none, and the turn is not made for these."""
    return billed_turn(one).searches if one.server_tools is not None or one.calls else 0


def _row(one: Candidate | Turn, searches: int) -> TurnRow:
    usage, tools = one.usage, one.server_tools
    return (
        one.message_id,
        one.turn_index,
        index_ms(one.ts),
        usage.input,
        usage.output,
        usage.reasoning,
        usage.cache_read,
        usage.cache_create_5m,
        usage.cache_create_1h,
        searches,
        tools.fetch if tools is not None else 0,
        one.quality,
    )


def _hash(candidate: Candidate) -> bytes:
    """Equal for what may be one message, in every process: the same id, or rows of the same time and model.

    The end of an id is random; messages whose ids end alike are compared when they are decided.
    """
    if candidate.is_row:
        own = f"{candidate.source} {candidate.ts} {candidate.model}".encode("utf-8", "surrogatepass")
        return blake2b(own, digest_size=_HASH_BYTES).digest()
    return candidate.message_id[-_HASH_BYTES:].encode("utf-8", "surrogatepass")[-_HASH_BYTES:].rjust(_HASH_BYTES)


_compress: Final = zstandard.ZstdCompressor(1).compress
_encode: Final = msgspec.msgpack.Encoder().encode
_facts: Final = msgspec.msgpack.Decoder(LogTotals)
_groups: Final = msgspec.msgpack.Decoder(list[tuple[Candidate, list[TurnRow]]])
_raws: Final = msgspec.msgpack.Decoder(list[msgspec.Raw])
_candidate: Final = msgspec.msgpack.Decoder(Candidate)


class QuickPass:
    """Merges logs in any order, each message once. To be used in the order of its methods.

    A message that one log alone has is that log's, others go through `recording.ownership`. Messages come in numbered
    groups on one rail that share model, place and terms.
    """

    def __init__(self) -> None:
        self.copies: list[Copy] = []
        self._groups: list[Candidate | Turn] = []
        self._packed: list[PackedLog] = []
        self._shared: set[int] = set()  # hashes of messages that several logs have, and of rows that may be copies
        self._sessions: dict[str, Session] = {}
        self._facts: dict[tuple[str, ...], Overhead | Request | Compaction] = {}
        self._beside: list[Request] = []
        self._folders: set[str] = set()
        self._without_keys: set[str] = set()
        self._keys = ProjectKeys()

    def add(self, log: PackedLog) -> Iterator[tuple[int, list[TurnRow]]]:
        """Adds what one log has; yields the rows of its groups, in the order of its hashes."""
        self._learn(_facts.decode(log.facts), has_turns=bool(log.hashes))
        self._packed.append(log._replace(facts=b"", groups=b""))
        for candidate, rows in _groups.decode(zstandard.decompress(log.groups)):
            self._groups.append(candidate)
            yield len(self._groups) - 1, rows

    def contested_rows(self) -> Iterator[int]:
        """The positions, among all rows that `add` yielded, of messages that several logs have."""
        hashes = sorted(chain.from_iterable([array("q", log.hashes) for log in self._packed]))
        self._shared = {one for one, following in pairwise(hashes) if one == following}
        if self._shared:
            every = chain.from_iterable([array("q", log.hashes) for log in self._packed])
            yield from (row for row, key in enumerate(every) if key in self._shared)

    def facts(self) -> list[Entry]:
        """The sessions, and evidence of usage that no log has. Finds the projects of all folders."""
        self._keys.learn(sorted(self._folders))
        for name in self._without_keys:
            session = self._sessions[name]
            if session.project is not None:
                self._sessions[name] = replace(session, project_key=self._keys.key(session.project))
        self._add_facts([one for one in self._beside if one.session_id in self._sessions])
        facts = [fact for fact in self._facts.values() if not isinstance(fact, Request) or not fact.withdrawn]
        return [*self._sessions.values(), *facts]

    def decide(self, first_times: Mapping[int, int]) -> Iterator[tuple[int, list[TurnRow]]]:
        """Every contested message as its owner has it, each a group; `first_times` are those of the other groups."""
        contested: dict[int, list[Candidate]] = defaultdict(list)
        while self._shared and self._packed:
            log = self._packed.pop()
            hashes = array("q", log.hashes)
            if self._shared.isdisjoint(hashes):
                continue
            for data, key in zip(_raws.decode(zstandard.decompress(log.candidates)), hashes, strict=True):
                if key in self._shared:
                    contested[key].append(self._in_project(_candidate.decode(data)))
        first_own: dict[str, int] = {}
        for group, at in first_times.items():
            if (one := self._groups[group]).rail_id == MAIN:
                first_own[one.session_id] = min(first_own.get(one.session_id, at), at)
        for candidates in contested.values():
            yield from self._decide_rows([one for one in candidates if one.is_row])
        yield from self._decide_lines([one for some in contested.values() for one in some if not one.is_row], first_own)

    def turns(self) -> Iterator[tuple[int, Turn]]:
        """The turn of each group: what its messages have in common, without a label."""
        for group, one in enumerate(self._groups):
            yield group, bounded_turn(billed_turn(self._in_project(one)) if isinstance(one, Candidate) else one)

    def _learn(self, log: LogTotals, *, has_turns: bool) -> None:
        if log.folder is not None:
            self._folders.add(log.folder)
        records = log.sessions
        if not records and log.session_id is not None and has_turns:
            records = [Session(session_id=log.session_id, source=log.source, project=log.project)]
        for record in records:
            before, project = self._sessions.get(record.session_id), record.project
            # If two logs of a session began in different folders, the first in alphabetical order counts.
            is_first = project is not None and (before is None or before.project is None or project < before.project)
            if before is None or is_first:
                self._sessions[record.session_id] = record
            if project is not None and log.needs_keys:
                self._folders.add(project)
                self._without_keys.add(record.session_id)
        for overhead in log.overheads:
            largest = self._facts.get(identity(overhead))
            if not isinstance(largest, Overhead) or overhead_size(largest) < overhead_size(overhead):
                self._facts[identity(overhead)] = overhead
        if log.session_id is None and not log.sessions:  # a file beside logs, which may name sessions without one
            self._beside += log.requests
        else:
            self._add_facts([*log.requests, *log.compactions])

    def _add_facts(self, facts: Sequence[Request | Compaction]) -> None:
        for fact in facts:
            old = self._facts.get(identity(fact))
            if old is None or not outranks(old, fact):
                self._facts[identity(fact)] = fact

    def _in_project(self, candidate: Candidate) -> Candidate:
        """An agent, and a log without a folder, takes the project of its session."""
        if candidate.rail_id != MAIN or candidate.project is None:
            session = self._sessions.get(candidate.session_id)
            if session is not None and session.project is not None:
                candidate.project, candidate.project_key = session.project, session.project_key
        if candidate.project_key is None and candidate.project is not None:
            candidate.project_key = self._keys.key(candidate.project)
        return candidate

    def _decide_rows(self, candidates: Sequence[Candidate]) -> Iterator[tuple[int, list[TurnRow]]]:
        """Rows of databases that may be copies of each other."""
        turns = [turn_of(candidate) for candidate in candidates]
        copies = {(turn.source, turn.message_id) for turn, _ in copied_rows(turns)}
        for turn in turns:
            if (turn.source, turn.message_id) in copies:
                self.copies.append(copy_of(turn))
            else:
                yield self._alone(turn)

    def _decide_lines(
        self, candidates: Iterable[Candidate], first_own: dict[str, int]
    ) -> Iterator[tuple[int, list[TurnRow]]]:
        """Messages that several logs have, by the claims of their holders."""
        decisions: dict[tuple[str, str], Decision] = {}
        by_holder: dict[tuple[str, tuple[str, str]], Candidate] = {}
        for candidate in candidates:
            key = (candidate.source, candidate.message_id)
            decisions[key] = decide(decisions.get(key), candidate, by_name=candidate.rail_id != MAIN)
            by_holder[candidate.message_id, candidate.holder] = candidate
        shared = [SharedMessage(at, frozenset({session})) for session, at in first_own.items()]
        shared += map(shared_message, decisions.values())
        partings = Partings(shared)
        for decision in decisions.values():
            if is_contested(decision):
                decision = break_tie(decision, partings, by_holder)
            turn = decision.turn
            if turn.project_key is None and turn.project is not None:
                turn = replace(turn, project_key=self._keys.key(turn.project))
            yield self._alone(turn)
            self.copies += decision.copies

    def _alone(self, turn: Turn) -> tuple[int, list[TurnRow]]:
        """A group of one turn, without a label: its calls and prompt were not read."""
        plain = replace(turn, activity=None, retries=None, has_edits=None, prompt_retries=None, basis=None)
        self._groups.append(plain)
        return len(self._groups) - 1, [_row(plain, plain.searches)]
