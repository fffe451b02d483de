"""Lists stamps in pages, and finds keys that no stamp has."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import msgspec

from burnd.contract.daemon import ListStampsParams
from burnd.queries.view import Refusal, View
from burnd.records.names import bounded
from burnd.records.times import to_iso, to_ms

_PAGE_BYTES: Final = 4 << 20  # a page ends with the stamp that exceeds it; one stamp fits a request of 1 MiB


def list_stamps(view: View, params: ListStampsParams) -> dict[str, Any]:
    """Stamps in the order they were recorded; `next` is the `after` of the next page."""
    since = None if params.since is None else time_of(params.since, "since")
    until = None if params.until is None else time_of(params.until, "until")
    filters = (params.after, params.session, params.message, since, until)
    stamps: list[dict[str, Any]] = []
    last = size = 0
    for row in view.db.execute(_STAMPS, filters):
        stamp = _answer(row)
        if not _has(stamp, params):
            continue
        if len(stamps) == params.limit or size >= _PAGE_BYTES:
            return {"stamps": stamps, "next": last}
        stamps.append(stamp)
        last = row[0]
        size += sum(len(text.encode()) for text in (row[2], row[3], row[6]) if text is not None)
    return {"stamps": stamps, "next": None}


def time_of(text: str, name: str) -> int:
    try:
        return to_ms(text)
    except ValueError:
        raise Refusal(f"{name} is not an ISO time", "for example 2026-11-16T09:30:00Z") from None


def unknown_keys(view: View, keys: Iterable[str]) -> list[str]:
    """The keys that no stamp has."""
    return [key for key in keys if not view.rows(_WITH_KEY, (bounded(key),))]


def _has(stamp: dict[str, Any], params: ListStampsParams) -> bool:
    tags = stamp["enrichment"] | dict.fromkeys(stamp.get("removes", ()))
    if params.key is None:
        return params.value is None or params.value in tags.values()
    key = bounded(params.key)
    return any(bounded(name) == key and params.value in (None, value) for name, value in tags.items())


def _answer(row: tuple[Any, ...]) -> dict[str, Any]:
    _, ts, session_id, message_id, from_ts, to_ts, enrichment = row
    selector: dict[str, Any] = {"messageId": message_id} if session_id is None else {"sessionId": session_id}
    if from_ts is not None:
        selector["range"] = {"fromTs": to_iso(from_ts), "toTs": to_iso(to_ts)}
    tags = msgspec.json.decode(enrichment)
    values = {key: value for key, value in tags.items() if value is not None}
    removes = [key for key in tags if key not in values]
    return {"ts": to_iso(ts), "selector": selector, "enrichment": values} | ({"removes": removes} if removes else {})


_STAMPS = """
SELECT position, ts, session_id, message_id, from_ts, to_ts, enrichment FROM stamps
WHERE position > ?1 AND (?2 IS NULL OR session_id = ?2) AND (?3 IS NULL OR message_id = ?3)
  AND (?4 IS NULL OR ts >= ?4) AND (?5 IS NULL OR ts < ?5)
ORDER BY position
"""
_WITH_KEY = """
SELECT 1 FROM session_tags WHERE key = ?1 UNION ALL SELECT 1 FROM narrow_tags WHERE key = ?1 LIMIT 1
"""
