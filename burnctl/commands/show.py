"""`burnctl show`: a session's conversation, to be read."""

from __future__ import annotations

from burnctl import flags
from burnctl import options as own
from burnctl.starting import reach
from burnd.contract.sessions import MessagesParams

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator
    from typing import Any

    from burnctl.client import Client

HELP = (
    "shows what was said in a session, in a pager: who said it, calls and their results in a line each, and what each "
    "turn cost at API prices in the margin. SESSION is an id, or as much of its beginning as no other one shares. "
    "With --json it prints one page of at most 200 messages as the socket gives it"
)
EXAMPLES = ("burnctl show 0f9c1d2e", "burnctl show 0f9c1d2e --from 120 --limit 20 --raw")
_PAGE = 200


def add_arguments(parser: argparse.ArgumentParser) -> None:
    flags.place(parser, MessagesParams, "id", "session")
    flags.add(parser, MessagesParams, skip=("id", "limit"))
    flags.add(parser, own.Show)
    parser.set_defaults(offset=0)
    flags.reading(parser)


def run(options: argparse.Namespace) -> int:
    client = reach(options)
    if options.json:
        from burnctl.output import as_json

        return as_json(_page(client, options, options.offset, options.limit))
    from burnctl.render.screen import Screen
    from burnctl.render.transcript import Transcript

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


def _pages(client: Client, options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Page after page, until there are as many messages as were asked for."""
    begin, left = options.offset, max(options.limit, 1)
    while True:
        page = _page(client, options, begin, left)
        yield page
        left -= len(page["messages"])
        if page.get("next") is None or left <= 0:
            return
        begin = page["next"]


def _page(client: Client, options: argparse.Namespace, begin: int, limit: int) -> dict[str, Any]:
    return client.sessions_messages(options.session, offset=begin, limit=min(limit, _PAGE), rail=options.rail)


def _heading(page: dict[str, Any], screen: Any) -> list[str]:
    from burnctl.render.paragraphs import wrapped
    from burnctl.render.text import clean, cut

    def line(text: str, style: str) -> str:
        return str(screen.paint(cut(clean(text), screen.width), style))

    about = [str(part) for part in (page["source"], page["project"]) if part]
    lines = [line(page["title"] or page["sessionId"], "bold")]
    lines.append(line(" · ".join([page["sessionId"], *about] if page["title"] else about), "dim"))
    others = [rail["railId"] for rail in page["rails"] if rail["railId"] != page["railId"]]
    if page["railId"] != "main" or others:
        own = "main conversation" if page["railId"] == "main" else f"subagent {page['railId']}"
        shown = own + (f"; others, see --rail: {', '.join(others[:6])}" if others else "")
        lines.append(line(shown + (", ..." if len(others) > 6 else ""), "dim"))
    if not page["retained"]:
        why = wrapped(clean(page["why"][:1].upper() + page["why"][1:] + "."), screen.width)
        lines += ["", *(str(screen.paint(part, "yellow")) for part in why)]
    return lines


def _ending(page: dict[str, Any], options: argparse.Namespace, screen: Any) -> list[str]:
    if page.get("next") is None:
        return _where_it_ends(page)
    import shlex

    from burnctl.render.text import clean

    same = ([f"--rail {shlex.quote(options.rail)}"] if options.rail else []) + (["--raw"] if options.raw else [])
    again = clean(" ".join(["burnctl show", shlex.quote(options.session), *same, f"--from {page['next']}"]))
    return ["", screen.paint(f"{page['total'] - page['next']:,} more: {again}", "dim")]


def _where_it_ends(page: dict[str, Any]) -> list[str]:
    """The line below a page past the last message. A session without messages has the reason in its heading."""
    if page["messages"] or not page["total"]:
        return []
    return ["", f"No messages from there on; the last one is #{page['total'] - 1:,}."]
