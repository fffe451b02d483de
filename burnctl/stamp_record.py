"""Makes stamps from words, flags or lines of JSON, with an error for an invalid one.

A stamp has the ledger's own form, `{"v":1,"kind":"stamp","ts","selector","enrichment"}`, with `removes` if it removes
keys. Its time is set here, so that a stamp both sent and spooled is recorded once.
"""

from __future__ import annotations

import json
import time

from burnctl.errors import UsageError
from burnd import protocol

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from typing import Any

EARLIEST, LATEST = "0001-01-01T00:00:00.000Z", "9999-12-31T23:59:59.999Z"
MOST_BYTES = protocol.REQUEST_BYTES // 4  # of one stamp; a request must fit at least one
_OF_A_LINE = {"v", "kind", "ts", "selector", "sessionId", "messageId", "range", "enrichment", "removes"}


class BadStamp(UsageError, ValueError):
    pass


def now_iso(later_s: float = 0) -> str:
    """The time `later_s` seconds from now, `2026-11-16T00:14:05.445Z`."""
    seconds, rest = divmod(time.time_ns() // 1_000_000 + int(later_s * 1000), 1000)
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(seconds))}.{rest:03d}Z"


def made(
    selector: Mapping[str, Any], enrichment: Mapping[str, Any], ts: str | None = None, removes: Sequence[str] = ()
) -> dict[str, Any]:
    """A stamp in the ledger's form. Raises BadStamp."""
    if not isinstance(removes, list | tuple):
        raise BadStamp("removes is not a list of keys", "a tag of that name goes into enrichment")
    for key in removes:
        _text(key, "a key to remove")
    stamp = {
        "v": 1,
        "kind": "stamp",
        "ts": now_iso() if ts is None else _time(ts),
        "selector": dict(selector),
        "enrichment": _checked(enrichment, removes),
    }
    if removes:
        stamp["removes"] = list(dict.fromkeys(removes))
    if len(json.dumps(stamp)) > MOST_BYTES:
        raise BadStamp(f"a stamp may have {MOST_BYTES // 1024} KiB at most")
    return stamp


def selector_of(
    session: str | None = None, message: str | None = None, from_ts: str | None = None, to_ts: str | None = None
) -> dict[str, Any]:
    """A session, a session within a time, or one message. Raises BadStamp."""
    if (session is None) == (message is None):
        raise BadStamp("a tag needs a session or a message", "add --session ID or --message ID, one of them")
    _text(session if message is None else message, "the id")
    if message is not None:
        if from_ts is not None or to_ts is not None:
            raise BadStamp("a time range goes with a session, not with a message")
        return {"messageId": message}
    if from_ts is None and to_ts is None:
        return {"sessionId": session}
    span = {
        "fromTs": EARLIEST if from_ts is None else _time(from_ts),
        "toTs": LATEST if to_ts is None else _time(to_ts),
    }
    if span["fromTs"] >= span["toTs"]:
        raise BadStamp(f"the range ends ({span['toTs']}) before it begins ({span['fromTs']})")
    return {"sessionId": session, "range": span}


def from_words(words: Iterable[str]) -> dict[str, str]:
    """`["workflowId=wf-1", ...]` as a mapping; the last value of a key wins. Raises BadStamp."""
    tags = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not equals:
            raise BadStamp(f"{word!r} is not KEY=VALUE", "a tag is written like workflowId=wf-1")
        if not key:
            raise BadStamp(f"{word!r} has no key before the =")
        _encodable(word, f"{word!r}")
        tags[key] = value
    return tags


def removal(selector: Mapping[str, Any], keys: Sequence[str]) -> dict[str, Any]:
    """A stamp that removes these keys. Raises BadStamp."""
    if not keys:
        raise BadStamp("no key to remove", "name the keys, like persona workflowId")
    return made(selector, {}, removes=keys)


