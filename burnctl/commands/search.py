"""`burnctl search`: finds words in all conversations, one line for each hit or with the messages around it."""

from __future__ import annotations

from burnctl import flags
from burnctl.daemon import reach
from burnctl.errors import UsageError
from burnctl.output import present
from burnctl.render.names import enough_of_id, last_name, tilde
from burnctl.render.numbers import ago, counted
from burnctl.render.text import clean, cut, lines_of, pad, width_of, wrap
from burnd.contract import Params, param
from burnd.contract.sessions import MemoryParams, SearchParams

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Mapping, Sequence
    from typing import Any

    from burnctl.render.screen import Screen

HELP = (
    "finds the sessions with some words: in prompts, answers, thinking, arguments and results of tools, and titles. "
    "Messages with more of the words come first; words in quotation marks must follow each other (quote them for the "
    "shell, too). One line for each session's best message; -C shows the messages around it. --memory searches "
    "instruction and memory files such as CLAUDE.md and AGENTS.md instead, yours and those of every recorded project"
)
EXAMPLES = (
    "burnctl search cron refactor",
    "burnctl search --project . --since 4w 'resolve_dirs(config)' -C 2",
    "burnctl search '\"connection refused\"' --tool Bash --all",
    "burnctl search --memory deploy staging",
)
_HITS = 10
_LINES = 6  # of a message that matched
_NAME, _TITLE, _LEAST_TITLE, _PROJECT, _PASSAGE, _PIPE_PASSAGE = 11, 36, 18, 12, 28, 200
_MARK = "bold red"
_ON, _OFF = "\ue000", "\ue001"  # private characters, which `_with_marks` removes from the text first


class SearchFlags(Params):
    memory: bool = param(default=False, help="search instruction and memory files instead of sessions")
    context: int | None = param(
        default=None, help="show this many messages before and after each hit", kind="index", flag="-C"
    )


def add_arguments(parser: argparse.ArgumentParser) -> None:
    flags.place(parser, SearchParams, "query", "words", nargs="+")
    flags.add(parser, SearchParams, SearchFlags, skip=("query",), usual={"limit": _HITS})
    flags.reading(parser)
    parser.set_defaults(no_wait=True)


_SESSION_FLAGS = (
    *("project", "source", "since", "until", "role", "tool", "session", "all"),
    *("context", "before", "after", "offset"),
)


def run(options: argparse.Namespace) -> int:
    import time

    words = " ".join(options.words)
    if options.memory:
        for name in _SESSION_FLAGS:
            if getattr(options, name) not in (None, False):
                flag = {"context": "-C", "before": "-B", "after": "-A"}.get(name, f"--{name}")
                raise UsageError(f"{flag} cannot be used with --memory", "it filters sessions: leave it out")
        answer = flags.ask(reach(options), MemoryParams, options, query=words)
        return present(options, answer, memories, what="Results")
    before, after = (options.context if one is None else one for one in (options.before, options.after))
    is_list = before is None and after is None
    around = {} if options.json and is_list else {"before": before or 0, "after": after or 0}
    client = reach(options)
    answer = flags.ask(client, SearchParams, options, query=words, **around)

    def drawn(answer: dict[str, Any], screen: Screen) -> str:
        return draw(answer, screen, time.time() * 1000, is_list=is_list)

    return present(options, answer, drawn, client=client, empty="Nothing was found", what="Results")


def draw(answer: Mapping[str, Any], screen: Screen, now: float, *, is_list: bool = True) -> str:
    hits = answer["hits"]
    for word, others in (answer.get("corrected") or {}).items():
        screen.hint(f"{word} was not found; searched for {', '.join(others)}")
    if answer.get("note"):
        screen.hint(answer["note"])
    if not hits:
        return ""
    if answer.get("allWords") is False:
        screen.hint("no message has all words")
    number = answer.get("matches", 0)
    if number > len(hits):
        following = f"; the next: --offset {answer['next']}" if answer.get("next") else ""
        or_more = " or more" if answer.get("matchesAtLeast") else ""
        screen.hint(f"{len(hits):,} of {number:,}{or_more} hits{following}")
    if is_list:
        import shlex

        name = shlex.quote(clean(enough_of_id(hits[0])))
        screen.hint(f"read one: burnctl show {name} --from {hits[0]['msgIdx'] or 0}")
        return "\n".join(_list(hits, screen, now))
    by_session: dict[str, list[Mapping[str, Any]]] = {}
    for hit in hits:
        by_session.setdefault(hit["sessionId"], []).append(hit)
    return "\n\n".join(_session(some, clean(enough_of_id(some[0])), screen, now) for some in by_session.values())


