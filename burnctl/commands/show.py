"""`burnctl show`: the messages of a session."""

from __future__ import annotations

from burnctl import flags, session_choice
from burnctl.daemon import reach
from burnctl.output import as_json
from burnctl.render.names import harness_name, short_id, short_model, tilde
from burnctl.render.numbers import clock, date, money, number, size
from burnctl.render.screen import Screen
from burnctl.render.text import clean, cut, flow, lines_of, wrap
from burnd.contract import Params, param
from burnd.contract.sessions import MessagesParams

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable, Iterator, Mapping
    from typing import Any

    from burnctl.client import Client
    from burnd.contract.results.sessions import Messages

HELP = (
    "shows the messages of a session in a pager: prompts and answers in full, calls, results, thinking and a long "
    "system prompt in a line each (--raw shows all of them), with the cost of each request in the margin. --json "
    "prints one page of at most 200 messages"
)
EXAMPLES = ("burnctl show", "burnctl show scheduler", "burnctl show 0f9c1d2e --from 120 --limit 20 --raw")
_PAGE = 200
_MARGIN = 10
_PIPE_FOLD, _UNLIMITED = 200, 1_000_000  # characters of a folded and of a whole line in a pipe
_LONG_PROMPT = 600  # characters: a longer system prompt is folded
_ROLES = {"user": "bold cyan", "assistant": "bold green", "system": "bold yellow", "tool_result": "bold magenta"}
_CALL, _RESULT, _THOUGHT, _FILE = "▸", "◂", "∴", "+"
_FIRST_ARGUMENTS = ("file_path", "filePath", "notebook_path", "path", "command", "query", "url", "description")


class ShowFlags(Params):
    limit: int = param(default=500, help="at most this many messages", kind="count", most=10_000)
    raw: bool = param(default=False, help="print arguments, results and thinking as well, 64 KiB of each")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    session_choice.add_session(parser)
    flags.add(parser, MessagesParams, skip=("id", "limit"))
    flags.add(parser, ShowFlags)
    parser.set_defaults(offset=0)
    flags.reading(parser)


def run(options: argparse.Namespace) -> int:
    client = reach(options)
    options.session = session_choice.chosen_session(client, options)
    if options.json:
        return as_json(_page(client, options, options.offset, options.limit))
    screen = Screen.of(options)
    pages = _pages(client, options)
    first = next(pages)
    drawing = Transcript(screen, raw=options.raw)
    lines = _heading(first, screen) + list(drawing.drawn(first["messages"]))
    last = first
    for page in pages:
        lines += drawing.drawn(page["messages"])
        last = page
    screen.report(last, "\n".join([*lines, *_ending(last, options, screen)]).strip("\n"), "Results")
    return 0


def _pages(client: Client, options: argparse.Namespace) -> Iterator[Messages]:
    begin, remaining = options.offset, max(options.limit, 1)
    while True:
        page = _page(client, options, begin, remaining)
        yield page
        remaining -= len(page["messages"])
        if page.get("next") is None or remaining <= 0:
            return
        begin = page["next"]


def _page(client: Client, options: argparse.Namespace, begin: int, limit: int) -> Messages:
    return client.sessions_messages(options.session, offset=begin, limit=min(limit, _PAGE), rail=options.rail)


def _heading(page: Messages, screen: Screen) -> list[str]:
    def line(text: str, style: str) -> str:
        return screen.paint(clean(text) if screen.is_pipe else cut(clean(text), screen.width), style)

    about = [part for part in (harness_name(page["source"]), tilde(page["project"] or "")) if part]
    lines = [line(page["title"] or page["sessionId"], "bold")]
    facts = [clean(fact) for fact in ([page["sessionId"], *about] if page["title"] else about)]
    lines += [screen.paint(part, "dim") for part in flow(facts, screen)]
    others = [rail["railId"] for rail in page["rails"] if rail["railId"] != page["railId"]]
    if page["railId"] != "main" or others:
        own = "main conversation" if page["railId"] == "main" else f"subagent {page['railId']}"
        rest = own + (f"; see others with --rail: {', '.join(others[:6])}" if others else "")
        lines.append(line(rest + (", ..." if len(others) > 6 else ""), "dim"))
    if not page["retained"]:
        why = wrap(clean(page["why"][:1].upper() + page["why"][1:] + "."), screen.width)
        lines += ["", *(screen.paint(part, "yellow") for part in why)]
    return lines


def _ending(page: Messages, options: argparse.Namespace, screen: Screen) -> list[str]:
    if page.get("next") is None:
        # The heading says why a session has no messages.
        is_past_end = not page["messages"] and page["total"]
        return ["", f"No messages from there on; the last one is #{page['total'] - 1:,}."] if is_past_end else []
    import shlex

    same = ([f"--rail {shlex.quote(options.rail)}"] if options.rail else []) + (["--raw"] if options.raw else [])
    again = clean(" ".join(["burnctl show", shlex.quote(short_id(options.session)), *same, f"--from {page['next']}"]))
    return ["", screen.paragraph(f"{page['total'] - page['next']:,} more: {again}", "dim")]