def from_lines(lines: Iterable[bytes]) -> list[dict[str, Any]]:
    """The stamps of JSON lines, all or none. Raises BadStamp with the number of the first invalid line."""
    stamps = []
    for number, line in enumerate(lines, 1):
        if line.strip():
            try:
                stamps.append(_from_object(json.loads(line)))
            except BadStamp as error:
                raise BadStamp(f"line {number}: {error.message}", "nothing was recorded") from None
            except (ValueError, RecursionError):
                raise BadStamp(f"line {number}: is not JSON", "nothing was recorded") from None
    return stamps


def from_objects(record: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    return [_from_object(stamp) for stamp in record]


def _from_object(record: Any) -> dict[str, Any]:
    """From `selector` or a bare `sessionId`/`messageId`/`range`, and `enrichment` or flat keys."""
    if not isinstance(record, dict):
        raise BadStamp("is not an object")
    if record.get("v", 1) != 1 or record.get("kind", "stamp") != "stamp":
        raise BadStamp("is not a stamp of version 1")
    flat = {key: value for key, value in record.items() if key not in _OF_A_LINE}
    if "enrichment" in record and flat:
        raise BadStamp(f"has enrichment and also {next(iter(flat))!r}: put all tags into one of the two")
    return made(_selector_in(record), record.get("enrichment", flat), record.get("ts"), record.get("removes", ()))


def _selector_in(record: Mapping[str, Any]) -> dict[str, Any]:
    selector = record.get("selector")
    if selector is None:
        selector = {key: record[key] for key in ("sessionId", "messageId", "range") if key in record}
    elif any(key in record for key in ("sessionId", "messageId", "range")):
        raise BadStamp("has a selector and also an id or a range: give one of the two")
    span = _only(selector, "the selector", "sessionId", "messageId", "range").get("range")
    span = {} if span is None else _only(span, "the range", "fromTs", "toTs")
    return selector_of(selector.get("sessionId"), selector.get("messageId"), span.get("fromTs"), span.get("toTs"))


def _only(value: Any, what: str, *keys: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise BadStamp(f"{what} is not an object")
    if strange := [key for key in value if key not in keys]:
        raise BadStamp(f"{what} has {strange[0]!r}; it may have {', '.join(keys)}")
    return value


def _checked(enrichment: Mapping[str, Any], removes: Sequence[str]) -> dict[str, str]:
    if not isinstance(enrichment, dict):
        raise BadStamp("the enrichment is not an object")
    if not enrichment and not removes:
        raise BadStamp("a stamp needs at least one KEY=VALUE")
    if both := [key for key in removes if key in enrichment]:
        raise BadStamp(f"the key {both[0]!r} is both given and removed")
    for key, value in enrichment.items():
        _text(key, "a key")
        if not isinstance(value, str):
            raise BadStamp(f"the value of {key!r} is not a string: {json.dumps(value, default=repr)[:40]}")
        _encodable(value, f"the value of {key!r}")
    return enrichment


def _text(value: Any, what: str) -> None:
    if not isinstance(value, str):
        raise BadStamp(f"{what} is not a string")
    if not value:
        raise BadStamp(f"{what} must not be empty")
    _encodable(value, what)


def _encodable(value: str, what: str) -> None:
    """Rejects arguments that are no UTF-8, which arrive as lone surrogates."""
    try:
        value.encode()
    except UnicodeEncodeError:
        raise BadStamp(f"{what} is not valid UTF-8") from None


def _time(value: Any) -> str:
    """An ISO time in the ledger's form; without a zone it is UTC."""
    from datetime import UTC, datetime

    try:
        moment = datetime.fromisoformat(value)
        moment = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, TypeError, OverflowError):
        raise BadStamp(f"{str(value)[:40]!r} is not an ISO time", "write it like 2026-11-16T08:30:00Z") from None
    return f"{moment.replace(tzinfo=None).isoformat('T', 'milliseconds')}Z"