def _list(hits: Sequence[Mapping[str, Any]], screen: Screen, now: float) -> Iterator[str]:
    """`29660267  Add a retry  shop-api  3 days ago  …the words of the passage…` for each hit."""
    ids = [clean(enough_of_id(hit)) for hit in hits]
    facts = [
        (
            clean(hit["meta"]["title"] or "(no title)"),
            clean(last_name(hit["meta"]["project"])),
            ago(hit["meta"]["updatedAt"], now),
        )
        for hit in hits
    ]
    passages = [_passage(hit) for hit in hits]
    wide = [max(map(width_of, column)) for column in (ids, *zip(*facts, strict=True))]
    places = [1, 2]  # project and age, where there is room
    room = _PIPE_PASSAGE
    if not screen.is_pipe:
        wide[2] = min(wide[2], _PROJECT)
        left = screen.width - wide[0] - _LEAST_TITLE - _PASSAGE - 4
        for n, what in ((1, "project"), (2, "age")):
            if wide[n + 1] + 2 <= left:
                left -= wide[n + 1] + 2
            else:
                places.remove(n)
                screen.hide(what)
        room = left + _LEAST_TITLE + _PASSAGE  # of title and passage
        title = min(wide[1], _TITLE, max(_LEAST_TITLE + left // 2, 12))
        wide[1] = min(wide[1], max(title, room - max(width_of(_bare(passage)) for passage in passages)))
        room -= wide[1]
    for name, about, passage in zip(ids, facts, passages, strict=True):
        parts = [screen.paint(pad(name, wide[0]), "cyan"), screen.paint(pad(cut(about[0], wide[1]), wide[1]), "bold")]
        parts += [screen.paint(pad(cut(about[n], wide[n + 1]), wide[n + 1]), "dim") for n in places]
        parts += [_painted(passage, room, screen)] if room >= 10 else []
        yield "  ".join(parts).rstrip()


def _passage(hit: Mapping[str, Any]) -> str:
    """The match in one line, with marks around each word."""
    item = hit.get("matchedTitle") or next((item for item in hit["window"] if item.get("match")), None)
    return "" if item is None else " ".join(clean(_with_marks(item["snippet"], item["highlights"])).split())


def _painted(passage: str, room: int, screen: Screen) -> str:
    """The passage cut around its first marked word."""
    before, on, behind = passage.partition(_ON)
    if not on:
        return cut(passage, room)
    third = room // 3
    if width_of(before) > third and width_of(_bare(passage)) > room:  # from the start of a word, if one is near
        near = before[-max(third - 1, 0) :]
        before = "…" + (near.partition(" ")[2] if " " in near else near)
    line, used = "", 0
    for n, part in enumerate(f"{before}{_ON}{behind}".replace(_OFF, _ON).split(_ON)):
        visible = cut(part, room - used)
        line += screen.paint(visible, _MARK) if n % 2 else visible
        used += width_of(visible)
        if visible != part:
            break
    return line


def _with_marks(snippet: str, highlights: Sequence[Sequence[int]]) -> str:
    """The text with marks around each word that matched."""
    snippet = snippet.replace(_ON, " ").replace(_OFF, " ")
    text, at = "", 0
    for begin, end in highlights:
        text += f"{snippet[at:begin]}{_ON}{snippet[begin:end]}{_OFF}"
        at = end
    return text + snippet[at:]


def memories(answer: Mapping[str, Any], screen: Screen) -> str:
    """Entries of instruction and memory files, below the name of their file."""
    parts = []
    for entry in answer["entries"]:
        where = f"{tilde(clean(entry['path']))}:{entry['line']}"
        also = f" and {counted(len(entry['alsoIn']), 'other file')}" if entry["alsoIn"] else ""
        lines = [f"  {line}".rstrip() for line in lines_of(entry["text"], screen.width - 2)]
        parts.append("\n".join([screen.paint(where, "cyan") + screen.paint(also, "dim"), *lines]))
    if not parts:
        parts.append("No instruction or memory file has these words.")
    if answer.get("matches", 0) > len(answer["entries"]):
        screen.hint(f"{len(answer['entries']):,} of {answer['matches']:,} entries: --limit {answer['matches']}")
    if answer.get("note"):
        screen.hint(answer["note"])
    return "\n\n".join(parts)


def _session(hits: Sequence[Mapping[str, Any]], name: str, screen: Screen, now: float) -> str:
    first = hits[0]
    lines = [_head(first["meta"], name, screen, now)]
    if title := first.get("matchedTitle"):
        lines += [f"  {line}" for line in _marked(title["snippet"], title["highlights"], screen.width - 2, screen)]
    import shlex

    last = None
    rails = list(dict.fromkeys(str(hit["railId"]) for hit in hits))  # that of the best hit first
    items = [(str(hit["railId"]), item) for hit in hits for item in hit["window"]]
    for rail, item in sorted(items, key=lambda one: (rails.index(one[0]), one[1]["msgIdx"])):
        if last is not None and last != (rail, item["msgIdx"] - 1):
            lines.append("  ⋯")
        lines += _item(item, screen)
        last = (rail, item["msgIdx"])
    begin = max((first["msgIdx"] or 0) - 4, 0)
    flag = f" --rail {shlex.quote(clean(first['railId']))}" if first["railId"] not in (None, "main") else ""
    lines.append(screen.paint(f"  burnctl show {shlex.quote(name)}{flag} --from {begin}", "dim"))
    return "\n".join(lines)


def _head(meta: Mapping[str, Any], name: str, screen: Screen, now: float) -> str:
    room = screen.width - width_of(name) - 2
    title = cut(clean(meta["title"] or ""), room * 3 // 5 if room > 24 else room)
    about = [ago(meta["updatedAt"], now), last_name(meta["project"]), meta["source"]]
    facts = [clean(part) for part in (*about, counted(meta["messageCount"], "message")) if part]
    room_left = room - (width_of(title) + 2 if title else 0)
    while facts and width_of(" · ".join(facts)) > room_left:
        facts.pop()
    parts = [screen.paint(name, "cyan"), screen.paint(title, "bold"), screen.paint(" · ".join(facts), "dim")]
    return "  ".join(part for part, value in zip(parts, (name, title, facts), strict=True) if value)


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
    text = _with_marks(snippet, highlights)
    lines = [part for line in text.splitlines() if line.strip() for part in _broken(clean(line.expandtabs(4)), room)]
    first = next((n for n, line in enumerate(lines) if _ON in line), 0)
    begin = max(min(first - 1, len(lines) - _LINES), 0)
    painted = []
    for line in lines[begin : begin + _LINES]:
        parts = line.replace(_OFF, _ON).split(_ON)
        painted.append("".join(screen.paint(part, _MARK) if n % 2 else part for n, part in enumerate(parts)))
    return painted


def _broken(line: str, room: int) -> list[str]:
    """Like `wrap`, but marks take no room and end with the line."""
    if width_of(_bare(line)) <= room:
        return [line.strip()]
    parts, line_so_far, is_on = [], "", False
    for word in line.split():
        if line_so_far and width_of(_bare(f"{line_so_far} {word}")) > room:
            parts.append(line_so_far + (_OFF if is_on else ""))
            line_so_far = (_ON if is_on else "") + word
        else:
            line_so_far = f"{line_so_far} {word}" if line_so_far else word
        is_on = line_so_far.rfind(_ON) > line_so_far.rfind(_OFF)
    return [*(piece for part in parts for piece in _fit(part, room)), *_fit(line_so_far, room)]


def _bare(text: str) -> str:
    return text.replace(_ON, "").replace(_OFF, "")


def _fit(part: str, room: int) -> list[str]:
    """Breaks a word that is longer than the room, without its marks."""
    return [part] if width_of(_bare(part)) <= room else wrap(_bare(part), room)
