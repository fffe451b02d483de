"""Quotes content for `why`, `waste` and lists of sessions, and makes titles from first prompts."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, Final

import msgspec

from burnd.attribution.causes import Cause
from burnd.attribution.rail import CauseOrigin
from burnd.attribution.rail_entries import RailName
from burnd.content.recall import Recall, SidecarReader, Spot, is_reference
from burnd.harness.registry import PRODUCTS
from burnd.index.schema import MESSAGES_BY_ID, is_message
from burnd.queries.view import View
from burnd.records import Content
from burnd.records.content import MAIN

LONGEST: Final = 120
READ_BYTES: Final = 4096
_MOST_RECORDS: Final = 64
# Arguments that describe a call, best first.
_DESCRIPTIVE_ARGUMENTS: Final = ("command", "cmd", "description", "pattern", "query", "url", "prompt")
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
AND msg_idx >= ?3 - {_MOST_RECORDS} AND role = 'user' AND kind = 'text' ORDER BY msg_idx DESC, n, b LIMIT 4
"""
_RESULTS: Final = f"""
SELECT position, length FROM messages WHERE session = ?1 AND rail = ?2 AND msg_idx >= ?3
AND msg_idx <= ?3 + {_MOST_RECORDS} AND kind = 'tool_result' ORDER BY msg_idx, n, b LIMIT {_MOST_RECORDS}
"""


class Quotes:
    """`recall` is None if content may not be read."""

    def __init__(self, view: View, recall: Recall | None) -> None:
        self._view = view
        self._recall = recall

    def of(self, rail: RailName, cause: Cause | CauseOrigin) -> str | None:
        """The start of a prompt or answer, or the arguments of a call."""
        if self._recall is None or not cause.message_id:
            return None
        with self._recall.opened(rail.session_id) as file:
            if cause.kind == "prompt":
                return self._prompt(file, rail, cause.message_id)
            if cause.kind == "answer":
                records = self._records(file, rail, cause.message_id, "text")
                return next((first_words(record.text) for record in records), None)
            if cause.kind == "call":
                return self._call(file, rail, cause.message_id, cause.call_id)
        return None

    def call(self, session: int, session_id: str, rail_id: str | None, turn_index: int, call_id: str) -> str | None:
        """The arguments of a call in that turn of a rail, or of any rail if `rail_id` is None."""
        if self._recall is None:
            return None
        if rail_id is None:
            turns = self._view.rows(_TURN_OF_ANY_RAIL, (session, turn_index))
        else:
            turns = self._view.rows(_TURN, (session, rail_id, turn_index))
        rail = RailName(session, session_id, rail_id or "")
        with self._recall.opened(session_id) as file:
            quotes = (self._call(file, rail, message_id, call_id) for (message_id,) in turns)
            return next((quote for quote in quotes if quote is not None), None)

    def error(self, rail: RailName, turn_index: int, call_id: str) -> str | None:
        """The first line of a failed call's error."""
        turns = self._view.rows(_TURN, (rail.session, rail.rail_id, turn_index)) if self._recall is not None else []
        # Usage billed beside a turn has the turn's number but no message.
        place = next((place for (message,) in turns if (place := self._place(rail, message)) is not None), None)
        if self._recall is None or place is None:
            return None
        with self._recall.opened(rail.session_id) as file:
            for record in self._read(file, _RESULTS, (rail.session, rail.rail_id, place)):
                result = record.tool_result
                if result is not None and result.tool_use_id == call_id:
                    return _first_line(_plain(_decoded(result.content)))
        return None

    def _prompt(self, file: SidecarReader, rail: RailName, message_id: str) -> str | None:
        place = self._place(rail, message_id)
        if place is None:
            return None
        # Text of the harness is in tags.
        texts = (record.text for record in self._read(file, _PROMPT, (rail.session, rail.rail_id, place)))
        return next((first_words(text) for text in texts if isinstance(text, str) and text[:1] != "<"), None)

    def _call(self, file: SidecarReader, rail: RailName, message_id: str, call_id: str | None) -> str | None:
        for record in self._records(file, rail, message_id, "tool_use"):
            use = record.tool_use
            if use is not None and use.id == call_id:
                arguments = _decoded(use.input)
                names = [
                    name
                    for name in _DESCRIPTIVE_ARGUMENTS
                    if isinstance(arguments, dict) and isinstance(arguments.get(name), str)
                ]
                return first_words(arguments[names[0]]) if names else None
        return None

    def _place(self, rail: RailName, message_id: str) -> int | None:
        ((place,),) = self._view.rows(_PLACE, (rail.session, message_id, rail.rail_id))
        return place if isinstance(place, int) else None

    def _records(self, file: SidecarReader, rail: RailName, message_id: str, kind: str) -> Iterator[Content]:
        return self._read(file, _RECORDS, (rail.session, message_id, kind, _MOST_RECORDS))

    def _read(self, file: SidecarReader, sql: str, values: tuple[Any, ...]) -> Iterator[Content]:
        for position, length in self._view.rows(sql, values):
            record = file.record(position, length, READ_BYTES)
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
    """The first line that looks like an error, else the first that is not an exit code."""
    lines = [line for line in _ERROR_TAGS.sub("", text[:READ_BYTES]).splitlines() if line.strip()]
    errors = [line for line in lines if _ERROR.search(line)] or [line for line in lines if "Exit code" not in line]
    return first_words(next(iter(errors or lines), ""))


