"""Stamps: tags that a user or a wrapper adds to turns."""

from __future__ import annotations

import msgspec

from burnd.records.base import Record
from burnd.records.names import Name
from burnd.records.times import to_ms


class TimeRange(Record, frozen=True, kw_only=True):
    from_ts: str
    to_ts: str


class Selector(Record, frozen=True, kw_only=True):
    """One message, a whole session, or a session within a time range."""

    session_id: str | None = None
    message_id: str | None = None
    range: TimeRange | None = None

    def problem(self) -> str | None:
        if (self.session_id is None) == (self.message_id is None):
            return "a selector names either a sessionId or a messageId"
        if not (self.session_id or self.message_id):
            return "a selector's id must not be empty"
        if self.range is None:
            return None
        if self.session_id is None:
            return "a range goes with a sessionId"
        reason = _time_problem(self.range.from_ts) or _time_problem(self.range.to_ts)
        if reason is None and to_ms(self.range.from_ts) >= to_ms(self.range.to_ts):
            return "a range begins before it ends"
        return reason


class Stamp(Record, frozen=True, kw_only=True):
    """Keys and values for the selected turns, set at `ts`. `removes` are keys that it removes from them."""

    ts: str
    selector: Selector
    enrichment: dict[Name, str]
    removes: tuple[Name, ...] = ()

    @property
    def tags(self) -> dict[str, str | None]:
        """None for a key that is removed."""
        return {**self.enrichment, **dict.fromkeys(self.removes)}

    def of_session(self, session_id: str | None) -> Stamp:
        if session_id is None or session_id == self.selector.session_id:
            return self
        selector = msgspec.structs.replace(self.selector, session_id=session_id)
        return msgspec.structs.replace(self, selector=selector)

    def problem(self) -> str | None:
        if (reason := self.selector.problem()) is not None:
            return reason
        if not self.tags:
            return "a stamp needs at least one key=value"
        if not all(self.tags):
            return "a key must not be empty"
        if both := self.enrichment.keys() & set(self.removes):
            return f"the key {min(both)[:40]!r} is both given and removed"
        return _time_problem(self.ts)


def _time_problem(text: str) -> str | None:
    try:
        to_ms(text)
    except ValueError:
        return f"{text[:40]!r} is not an ISO time"
    return None
