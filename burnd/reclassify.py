"""Labels turns again, from the ledger and from prompts, commands and errors in content."""

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
from burnd.content.recall import Recall
from burnd.harness.registry import PRODUCTS
from burnd.index import build
from burnd.index.keys import read_only
from burnd.ledger.content import ContentStore
from burnd.recording.candidate import relabelled
from burnd.recording.pipeline import Pipeline
from burnd.records import Content, ToolCall, Turn
from burnd.records.codec import Entry
from burnd.records.times import index_ms

_CACHED_SESSIONS = 64  # the turns of a session are close together in the ledger
_ITERATION = ":iter:"
_WITH_EXIT_CODES = [product for product in PRODUCTS if product.failed_shell]
_COMMANDS = frozenset(tool for product in _WITH_EXIT_CODES for tool in product.tools["shell"].split())
_FAILED = re.compile("|".join(product.failed_shell for product in _WITH_EXIT_CODES))
_PATH_KEYS = ("file_path", "filePath", "notebook_path", "path")
_LONGEST_TARGET = 1024


async def reclassify(pipeline: Pipeline, *, force: bool = False, report: build.Progress = build.no_progress) -> int:
    """Adds missing labels, or with `force` replaces all; rewrites the ledger. Returns the number of changed turns.

    Idempotent. Assigns the labels of live capture.
    """
    labeller = Labeller(pipeline, force=force)
    try:
        return await pipeline.rewrite_ledger(labeller.labelled, report)
    finally:
        labeller.close()


class Labeller:
    """Runs in the thread of the writer and opens its connection there."""

    def __init__(self, pipeline: Pipeline, *, force: bool) -> None:
        self._pipeline = pipeline
        self._force = force
        self._index: sqlite3.Connection | None = None
        self._recall = Recall(pipeline.home.content)
        self._session_content = lru_cache(maxsize=_CACHED_SESSIONS)(
            lambda session_id: SessionContent(pipeline.content, self._recall, session_id)
        )
        self._retries = lru_cache(maxsize=_CACHED_SESSIONS)(self._read_retries)

    def labelled(self, entry: Entry) -> Entry:
        """The same object if nothing changes."""
        if not isinstance(entry, Turn):
            return entry
        if not self._force and None not in (entry.activity, entry.retries, entry.has_edits, entry.prompt_retries):
            return entry
        turn = self._with_facts(entry)
        fresh = relabelled(turn)
        labelled = replace(
            turn,
            activity=self._updated(entry.activity, self._activity_of(turn, fresh)),
            retries=self._updated(entry.retries, fresh.retries),
            has_edits=self._updated(entry.has_edits, fresh.has_edits),
            prompt_retries=turn.prompt_retries,
        )
        if turn.prompt_retries is None:  # a recorded count is never changed
            labelled = replace(labelled, prompt_retries=self._retries(turn.session_id).get(turn.message_id))
        return entry if labelled == entry else labelled

    def close(self) -> None:
        self._recall.close()
        if self._index is not None:
            self._index.close()

    def _updated(self, old: Any, new: Any) -> Any:
        return new if self._force or old is None else old

    def _with_facts(self, turn: Turn) -> Turn:
        """Adds the words of its prompt and the targets and errors of its calls, as far as content has them."""
        content = self._session_content(turn.session_id)
        prompt_id = turn.prompt_id
        if prompt_id is None and turn.prompt_retries is None:  # they are counted only after a search for the prompt
            prompt_id = content.last_prompt(turn.rail_id, index_ms(turn.ts))
        words = turn.prompt_words
        if (self._force or not words) and (new_words := content.words_of(prompt_id)) is not None:
            words = new_words
        calls = tuple([self._call(call, content) for call in turn.tool_calls])
        return replace(turn, prompt_id=prompt_id, prompt_words=words, tool_calls=calls)

    def _call(self, call: ToolCall, content: SessionContent) -> ToolCall:
        """`force` replaces only the verb of a command: the ledger has no more of it."""
        what = kind(call.name)
        if what in ("shell", "edit") and (call.target is None or (self._force and what == "shell")):
            call = replace(call, target=content.target_of(call.id, what) or call.target)
        return call if call.is_error is not None else replace(call, is_error=content.failed(call))

    def _activity_of(self, turn: Turn, fresh: Turn) -> str | None:
        """A model call billed as part of a response has the label of the response."""
        if turn.parent is None or not turn.message_id.startswith(turn.parent + _ITERATION):
            return fresh.activity
        rows = self._rows(_LEDGER_POSITION, (turn.source, turn.parent))
        response = self._pipeline.journal.entry_at(*rows[0]) if rows and rows[0][0] is not None else None
        labelled = self.labelled(response) if isinstance(response, Turn) else fresh
        return labelled.activity if isinstance(labelled, Turn) else None

    def _read_retries(self, session_id: str) -> dict[str, int]:
        """By message."""
        content = self._session_content(session_id)
        walks: defaultdict[tuple[str, str], Walk] = defaultdict(Walk)
        retries: dict[str, int] = {}
        for message_id, rail, ts, prompt_id, tool in self._rows(_CALLS_IN_ORDER, (session_id,)):
            prompt = prompt_id or content.last_prompt(rail, ts)
            if prompt is not None:
                walks[rail, prompt] = step(walks[rail, prompt], [Call(tool)] if tool is not None else ())
                retries[message_id] = walks[rail, prompt].retries
        return retries

    def _rows(self, sql: str, parameters: tuple[Any, ...]) -> list[tuple[Any, ...]]:
        if self._index is None:
            self._index = sqlite3.connect(read_only(self._pipeline.index.path), uri=True, check_same_thread=False)
        with closing(self._index.execute(sql, parameters)) as cursor:
            return cursor.fetchall()


