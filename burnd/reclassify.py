"""Labels made anew from what is kept: the ledger's own calls, and the prompts, commands and errors still in content."""

from __future__ import annotations

import re
import shlex
import sqlite3
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import closing
from functools import lru_cache
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from burnd.classify.activity import Call, Walk, step
from burnd.classify.keywords import prompt_words
from burnd.classify.shell import verb
from burnd.classify.tools import kind
from burnd.harness.registry import PRODUCTS
from burnd.index import build
from burnd.index.keys import read_only
from burnd.ledger.content import ContentStore
from burnd.ledger.journal import Journal
from burnd.recording.candidate import relabelled
from burnd.recording.pipeline import Pipeline
from burnd.records import Content, ToolCall, Turn
from burnd.records.codec import Entry
from burnd.records.times import index_ms

_SESSIONS_AT_HAND = 64  # a ledger keeps the turns of a session close together
_ITERATION = ":iter:"
_WITH_EXIT_CODES = [product for product in PRODUCTS if product.failed_shell]
_COMMANDS = frozenset(tool for product in _WITH_EXIT_CODES for tool in product.tools["shell"].split())
_FAILED = re.compile("|".join(product.failed_shell for product in _WITH_EXIT_CODES))
_PATH_KEYS = ("file_path", "filePath", "notebook_path", "path")
_LONGEST_TARGET = 1024


class Reclassified(NamedTuple):
    """How many turns the ledger says something else of now."""

    turns: int


async def reclassify(
    pipeline: Pipeline, *, force: bool = False, report: build.Progress = build.no_progress
) -> Reclassified:
    """Fills in labels that turns lack, or with `force` makes all of them anew; the ledger is replaced as a whole.

    Done twice it changes nothing the second time. Where live capture saw the same facts it had said the same.
    """
    labels = Labels(pipeline, force=force)
    try:
        return Reclassified(await pipeline.rewrite_ledger(labels.of, report))
    finally:
        labels.close()


class Labels:
    """Turns with their labels. Used by the one writer in its thread, which it opens its connection in."""

    def __init__(self, pipeline: Pipeline, *, force: bool) -> None:
        self._pipeline = pipeline
        self._force = force
        self._index: sqlite3.Connection | None = None
        self._kept = lru_cache(maxsize=_SESSIONS_AT_HAND)(self._read_kept)
        self._walks = lru_cache(maxsize=_SESSIONS_AT_HAND)(self._read_walks)

    def of(self, entry: Entry) -> Entry:
        """The entry itself where there is nothing new to say of it."""
        if not isinstance(entry, Turn) or not (self._force or _lacks_labels(entry)):
            return entry
        turn = self._with_facts(entry)
        fresh = relabelled(turn)
        labelled = replace(
            turn,
            activity=self._chosen(entry.activity, self._activity_of(turn, fresh)),
            retries=self._chosen(entry.retries, fresh.retries),
            has_edits=self._chosen(entry.has_edits, fresh.has_edits),
            prompt_retries=self._prompt_retries(turn),
        )
        return entry if labelled == entry else labelled

    def close(self) -> None:
        if self._index is not None:
            self._index.close()

    def _chosen(self, said: Any, now: Any) -> Any:
        return now if self._force or said is None else said

    def _with_facts(self, turn: Turn) -> Turn:
        """The turn with what content tells of its prompt and its calls, where that is still kept."""
        kept = self._kept(turn.session_id)
        prompt_id = turn.prompt_id
        if prompt_id is None and turn.prompt_retries is None:  # whoever counted retries had looked for the prompt
            prompt_id = kept.last_prompt(turn.rail_id, index_ms(turn.ts))
        words = turn.prompt_words
        if (self._force or not words) and (found := kept.words_of(prompt_id)) is not None:
            words = found
        calls = tuple([self._call(call, kept) for call in turn.tool_calls])
        return replace(turn, prompt_id=prompt_id, prompt_words=words, tool_calls=calls)

    def _call(self, call: ToolCall, kept: Kept) -> ToolCall:
        """A call's own facts are never taken back; only a command, of which the ledger has no more than the verb
        that was seen in it once, is looked at again."""
        what = kind(call.name)
        if what in ("shell", "edit") and (call.target is None or (self._force and what == "shell")):
            call = replace(call, target=kept.target_of(call.id, what) or call.target)
        return call if call.is_error is not None else replace(call, is_error=kept.failed(call))

    def _activity_of(self, turn: Turn, fresh: Turn) -> str | None:
        """A model call within a response that is billed beside it has that response's label."""
        if turn.parent is None or not turn.message_id.startswith(turn.parent + _ITERATION):
            return fresh.activity
        response = self._turn(turn.source, turn.parent)
        labelled = self.of(response) if response is not None else fresh
        return labelled.activity if isinstance(labelled, Turn) else None

    def _prompt_retries(self, turn: Turn) -> int | None:
        """What happened is not judged anew: a count that is known stays."""
        if turn.prompt_retries is not None:
            return turn.prompt_retries
        return self._walks(turn.session_id).get(turn.message_id)

    def _read_kept(self, session_id: str) -> Kept:
        return Kept(self._pipeline.content, session_id)

    def _read_walks(self, session_id: str) -> dict[str, int]:
        """How far the retry walk over its whole prompt had come with each message of a session."""
        kept = self._kept(session_id)
        walks: defaultdict[tuple[str, str], Walk] = defaultdict(Walk)
        reached: dict[str, int] = {}
        for message_id, rail, ts, prompt_id, tool in self._rows(_CALLS_IN_ORDER, (session_id,)):
            prompt = prompt_id or kept.last_prompt(rail, ts)
            if prompt is not None:
                walks[rail, prompt] = step(walks[rail, prompt], [Call(tool)] if tool is not None else ())
                reached[message_id] = walks[rail, prompt].retries
        return reached

    def _turn(self, source: str, message_id: str) -> Turn | None:
        found = self._rows(_PLACE, (source, message_id))
        journal: Journal = self._pipeline.journal
        entry = journal.entry_at(*found[0]) if found and found[0][0] is not None else None
        return entry if isinstance(entry, Turn) else None

    def _rows(self, sql: str, parameters: tuple[Any, ...]) -> list[tuple[Any, ...]]:
        if self._index is None:
            self._index = sqlite3.connect(read_only(self._pipeline.index.path), uri=True, check_same_thread=False)
        with closing(self._index.execute(sql, parameters)) as cursor:
            return cursor.fetchall()