class Transcript:
    """Draws messages with their author and cost; calls and thinking take a line each."""

    def __init__(self, screen: Screen, *, raw: bool = False) -> None:
        self._screen = screen
        self._raw = raw
        self._room = _PIPE_FOLD if screen.is_pipe else max(screen.width - _MARGIN, 20)
        self._day = ""

    def drawn(self, messages: Iterable[Mapping[str, Any]]) -> Iterator[str]:
        for message in messages:
            if (today := date(message["ts"])) != self._day:
                self._day = today
                yield ""
                yield self._screen.paint(f"{'':{_MARGIN}}{today}", "dim")
            # Results follow their calls, without a heading.
            if message["role"] != "tool_result" or self._raw:
                yield ""
                yield self._head(message)
            for block in message["blocks"]:
                for line in self._block(block, is_system=message["role"] == "system"):
                    yield f"{'':{_MARGIN}}{line}".rstrip()
            if message.get("blocksLeftOut"):
                yield f"{'':{_MARGIN}}… and {message['blocksLeftOut']:,} more blocks"

    def _head(self, message: Mapping[str, Any]) -> str:
        role, cost, facts = message["role"].replace("_", " "), "", [clock(message["ts"]), f"#{message['msgIdx']}"]
        if turn := message.get("turn"):
            output = turn["usage"]["output"] + turn["usage"]["reasoning"]
            tokens = f"{number(sum(turn['usage'].values()) - output)} in, {number(output)} out"
            cost, facts = money(turn.get("costUsd")), [*filter(None, [short_model(turn["model"])]), tokens, *facts]
        margin = self._screen.paint(f"{cost:>{_MARGIN - 2}}  ", "yellow")
        head = self._screen.paint(role, _ROLES.get(message["role"], "bold"))
        rest = cut(clean(f" · {' · '.join(facts)}"), self._room - len(role))
        return (margin + head + self._screen.paint(rest, "dim")).rstrip()

    def _block(self, block: Mapping[str, Any], *, is_system: bool) -> Iterator[str]:
        is_cut = bool(block.get("truncated"))
        if block.get("lost"):
            yield self._screen.paint(f"[{block['kind']}: {block['lost']} on disk]", "red")
        elif "toolUse" in block:
            use = block["toolUse"]
            yield from self._tool(
                _CALL, use["name"], "blue", use.get("input"), _arguments(use.get("input")), is_cut=is_cut
            )
        elif "toolResult" in block:
            result = block["toolResult"]
            style, failed = ("red", " failed" * (not self._raw)) if result.get("isError") else ("magenta", "")
            name = (result.get("toolName") or "result") + failed
            yield from self._tool(_RESULT, name, style, result.get("content"), is_cut=is_cut)
        elif "file" in block and not block.get("text"):
            file = block["file"]
            much = f", {size(file['bytes'])}" if file.get("bytes") else ""
            text = clean(f"{file.get('name') or 'file'} ({file['mime']}{much})")
            yield self._screen.paint(f"{_FILE} {text}", "magenta")
        elif block["kind"] == "thinking" and not self._raw:
            yield self._folded(_THOUGHT, "thinking", block.get("text") or "", "dim")
        elif is_system and not self._raw and len(block.get("text") or "") > _LONG_PROMPT:
            yield self._folded(_THOUGHT, "system prompt", block["text"], "dim", is_cut=is_cut)
        else:
            yield from self._whole(block.get("text") or "", is_cut=is_cut)

    def _whole(self, text: str, *, is_cut: bool) -> Iterator[str]:
        yield from lines_of(text, _UNLIMITED if self._screen.is_pipe else self._room)
        if is_cut:
            yield self._screen.paint("… cut here", "dim")

    def _tool(
        self, sign: str, name: str, style: str, value: Any, brief: str | None = None, *, is_cut: bool
    ) -> Iterator[str]:
        """A call or a result: in a line, with `brief` instead of its text and size, or with --raw in full."""
        if self._raw:
            yield self._screen.paint(f"{sign} {clean(name)}", style)
            yield from self._whole(_plain(value), is_cut=is_cut)
        elif brief is None:
            yield self._folded(sign, name, _plain(value), style, is_cut=is_cut)
        else:
            yield self._folded(sign, name, brief, style, with_size=False)

    def _folded(
        self, sign: str, name: str, text: str, style: str, *, with_size: bool = True, is_cut: bool = False
    ) -> str:
        head = f"{sign} {clean(name)}"
        much = f" {size(len(text.encode(errors='replace')))}" if with_size and text else ""
        much += " and more" if is_cut else ""
        first = clean(" ".join(text.split(maxsplit=self._room)[: self._room]))  # more words than fit
        rest = cut(f"{much}  {first}".rstrip(), max(self._room - len(head), 0))
        return self._screen.paint(head, style) + self._screen.paint(rest, "dim")


def _arguments(value: Any) -> str:
    """The most telling arguments of a call in one line: a pattern with its place, a path, a command."""
    if not isinstance(value, dict):
        return _plain(value)
    if isinstance(value.get("pattern"), str):
        where = value.get("path") or value.get("glob")
        return f'"{value["pattern"]}"' + (f" in {_plain(where)}" if where else "")
    names = [name for name in _FIRST_ARGUMENTS if name in value]
    return " ".join(_plain(value[name]) for name in (names[:1] or list(value)))


def _plain(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, list) and all(isinstance(item, dict) and isinstance(item.get("text"), str) for item in value):
        return "\n".join(item["text"] for item in value)
    if value is None:
        return ""
    import json

    return json.dumps(value, ensure_ascii=False, indent=2)