class _LineSpan(NamedTuple):
    position: int
    length: int


class SessionContent:
    def __init__(self, content: ContentStore, recall: Recall, session_id: str) -> None:
        self._recall = recall
        self._session_id = session_id
        self._prompts: defaultdict[str, dict[tuple[int, int], _LineSpan]] = defaultdict(dict)
        self._uses: dict[str, _LineSpan] = {}
        self._results: dict[str, _LineSpan] = {}
        self._words: dict[str, tuple[str, ...] | None] = {}
        first_times: defaultdict[str, dict[str, int]] = defaultdict(dict)
        for record, position, length, *_ in content.stored(session_id):
            span = _LineSpan(position, length)
            if record.tool_use is not None:
                self._uses[record.tool_use.id] = span
            elif record.tool_result is not None:
                self._results[record.tool_result.tool_use_id] = span
            elif record.role == "user" and record.kind == "text":
                self._prompts[record.message_id][record.n, record.b] = span
                first_times[record.rail_id].setdefault(record.message_id, index_ms(record.ts))
        self._by_rail = {rail: sorted((at, name) for name, at in ats.items()) for rail, ats in first_times.items()}

    def last_prompt(self, rail: str, ts: int) -> str | None:
        prompts = self._by_rail.get(rail, [])
        count = bisect_right(prompts, ts, key=lambda prompt: prompt[0])
        return prompts[count - 1][1] if count else None

    def words_of(self, prompt_id: str | None) -> tuple[str, ...] | None:
        """None without the text of the prompt."""
        if prompt_id is None or prompt_id not in self._prompts:
            return None
        if prompt_id not in self._words:
            spans = self._prompts[prompt_id]
            records = self._read(spans[key] for key in sorted(spans))
            texts = [record.text for record in records]
            whole = [text for text in texts if isinstance(text, str)]
            self._words[prompt_id] = prompt_words("\n".join(whole)) if len(whole) == len(texts) else None
        return self._words[prompt_id]

    def target_of(self, call_id: str, what: str) -> str | None:
        """The verb of a command or the path of a file."""
        use = self._record(self._uses.get(call_id))
        arguments = _decoded(use.tool_use.input) if use is not None and use.tool_use is not None else None
        if not isinstance(arguments, dict):
            return None
        if what == "shell":
            command = arguments.get("command")
            if isinstance(command, list) and all(isinstance(word, str) for word in command):
                command = shlex.join(command)
            return verb(command) if isinstance(command, str) else None
        paths = (arguments.get(key) for key in _PATH_KEYS)
        path = next((path for path in paths if isinstance(path, str) and path), None)
        return path[:_LONGEST_TARGET] if path is not None else None

    def failed(self, call: ToolCall) -> bool | None:
        """None without a result."""
        record = self._record(self._results.get(call.id))
        if record is None or record.tool_result is None:
            return None
        if record.tool_result.is_error or call.name not in _COMMANDS:
            return bool(record.tool_result.is_error)
        text = _decoded(record.tool_result.content)
        if isinstance(text, list) and text and isinstance(text[0], dict):
            text = text[0].get("text")
        return isinstance(text, str) and _FAILED.match(text) is not None

    def _record(self, span: _LineSpan | None) -> Content | None:
        return None if span is None else next(self._read([span]), None)

    def _read(self, spans: Iterable[_LineSpan]) -> Iterator[Content]:
        with self._recall.opened(self._session_id) as sidecar:
            records = [sidecar.record(span.position, span.length) for span in spans]
        return (record for record in records if record is not None)


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
_LEDGER_POSITION = """
SELECT t.position, t.length FROM turns t JOIN names n ON n.id = t.source WHERE n.name = ? AND t.message_id = ?
"""