def _lacks_labels(turn: Turn) -> bool:
    return None in (turn.activity, turn.retries, turn.has_edits, turn.prompt_retries)


class _Place(NamedTuple):
    position: int
    length: int


class Kept:
    """What content still tells of one session: where its prompts, its calls' arguments and their results stand."""

    def __init__(self, content: ContentStore, session_id: str) -> None:
        self._content = content
        self._session_id = session_id
        self._prompts: defaultdict[str, dict[tuple[int, int], _Place]] = defaultdict(dict)
        self._uses: dict[str, _Place] = {}
        self._results: dict[str, _Place] = {}
        self._words: dict[str, tuple[str, ...] | None] = {}
        begun: defaultdict[str, dict[str, int]] = defaultdict(dict)
        for record, position, length, *_ in content.stored(session_id):
            self._note(record, _Place(position, length))
            if _is_prompt(record):
                begun[record.rail_id].setdefault(record.message_id, index_ms(record.ts))
        self._on_rail = {rail: sorted((at, name) for name, at in found.items()) for rail, found in begun.items()}

    def _note(self, record: Content, place: _Place) -> None:
        if record.tool_use is not None:
            self._uses[record.tool_use.id] = place
        elif record.tool_result is not None:
            self._results[record.tool_result.tool_use_id] = place
        elif _is_prompt(record):
            self._prompts[record.message_id][record.n, record.b] = place

    def last_prompt(self, rail: str, ts: int) -> str | None:
        """The newest prompt on a rail at that time."""
        prompts = self._on_rail.get(rail, [])
        found = bisect_right(prompts, ts, key=lambda prompt: prompt[0])
        return prompts[found - 1][1] if found else None

    def words_of(self, prompt_id: str | None) -> tuple[str, ...] | None:
        """The word classes of a prompt; None when its text is not kept."""
        if prompt_id is None or prompt_id not in self._prompts:
            return None
        if prompt_id not in self._words:
            places = self._prompts[prompt_id]
            records = self._read(places[key] for key in sorted(places))
            texts = [record.text for record in records]
            whole = [text for text in texts if isinstance(text, str)]
            self._words[prompt_id] = prompt_words("\n".join(whole)) if len(whole) == len(texts) else None
        return self._words[prompt_id]

    def target_of(self, call_id: str, what: str) -> str | None:
        """What a call worked on, from its arguments: a command's verb, or the path of a file."""
        use = self._record(self._uses.get(call_id))
        given = _object(use.tool_use.input) if use is not None and use.tool_use is not None else {}
        if what == "shell":
            command = given.get("command")
            if isinstance(command, list) and all(isinstance(word, str) for word in command):
                command = shlex.join(command)
            return verb(command) if isinstance(command, str) else None
        path = next((given[key] for key in _PATH_KEYS if isinstance(given.get(key), str) and given[key]), None)
        return path[:_LONGEST_TARGET] if path is not None else None

    def failed(self, call: ToolCall) -> bool | None:
        """Whether a call's result tells of failure; None when there is no result."""
        record = self._record(self._results.get(call.id))
        if record is None or record.tool_result is None:
            return None
        result = record.tool_result
        is_marked = bool(result.is_error)
        return is_marked or (call.name in _COMMANDS and _FAILED.match(_first_text(result.content)) is not None)

    def _record(self, place: _Place | None) -> Content | None:
        return None if place is None else next(self._read([place]), None)

    def _read(self, places: Iterable[_Place]) -> Iterator[Content]:
        return self._content.read_at(self._session_id, places)


def _first_text(content: msgspec.Raw) -> str:
    """The text of a result, or that of its first block."""
    value = _decoded(content)
    if isinstance(value, list) and value and isinstance(value[0], dict):
        value = value[0].get("text")
    return value if isinstance(value, str) else ""


def _is_prompt(record: Content) -> bool:
    return record.role == "user" and record.kind == "text"


def _object(raw: msgspec.Raw) -> dict[str, Any]:
    value = _decoded(raw)
    return value if isinstance(value, dict) else {}


def _decoded(raw: msgspec.Raw) -> Any:
    try:
        return msgspec.json.decode(raw)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None


_CALLS_IN_ORDER = """
SELECT t.message_id, t.rail, t.ts, t.prompt_id, n.name FROM sessions s JOIN turns t ON t.session = s.id
LEFT JOIN tool_calls c ON c.turn = t.id LEFT JOIN names n ON n.id = c.name
WHERE s.session_id = ? ORDER BY t.rail, t.turn_index, t.ts, t.message_id, c.n
"""
_PLACE = """
SELECT t.position, t.length FROM turns t JOIN names n ON n.id = t.source WHERE n.name = ? AND t.message_id = ?
"""
