"""`burnctl tail`: requests as they happen, one line each."""

from __future__ import annotations

import contextlib
import sys
import time

from burnctl import flags
from burnctl import options as own
from burnctl.errors import Failed, NoAnswer, NotRunning
from burnctl.naming import whole_id
from burnctl.starting import reach, say
from burnd.contract.daemon import TailParams

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterator
    from typing import Any

    from burnctl.render import Screen
    from burnd.contract.results.daemon import TailEvent

    Turns = Iterator[TailEvent]

HELP = (
    "shows requests as they happen, one line each, until Ctrl-C: time, project, session, model, tokens in and out, the "
    "share of the context from the cache, cost, activity and tools (a failed one has a !); and budgets that are "
    "exceeded. At a terminal the last line is the request that is still open. With --json there is one object a line, "
    "for open requests too"
)
EXAMPLES = ("burnctl tail --project .", "burnctl tail --json | jq --unbuffered .costUsd")
_LOOK_AGAIN_S = 0.5
_REMEMBERED = 1000


def add_arguments(parser: argparse.ArgumentParser) -> None:
    flags.add(parser, TailParams, own.Tail)
    flags.reading(parser)


def run(options: argparse.Namespace) -> int:
    client = reach(options)
    session = whole_id(client, options.session)

    def follow() -> Turns:
        return client.tail(session=session, project=options.project, source=options.source)

    from burnctl.render import Screen

    screen = Screen.of(options)
    landing = (landed for landed in _turns(follow(), follow, screen) if _is_wanted(landed, options.model))
    if not options.json:
        _show(landing, screen)
        return 0
    from burnctl.output import json_line

    for landed in landing:
        json_line(landed)
    return 0


def _is_wanted(landed: TailEvent, model: str | None) -> bool:
    """Turns of the model that was asked for, and every budget that is crossed: it is about all of them."""
    return "turn" not in landed or model in (None, landed["turn"].get("model"))


def _turns(following: Turns, follow: Callable[[], Turns], screen: Screen) -> Turns:
    """Turns, for ever. When burnd goes, a person's terminal waits until it is back; a script's pipe ends."""
    while True:
        try:
            yield from following
        except NoAnswer:
            if not sys.stdout.isatty():
                raise
        say(_wipe(screen) + "burnd has gone; waiting until it is back ...")
        following = _when_back(follow)
        say("burnd is back")


def _when_back(follow: Callable[[], Turns]) -> Turns:
    while True:
        time.sleep(_LOOK_AGAIN_S)
        with contextlib.suppress(NotRunning, Failed):  # it may be starting, and say so
            return follow()


def _wipe(screen: Screen) -> str:
    """Takes the last line back, where the screen can."""
    return "\r\x1b[K" if screen.color else ""


def _show(turns: Turns, screen: Screen) -> None:
    """Settled turns stay; below them, where the screen can take a line back, the newest open one."""
    from burnctl.render.numbers import counted
    from burnctl.render.turns import heading, turn_line

    wipe = _wipe(screen)
    shown: dict[Any, str] = {}  # a turn that is revised is shown again when its line reads differently
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
        if shown.pop(turn.get("messageId"), None) != line:
            print(wipe + line, flush=True)
        shown[turn.get("messageId")] = line
        if len(shown) > _REMEMBERED:
            del shown[next(iter(shown))]
