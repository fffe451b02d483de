"""Lines beside the conversation: titles, requests, running totals, and what the system notes."""

from __future__ import annotations

from typing import Final, TypeGuard

from msgspec.structs import replace

from burnd.harness.claude_code import lines as claude_lines
from burnd.harness.claude_code.content import title
from burnd.harness.claude_code.lines import SYSTEM_SUBTYPES, TITLES, BareLine
from burnd.harness.claude_code.memory import Memory, Spot
from burnd.harness.claude_code.messages import note
from burnd.harness.claude_code.requests import begin_attempt, fall_back, refuse_attempt, status_of
from burnd.harness.claude_code.state import KEPT_REQUESTS, LeafTitle
from burnd.harness.claude_code.usage import count, stated_usage
from burnd.harness.tool_calls import short_hash
from burnd.logfiles.log_reader import NEVER, iso, tally
from burnd.recording.candidate import LACKS_REQUEST, SOURCE
from burnd.records import Compaction, Content, Overhead
from burnd.records.content import Kind
from burnd.records.foreign_json import Rejected, Repaired
from burnd.records.times import LATEST_MS, to_iso

_TITLE_NAMES: Final[dict[str, tuple[str, Kind]]] = {
    "custom-title": ("custom", "title"),
    "ai-title": ("ai", "title"),
    "summary": ("summary", "summary"),
}


_MOST_USD: Final = 1e9


def read_bare(memory: Memory, line: BareLine, offset: int) -> None:
    if line.type in TITLES:
        _read_title(memory, line, offset)
    elif line.type == "api-request":
        _read_request(memory, line)
    elif line.model_usage:
        _read_totals(memory, line)


def _read_title(memory: Memory, line: BareLine, offset: int) -> None:
    """Keep a title that changed; clients repeat the same one all the time."""
    text = _named(line)
    if not memory.keep_content or not text:
        return
    name, kind = _TITLE_NAMES[line.type]
    said, told = short_hash(f"{line.leaf_uuid or ''} {text}".encode()), memory.state.titles
    changes, last = told.get(name, (0, ""))
    if last == said:
        return
    told[name] = (changes + 1, said)
    content = title(memory.session_id, name, kind, text, memory.state.stamp or NEVER, changes)
    if line.type == "summary" and line.leaf_uuid is not None:
        memory.out.titles.append(LeafTitle(line.leaf_uuid, offset, content))
    else:
        memory.out.content.append(content)


def summary_in(line: bytes, leaf_uuid: str, ts: str) -> Content | None:
    """The summary of a leaf that a line was read to hold at `ts`, if it still does; of nobody's session yet."""
    found = claude_lines.bare_lines.decode(line)
    told = found.value if isinstance(found, Repaired) else found
    if isinstance(told, Rejected) or told.type != "summary" or told.leaf_uuid != leaf_uuid or not _named(told):
        return None
    return title("", *_TITLE_NAMES["summary"], _named(told), ts, 0)


def _named(line: BareLine) -> str:
    """What a line calls its session."""
    return (line.custom_title or line.ai_title or line.summary or "").strip()


def _read_request(memory: Memory, line: BareLine) -> None:
    """A request this file made itself: copies of its answer elsewhere come without it."""
    facts, requests = memory.state.facts, memory.state.requests
    if facts.birth is None:
        facts.birth = iso(line.timestamp)
    if line.id is None:
        return
    begin_attempt(memory, line)
    requests[line.id] = None
    if len(requests) > KEPT_REQUESTS:
        del requests[next(iter(requests))]
    for candidate in list(memory.state.candidates.values()):
        if candidate.request_ref == line.id and candidate.rank & LACKS_REQUEST:
            candidate.rank &= ~LACKS_REQUEST
            memory.touch(candidate)


def _read_totals(memory: Memory, line: BareLine) -> None:
    """The client's running total of the session, its cost included."""
    stated = {name: usage for name, usage in (line.model_usage or {}).items() if usage is not None}
    memory.out.overheads.append(
        Overhead(
            source=SOURCE,
            session_id=memory.session_id,
            ts=memory.state.stamp or NEVER,
            models={name: stated_usage(usage) for name, usage in stated.items()},
            since=to_iso(int(line.start_time)) if line.start_time and 0 < line.start_time < LATEST_MS else None,
            costs={name: usage.cost_usd for name, usage in stated.items() if _is_amount(usage.cost_usd)},
            searches={
                name: searches for name, usage in stated.items() if (searches := count(usage.web_search_requests))
            },
        )
    )


def _is_amount(usd: float | None) -> TypeGuard[float]:
    return usd is not None and 0 < usd < _MOST_USD


def read_system(memory: Memory, spot: Spot) -> None:
    """Compactions and retries; the rest only continues the chain."""
    line = spot.line
    if line.subtype == "compact_boundary":
        _read_boundary(memory, spot)
        return
    memory.follow(spot)
    if line.subtype == "api_error":
        note(memory, spot, "retry", status=status_of(spot))
        refuse_attempt(memory, spot)
    elif line.subtype == "model_fallback":
        fall_back(memory, line.original_model)
    elif line.subtype not in SYSTEM_SUBTYPES:
        tally(memory.out.counts.unknown, f"system/{line.subtype}")


def _read_boundary(memory: Memory, spot: Spot) -> None:
    """A new row of context begins here: no turn is above it, but the prompt is still being worked on."""
    line, rail = spot.line, spot.rail
    before = memory.link(line.logical_parent_uuid) if line.logical_parent_uuid is not None else None
    if before is None and rail.last is not None:
        before = memory.link(rail.last)
    boundary = replace(spot, parent=None)
    memory.add_link(boundary, turn=None, prompt=before.prompt if before is not None else None)
    facts = line.compact_metadata
    memory.out.compactions.append(
        Compaction(
            source=SOURCE,
            session_id=memory.session_id,
            rail_id=rail.id,
            id=spot.name,
            ts=spot.ts,
            trigger=facts.trigger if facts is not None else None,
            before_tokens=_tokens(facts.pre_tokens) if facts is not None else None,
            after_tokens=_tokens(facts.post_tokens) if facts is not None else None,
            copied=memory.repeats(spot),
        )
    )


def _tokens(stated: int | None) -> int | None:
    return None if stated is None else count(stated)
