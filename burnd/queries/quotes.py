"""Quotes content in a few words: the beginning of a prompt, the arguments of a call, the first line of an error.

Used by `why`, `waste` and the list of sessions. Without stored content there are no quotes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

import msgspec

from burnd.attribution import Cause
from burnd.attribution.rail import CauseOrigin
from burnd.attribution.rail_entries import RailName
from burnd.content.recall import Reading, Recall, is_reference
from burnd.harness.registry import PRODUCTS
from burnd.index.schema import MESSAGES_BY_ID, is_message
from burnd.queries.view import View
from burnd.records import Content

LONGEST: Final = 120
READ_BYTES: Final = 4096
_LOOKED_THROUGH: Final = 64
# Arguments that describe a call, the best first.
_DESCRIBING: Final = ("command", "cmd", "description", "pattern", "query", "url", "prompt")
_ERROR: Final = re.compile(
    r"error|fail|fatal|exception|denied|not found|no such|cannot|refused|panic|✗|✕", re.IGNORECASE
)
_ERROR_TAGS: Final = re.compile("|".join(f"</?{product.error_tag}>" for product in PRODUCTS if product.error_tag))
_RECORDS: Final = f"""
SELECT position, length FROM {MESSAGES_BY_ID} WHERE session = ?1 AND {is_message("?2")} AND kind = ?3
ORDER BY n, b LIMIT ?4
"""
_TURN: Final = "SELECT message_id FROM turns WHERE session = ? AND rail = ? AND turn_index = ?"
_TURN_OF_ANY_RAIL: Final = "SELECT message_id FROM turns WHERE session = ? AND turn_index = ? LIMIT 64"
_PLACE: Final = f"""
SELECT min(msg_idx) FROM {MESSAGES_BY_ID} WHERE session = ?1 AND {is_message("?2")} AND rail = ?3
"""
_PROMPT: Final = f"""
SELECT position, length FROM messages WHERE session = ?1 AND rail = ?2 AND msg_idx < ?3
AND msg_idx >= ?3 - {_LOOKED_THROUGH} AND role = 'user' AND kind = 'text' ORDER BY msg_idx DESC, n, b LIMIT 4
"""
_RESULTS: Final = f"""
SELECT position, length FROM messages WHERE session = ?1 AND rail = ?2 AND msg_idx >= ?3
AND msg_idx <= ?3 + {_LOOKED_THROUGH} AND kind = 'tool_result' ORDER BY msg_idx, n, b LIMIT {_LOOKED_THROUGH}
"""


class Quotes:
    """Quotes from the content of sessions; `recall` is None if content may not be read."""

    def __init__(self, view: View, recall: Recall | None) -> None:
        self._view = view
        self._recall = recall

    def of(self, rail: RailName, cause: Cause | CauseOrigin) -> str | None:
        """The beginning of a prompt or an answer, or the arguments of a call; None without content."""
        if self._recall is None or not cause.message_id:
            return None
        with self._recall.opened(rail.session_id) as reading:
            if cause.kind == "prompt":
                return self._prompt(reading, rail, cause.message_id)
            if cause.kind == "answer":
                records = self._records(reading, rail, cause.message_id, "text")
                return next((first_words(record.text) for record in records), None)
            if cause.kind == "call":
                return self._call(reading, rail, cause.message_id, cause.call_id)
        return None

    def call(self, session: int, session_id: str, rail_id: str | None, turn_index: int, call_id: str) -> str | None:
        """The arguments of a call in that turn of a rail, or of any rail if it is None."""
        if self._recall is None:
            return None
        if rail_id is None:
            turns = self._view.rows(_TURN_OF_ANY_RAIL, (session, turn_index))
        else:
            turns = self._view.rows(_TURN, (session, rail_id, turn_index))
        rail = RailName(session, session_id, rail_id or "")
        with self._recall.opened(session_id) as reading:
            quotes = (self._call(reading, rail, message_id, call_id) for (message_id,) in turns)
            return next((quote for quote in quotes if quote is not None), None)

    def error(self, rail: RailName, turn_index: int, call_id: str) -> str | None:
        """The first line of the error of a failed call in that turn."""
        turns = self._view.rows(_TURN, (rail.session, rail.rail_id, turn_index)) if self._recall is not None else []
        # Usage that was billed beside a turn has its number, and no message.
        place = next((place for (message,) in turns if (place := self._place(rail, message)) is not None), None)
        if self._recall is None or place is None:
            return None
        with self._recall.opened(rail.session_id) as reading:
            for record in self._found(reading, _RESULTS, (rail.session, rail.rail_id, place)):
                result = record.tool_result
                if result is not None and result.tool_use_id == call_id:
                    return _first_line(_plain(_decoded(result.content)))
        return None

    def _prompt(self, reading: Reading, rail: RailName, message_id: str) -> str | None:
        place = self._place(rail, message_id)
        if place is None:
            return None
        # A harness puts its own text into tags.
        texts = (record.text for record in self._found(reading, _PROMPT, (rail.session, rail.rail_id, place)))
        return next((first_words(text) for text in texts if isinstance(text, str) and text[:1] != "<"), None)

    def _call(self, reading: Reading, rail: RailName, message_id: str, call_id: str | None) -> str | None:
        for record in self._records(reading, rail, message_id, "tool_use"):
            use = record.tool_use
            if use is not None and use.id == call_id:
                given = _decoded(use.input)
                names = [name for name in _DESCRIBING if isinstance(given, dict) and isinstance(given.get(name), str)]
                return first_words(given[names[0]]) if names else None
        return None

    def _place(self, rail: RailName, message_id: str) -> int | None:
        ((place,),) = self._view.rows(_PLACE, (rail.session, message_id, rail.rail_id))
        return place if isinstance(place, int) else None

    def _records(self, reading: Reading, rail: RailName, message_id: str, kind: str) -> Iterator[Content]:
        return self._found(reading, _RECORDS, (rail.session, message_id, kind, _LOOKED_THROUGH))

    def _found(self, reading: Reading, sql: str, values: tuple[Any, ...]) -> Iterator[Content]:
        for position, length in self._view.rows(sql, values):
            record = reading.record(position, length, READ_BYTES)
            if record is not None:
                yield record


def _decoded(raw: msgspec.Raw) -> Any:
    if is_reference(raw):
        return None
    try:
        return msgspec.json.decode(raw)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None


def _plain(value: Any) -> str:
    if isinstance(value, list):
        return "\n".join(item["text"] for item in value if isinstance(item, dict) and isinstance(item.get("text"), str))
    return value if isinstance(value, str) else ""


def _first_line(text: str) -> str | None:
    """The first line that looks like an error, or else the first that is not an exit code."""
    lines = [line for line in _ERROR_TAGS.sub("", text[:READ_BYTES]).splitlines() if line.strip()]
    errors = [line for line in lines if _ERROR.search(line)] or [line for line in lines if "Exit code" not in line]
    return first_words(next(iter(errors or lines), ""))


def first_words(text: Any) -> str | None:
    """The beginning of a text in one line."""
    words = " ".join(text[:READ_BYTES].split()) if isinstance(text, str) else ""
    return (words[: LONGEST - 1] + "…" if len(words) > LONGEST else words) or None