def first_words(text: Any) -> str | None:
    words = " ".join(text[:READ_BYTES].split()) if isinstance(text, str) else ""
    return (words[: LONGEST - 1] + "…" if len(words) > LONGEST else words) or None


LONGEST_SUMMARY: Final = 64 << 10  # bytes of each block, and characters of the whole
_OPENING_MESSAGES: Final = 64  # messages; before the first prompt there is only text of the harness
_MOST_BLOCKS: Final = 4
_LONGEST_CHARACTER: Final = 4  # bytes; a character cut in two is dropped
# Text that a harness puts before the user's: <system-reminder>, <ide_selection>.
_HARNESS_TAGS: Final = re.compile(r"\s*(?:<([a-z]+[_-][a-z_-]+)>.*?</\1>\s*)+", re.DOTALL)
_OPEN_TAG: Final = re.compile(r"\s*<[a-z]+[_-][a-z_-]+>")
_COMMANDS: Final = [re.compile(product.command, re.DOTALL) for product in PRODUCTS if product.command]
_FIRST_PROMPTS: Final = f"""
WITH opening AS MATERIALIZED (
  SELECT msg_idx, n, b, role, position, length FROM messages
  WHERE session = (SELECT id FROM sessions WHERE session_id = ?1) AND rail = '{MAIN}' AND msg_idx < {_OPENING_MESSAGES}
  AND kind = 'text' AND role IN ('user', 'system')),
prompts AS (SELECT * FROM opening WHERE role = 'user' ORDER BY msg_idx, n, b LIMIT {_MOST_BLOCKS}),
before AS (
  SELECT * FROM opening
  WHERE role = 'system' AND msg_idx < coalesce((SELECT min(msg_idx) FROM prompts), {_OPENING_MESSAGES})
  ORDER BY msg_idx, n, b LIMIT {_MOST_BLOCKS})
SELECT position, length FROM (SELECT * FROM before UNION ALL SELECT * FROM prompts) ORDER BY msg_idx, n, b
"""

_LAST_COMPACTION: Final = f"""
SELECT position, length FROM messages WHERE session = ?1 AND rail = '{MAIN}' AND kind = 'summary' AND msg_idx = (
  SELECT msg_idx FROM messages WHERE session = ?1 AND rail = '{MAIN}' AND kind = 'summary'
  ORDER BY ts DESC, message_id DESC LIMIT 1)
ORDER BY n, b
"""


def add_titles(view: View, recall: Recall, sessions: Sequence[dict[str, Any]]) -> None:
    """Gives sessions without title and summary a title from their first prompt, if content is stored."""
    untitled = [one for one in sessions if not one["title"] and not one["summary"] and one["content"] == "yes"]
    places = [(one["sessionId"], _first_prompts(view, one["sessionId"])) for one in untitled]
    for session, records in zip(untitled, recall.records(places), strict=True):
        texts = (_user_text(record) for record in records if record is not None)
        session["title"] = next(filter(None, texts), None)


def name_sessions(view: View, recall: Recall, rows: Sequence[dict[str, Any]]) -> None:
    """The same for rows or answers about sessions that have an id and a title only."""
    ids = [row.get("sessionId") or row.get("keys", {}).get("session") or row["key"] for row in rows]
    facts = [
        {"sessionId": session_id, "title": row["title"], "summary": None, "content": "yes"}
        for session_id, row in zip(ids, rows, strict=True)
    ]
    add_titles(view, recall, facts)
    for row, named in zip(rows, facts, strict=True):
        row["title"] = named["title"]


def add_compaction_summary(view: View, recall: Recall, session: dict[str, Any]) -> None:
    """Uses the summary of the last compaction as the session's, unless a client set one."""
    rows = view.rows("SELECT id, nullif(summary, '') FROM sessions WHERE session_id = ?", (session["sessionId"],))
    if not rows or rows[0][1] is not None:
        return
    places = [Spot(position, length, LONGEST_SUMMARY) for position, length in view.rows(_LAST_COMPACTION, rows[0][:1])]
    (records,) = recall.records([(session["sessionId"], places)])
    text = "\n".join(record.text for record in records if record is not None and isinstance(record.text, str))
    if text:
        session["summary"] = text if len(text) <= LONGEST_SUMMARY else f"{text[:LONGEST_SUMMARY]}\u2026"


def _user_text(record: Content) -> str | None:
    """The start of the user's text or of the command for it; None for text of the harness."""
    if not isinstance(record.text, str):
        return None
    if record.role != "user":
        return _command(record.text)
    aside = _HARNESS_TAGS.match(record.text)
    text = record.text[aside.end() :] if aside else record.text
    is_cut = len(record.text.encode()) > READ_BYTES - _LONGEST_CHARACTER
    return None if is_cut and _OPEN_TAG.match(text) else first_words(text)


def _command(text: str) -> str | None:
    """As the user types it."""
    match = next(filter(None, (pattern.match(text) for pattern in _COMMANDS)), None)
    return first_words(f"/{match[1]} {match[2] or ''}") if match else None


def _first_prompts(view: View, session_id: str) -> list[Spot]:
    return [Spot(position, length, READ_BYTES) for position, length in view.rows(_FIRST_PROMPTS, (session_id,))]
