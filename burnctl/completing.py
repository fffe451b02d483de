"""What could come next on a command line: verbs, flags, choices, and names that only the daemon knows."""

from __future__ import annotations

import argparse

from burnctl.commands import present
from burnctl.errors import BurnctlError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from burnctl.parser import Parser

Candidate = tuple[str, str]  # what to put there, and a word about it

ANSWER_S = 0.4  # a person has pressed Tab and waits
_MOST_SESSIONS = 200


def candidates(words: Sequence[str]) -> list[Candidate]:
    """For the words after `burnctl`, the last of which is being typed (and may be empty)."""
    *before, typed = words or [""]
    if not before:
        found = [(verb, line) for verb, (_, line) in present().items()] + [("help", "explain a command")]
    elif before[0] == "help":
        found = [(verb, line) for verb, (_, line) in present().items()] if len(before) == 1 else []
    else:
        found = _of_verb(before[0], before[1:], typed)
    return [(word, about) for word, about in found if word.startswith(typed)]


def _of_verb(verb: str, before: Sequence[str], typed: str) -> list[Candidate]:
    from burnctl.cli import load
    from burnctl.parser import parser_for

    if "--" in before:
        return []  # what follows is another program's
    try:
        parser = parser_for(verb, load(verb))
    except BurnctlError:
        return []
    return _of_parser(parser, before, typed)


def _of_parser(parser: Parser, before: Sequence[str], typed: str) -> list[Candidate]:
    places = [action for action in parser._actions if not action.option_strings]
    flags = {name: action for action in parser._actions for name in action.option_strings}
    awaiting: argparse.Action | None = None
    used = 0
    for at, word in enumerate(before):
        if awaiting is not None:
            awaiting = None
        elif word.startswith("-"):
            flag = flags.get(word)
            awaiting = flag if flag is not None and flag.nargs != 0 else None
        else:
            place = places[min(used, len(places) - 1)] if places else None
            if isinstance(place, argparse._SubParsersAction):
                chosen = place.choices.get(word)
                return _of_parser(chosen, before[at + 1 :], typed) if chosen else []
            used += 1
    if awaiting is not None:
        return _values(awaiting)
    if typed.startswith("-"):
        return [
            (name, _line(a.help)) for name, a in flags.items() if a.help != argparse.SUPPRESS and name not in before
        ]
    if not places or (used >= len(places) and places[-1].nargs not in ("*", "+")):
        return []
    return _values(places[min(used, len(places) - 1)])


def _values(action: argparse.Action) -> list[Candidate]:
    """What an argument may be: its choices, or by its name the sessions or models there are."""
    if isinstance(action, argparse._SubParsersAction):
        return [(choice.dest, _line(choice.help)) for choice in action._choices_actions]
    if action.choices is not None:
        return [(str(choice), "") for choice in action.choices]
    if action.dest in ("by", "source"):
        return _listed(action)
    ask = {"session": _sessions, "model": _models}.get(action.dest)
    try:
        return ask() if ask is not None else []
    except BurnctlError:
        return []


def _listed(action: argparse.Action) -> list[Candidate]:
    """The words that its help lists, as in `what the rows are: model, day, or tag:KEY (model)`."""
    import re

    words = re.split(",? or |, ", (action.help or "").partition(": ")[2].partition(" (")[0])
    return [(word.removesuffix("KEY"), "") for word in words if word]


def _sessions() -> list[Candidate]:
    """The newest sessions, with what tells a person which is which."""
    import time

    from burnctl.client import Client
    from burnctl.render import ago, clean, cut
    from burnctl.render.names import last_name

    with Client(timeout=ANSWER_S) as client:
        rows = client.sessions_list(limit=_MOST_SESSIONS).get("sessions") or []
    now = time.time() * 1000
    found = []
    for row in rows:
        words = (ago(row.get("updatedAt"), now), last_name(row.get("project")), str(row.get("title") or ""))
        found.append((clean(row.get("sessionId") or ""), cut(clean("  ".join(filter(None, words))), 60)))
    return found


def _models() -> list[Candidate]:
    from burnctl.client import Client
    from burnctl.render import clean, number

    with Client(timeout=ANSWER_S) as client:
        rows = client.summary(by="model").get("rows") or []
    return [(clean(row.get("key") or ""), f"{number(row.get('turns'))} turns") for row in rows]


def _line(text: str | None) -> str:
    return (text or "").replace("\t", " ").replace("\n", " ")
