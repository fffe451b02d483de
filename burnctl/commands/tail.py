"""`burnctl tail`: requests as they happen, one line each."""

from __future__ import annotations

import contextlib
import sys
import time

from burnctl import flags
from burnctl.daemon import print_note, reach
from burnctl.errors import Failed, NoAnswer, NotRunning
from burnctl.output import json_line
from burnctl.render.names import last_name, short_id, short_model
from burnctl.render.numbers import clock, counted, money, number, percent
from burnctl.render.screen import Screen
from burnctl.render.text import clean, cut, pad
from burnctl.session_choice import whole_id
from burnd.contract import Params, param
from burnd.contract.daemon import TailParams

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterator
    from typing import Any

    from burnd.contract.results.daemon import TailEvent

    Turns = Iterator[TailEvent]
    from collections.abc import Mapping


HELP = (
    "shows requests as they happen, one line each, until Ctrl-C: time, project, session, model, tokens in and out, the "
    "share of the context from the cache, cost, activity and tools (a failed one has a !); and budgets that are "
    "exceeded. At a terminal the last line is the request that is still open. With --json there is one object a line, "
    "for open requests too"
)
EXAMPLES = ("burnctl tail --project .", "burnctl tail --json | jq --unbuffered .costUsd")
_LOOK_AGAIN_S = 0.5
_REMEMBERED = 1000


class TailFlags(Params):
    model: str | None = param(default=None, help="only this model", kind="model")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    flags.add(parser, TailParams, TailFlags)
    flags.reading(parser)


def _note_unknown(session: str) -> None:
    print_note(f"no session begins with {clean(session)!r} yet; waiting for one with this id")


def run(options: argparse.Namespace) -> int:
    client = reach(options)
    session = whole_id(client, options.session, _note_unknown)

    def follow() -> Turns:
        return client.tail(session=session, project=options.project, source=options.source)

    screen = Screen.of(options)
    landing = (
        landed
        for landed in _turns(follow(), follow, screen)
        if ("turn" not in landed or options.model in (None, landed["turn"].get("model")))
    )
    if not options.json:
        _show_stream(landing, screen)
        return 0
    for landed in landing:
        json_line(landed)
    return 0


def _turns(following: Turns, follow: Callable[[], Turns], screen: Screen) -> Turns:
    """Turns without end: at a terminal it waits for burnd to come back, in a pipe it ends."""
    while True:
        try:
            yield from following
        except NoAnswer:
            if not sys.stdout.isatty():
                raise
        print_note(_wipe(screen) + "burnd has gone; waiting until it is back ...")
        following = _when_back(follow)
        print_note("burnd is back")


def _when_back(follow: Callable[[], Turns]) -> Turns:
    while True:
        time.sleep(_LOOK_AGAIN_S)
        with contextlib.suppress(NotRunning, Failed):  # it may be starting
            return follow()


def _wipe(screen: Screen) -> str:
    return "\r\x1b[K" if screen.color else ""


def _show_stream(turns: Turns, screen: Screen) -> None:
    """Prints settled turns; at a terminal also the newest open one, which is replaced."""
    wipe = _wipe(screen)
    lines_by_id: dict[Any, str] = {}  # revised turns are printed again if their line changes
    print(heading(screen), flush=True)
    for landed in turns:
        if landed.get("missed"):
            print(f"{wipe}... {counted(landed['missed'], 'request')} not shown", flush=True)
        if "budget" in landed:
            from burnctl.commands.status import exceeded

            print(wipe + exceeded(landed["budget"], screen), flush=True)
        if "turn" not in landed:
            continue
        turn = landed["turn"] | {"costUsd": landed.get("costUsd")}
        if landed.get("open"):
            if wipe:
                print(wipe + turn_line(turn, screen, dim=True), end="", flush=True)
            continue
        line = turn_line(turn, screen)
        if lines_by_id.pop(turn.get("messageId"), None) != line:
            print(wipe + line, flush=True)
        lines_by_id[turn.get("messageId")] = line
        if len(lines_by_id) > _REMEMBERED:
            del lines_by_id[next(iter(lines_by_id))]


# Title, width, alignment, style. The last one takes the rest.
_NARROW = (
    ("time", 8, "left", "dim"),
    ("project", 10, "left", "cyan"),
    ("session", 12, "left", "dim"),
    ("model", 15, "left", ""),
    ("input", 5, "right", ""),
    ("output", 6, "right", ""),
    ("cached", 6, "right", ""),
    ("cost", 9, "right", "bold"),
)
_MIDDLE = (*_NARROW, ("activity", 13, "left", ""), ("tools", 0, "left", "dim"))
_WIDE = (
    *_NARROW[:1],
    ("source", 11, "left", "dim"),
    ("project", 20, "left", "cyan"),
    ("session", 12, "left", "dim"),
    ("model", 24, "left", ""),
    *_NARROW[4:],
    ("activity", 13, "left", ""),
    ("tools", 0, "left", "dim"),
)
_SMALL = (
    ("time", 8, "left", "dim"),
    ("project", 9, "left", "cyan"),
    ("model", 10, "left", ""),
    ("cost", 8, "right", "bold"),
)
_NARROW_FROM, _MIDDLE_FROM, _WIDE_FROM = 79, 100, 130


def heading(screen: Screen) -> str:
    titles = [title for title, *_ in _layout(screen)]
    return screen.paint(
        _joined([pad(t, wide, a) for t, (_, wide, a, _) in zip(titles, _layout(screen), strict=True)]), "bold"
    )


def turn_line(turn: Mapping[str, Any], screen: Screen, *, dim: bool = False) -> str:
    usage = turn.get("usage") or {}
    cached = usage.get("cacheRead", 0)
    context = cached + sum(usage.get(name, 0) for name in ("input", "cacheCreate5m", "cacheCreate1h"))
    counts: dict[str, int] = {}
    for call in turn.get("toolCalls") or ():
        name = str(call.get("name") or "?") + ("!" if call.get("isError") else "")
        counts[name] = counts.get(name, 0) + 1
    values = {
        "time": clock(turn["ts"]) if turn.get("ts") else "",
        "source": str(turn.get("source") or ""),
        "project": last_name(turn.get("project")),
        "session": short_id(turn.get("sessionId")),
        "model": short_model(turn.get("model")),
        "input": number(context),
        "output": number(usage.get("output", 0) + usage.get("reasoning", 0)),
        "cached": percent(cached / context) if context else "",
        "cost": money(turn.get("costUsd")),
        "activity": str(turn.get("activity") or ""),
        "tools": " ".join(name if n == 1 else f"{name} x{n}" for name, n in counts.items()),
    }
    cells, used = [], 0
    for title, wide, align, style in _layout(screen):
        room = wide or max(screen.width - used, 4)
        text = cut(clean(values[title]), room)
        padded = pad(text, wide, align) if wide else text
        cells.append(padded.replace(text, screen.paint(text, "dim" if dim else style), 1) if text else padded)
        used += wide + 1
    return _joined(cells)


def _layout(screen: Screen) -> tuple[tuple[str, int, str, str], ...]:
    if screen.width >= _WIDE_FROM:
        return _WIDE
    return _MIDDLE if screen.width >= _MIDDLE_FROM else _NARROW if screen.width >= _NARROW_FROM else _SMALL


def _joined(cells: list[str]) -> str:
    return " ".join(cells).rstrip()
