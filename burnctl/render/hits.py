"""How search results look: by session, what matched with its words marked, what stands around it in a line each."""

from __future__ import annotations

from burnctl.render.names import enough_of_id, last_name, tilde
from burnctl.render.numbers import ago, counted
from burnctl.render.paragraphs import lines_of, wrapped
from burnctl.render.text import clean, cut, pad, width_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from typing import Any

    from burnctl.render.screen import Screen

_LINES = 6  # of what matched
_NAME = 11
_MARK = "bold red"
_ON, _OFF = "\ue000", "\ue001"  # private characters: clean text has none of them


def found(answer: Mapping[str, Any], screen: Screen, now: float, otherwise: str = "Nothing was found.") -> str:
    """All hits, those of one session together, or what is said otherwise; and what else there is to say."""
    parts = [_session(hits, clean(enough_of_id(hits[0])), screen, now) for hits in _by_session(answer["hits"])]
    if not parts:
        parts = [otherwise]
    for word, meant in (answer.get("corrected") or {}).items():
        parts.append(screen.paint(f"{clean(word)} is nowhere; looked for {clean(', '.join(meant))}.", "dim"))
    if answer.get("note"):
        parts.append(screen.paint(f"Note: {clean(answer['note'])}.", "dim"))
    return "\n\n".join(parts)


def memories(answer: Mapping[str, Any], screen: Screen) -> str:
    """Entries of instruction and memory files, each whole below the file it is in."""
    parts = [_memory(entry, screen) for entry in answer["entries"]] or [
        "No instruction or memory file has these words."
    ]
    left_out = answer.get("matches", 0) - len(answer["entries"])
    if left_out > 0:
        parts.append(screen.paint(f"{left_out:,} more matched; see --limit.", "dim"))
    if answer.get("note"):
        parts.append(screen.paint(f"Note: {clean(answer['note'])}.", "dim"))
    return "\n\n".join(parts)


def _memory(entry: Mapping[str, Any], screen: Screen) -> str:
    where = f"{tilde(clean(entry['path']))}:{entry['line']}"
    also = f" and {counted(len(entry['alsoIn']), 'other file')}" if entry["alsoIn"] else ""
    lines = [f"  {line}".rstrip() for line in lines_of(entry["text"], screen.width - 2)]
    return "\n".join([screen.paint(where, "cyan") + screen.paint(also, "dim"), *lines])


def _by_session(hits: Sequence[Mapping[str, Any]]) -> list[list[Mapping[str, Any]]]:
    groups: dict[str, list[Mapping[str, Any]]] = {}
    for hit in hits:
        groups.setdefault(hit["sessionId"], []).append(hit)
    return list(groups.values())


def _session(hits: Sequence[Mapping[str, Any]], name: str, screen: Screen, now: float) -> str:
    first = hits[0]
    lines = [_head(first["meta"], name, screen, now)]
    if title := first.get("matchedTitle"):
        lines += [f"  {line}" for line in _marked(title["snippet"], title["highlights"], screen.width - 2, screen)]
    import shlex

    last = None
    for rail, item in _in_order(hits):
        if last is not None and last != (rail, item["msgIdx"] - 1):
            lines.append("  ⋯")
        lines += _item(item, screen)
        last = (rail, item["msgIdx"])
    begin = max((first["msgIdx"] or 0) - 4, 0)
    rail = f" --rail {shlex.quote(clean(first['railId']))}" if first["railId"] not in (None, "main") else ""
    lines.append(screen.paint(f"  burnctl show {shlex.quote(name)}{rail} --from {begin}", "dim"))
    return "\n".join(lines)


def _in_order(hits: Sequence[Mapping[str, Any]]) -> list[tuple[str, Mapping[str, Any]]]:
    """The messages around a session's hits as they were said, each conversation by itself, the best hit's first."""
    rails = list(dict.fromkeys(str(hit["railId"]) for hit in hits))
    items = [(str(hit["railId"]), item) for hit in hits for item in hit["window"]]
    return sorted(items, key=lambda one: (rails.index(one[0]), one[1]["msgIdx"]))


def _head(meta: Mapping[str, Any], name: str, screen: Screen, now: float) -> str:
    """What a session is called comes first; of the rest, what there is room for."""
    room = screen.width - width_of(name) - 2
    title = cut(clean(meta["title"] or ""), room * 3 // 5 if room > 24 else room)
    about = [ago(meta["updatedAt"], now), last_name(meta["project"]), meta["source"]]
    told = [clean(part) for part in (*about, counted(meta["messageCount"], "message")) if part]
    left = room - (width_of(title) + 2 if title else 0)
    while told and width_of(" · ".join(told)) > left:
        told.pop()
    parts = [screen.paint(name, "cyan"), screen.paint(title, "bold"), screen.paint(" · ".join(told), "dim")]
    return "  ".join(part for part, said in zip(parts, (name, title, told), strict=True) if said)


def _item(item: Mapping[str, Any], screen: Screen) -> Iterator[str]:
    name = item.get("toolName") or item["role"].replace("tool_result", "result")
    sign, number = "▸" if item.get("match") else " ", f"#{item['msgIdx']}"
    head = f"{sign} {pad(number, 5)} {pad(cut(clean(name), _NAME), _NAME)} "
    room = max(screen.width - width_of(head), 10)
    if not item.get("match"):
        first = cut(clean(" ".join(item["snippet"].split())), room)
        yield screen.paint(head + first, "dim").rstrip()
        return
    lines = _marked(item["snippet"], item["highlights"], room, screen)
    for n, line in enumerate(lines):
        yield (head if n == 0 else " " * width_of(head)) + line


def _marked(snippet: str, highlights: Sequence[Sequence[int]], room: int, screen: Screen) -> list[str]:
    """The lines around what matched, its words marked."""
    snippet = snippet.replace(_ON, " ").replace(_OFF, " ")
    text, at = "", 0
    for begin, end in highlights:
        text += f"{snippet[at:begin]}{_ON}{snippet[begin:end]}{_OFF}"
        at = end
    text += snippet[at:]
    lines = [part for line in text.splitlines() if line.strip() for part in _broken(clean(line.expandtabs(4)), room)]
    first = next((n for n, line in enumerate(lines) if _ON in line), 0)
    begin = max(min(first - 1, len(lines) - _LINES), 0)
    return [_painted(line, screen) for line in lines[begin : begin + _LINES]]


def _broken(line: str, room: int) -> list[str]:
    """Like `wrapped`, with the marks taking no room and never left open at a line's end."""
    plain = line.replace(_ON, "").replace(_OFF, "")
    if width_of(plain) <= room:
        return [line.strip()]
    parts, held, is_on = [], "", False
    for word in line.split():
        if held and width_of(_bare(f"{held} {word}")) > room:
            parts.append(held + (_OFF if is_on else ""))
            held = (_ON if is_on else "") + word
        else:
            held = f"{held} {word}" if held else word
        is_on = held.rfind(_ON) > held.rfind(_OFF)
    return [*(piece for part in parts for piece in _fit(part, room)), *_fit(held, room)]


def _bare(text: str) -> str:
    return text.replace(_ON, "").replace(_OFF, "")


def _fit(part: str, room: int) -> list[str]:
    """A single word may be longer than the room: then its marks are given up and it is broken."""
    return [part] if width_of(_bare(part)) <= room else wrapped(_bare(part), room)


def _painted(line: str, screen: Screen) -> str:
    painted = ""
    for n, part in enumerate(line.replace(_OFF, _ON).split(_ON)):
        painted += screen.paint(part, _MARK) if n % 2 else part
    return painted
