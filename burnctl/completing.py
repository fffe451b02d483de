"""Candidates for shell completion: verbs, flags, choices and names from the daemon; for bash they are quoted."""

from __future__ import annotations

import argparse

from burnctl.commands import present
from burnctl.errors import BurnctlError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from burnctl.parser import Parser
    from burnd.contract import Param

Candidate = tuple[str, str]  # what to put there, and a word about it

ANSWER_S = 0.4  # a person has pressed Tab and waits
_MOST_SESSIONS, _MOST_STAMPS = 200, 1000


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


def bash_candidates(words: Sequence[str], breaks: str) -> list[str]:
    """Quoted candidates for bash. `words` are COMP_WORDS after `burnctl`, `breaks` is COMP_WORDBREAKS.

    bash splits words at some characters (`=`, `:`, `@`). The parts are joined here, and candidates begin after the last
    split, because bash replaces only what follows it. After an opening quote it replaces the whole word.
    """
    *before, typed = _joined(words, set(breaks) - set(" \t\n'\""))
    start = typed[:1] if typed[:1] in ("'", '"') else ""
    plain = _unquoted(typed)
    if plain is None:
        return []
    found = candidates([*(_unquoted(word) or word for word in before), plain])
    if start:
        return [_within(start, word) for word, _ in found]
    last = max((at for at, char in enumerate(typed) if char in breaks and not _is_escaped(typed, at)), default=-1)
    present_part = _unquoted(typed[: last + 1]) or ""
    return [_escaped(word[len(present_part) :]) for word, _ in found]


def _joined(words: Sequence[str], breaks: set[str]) -> list[str]:
    """Joins the parts of words that bash split, except at the `=` after a flag."""
    joined: list[str] = []
    glue = False
    for word in words:
        is_break = bool(word) and set(word) <= breaks
        if is_break and word == "=" and joined and joined[-1].startswith("-"):
            joined.append("")
            glue = True
        elif joined and (glue or is_break):
            joined[-1] += word
            glue = is_break
        else:
            joined.append(word)
            glue = is_break
    return joined or [""]


def _unquoted(word: str) -> str | None:
    """A word without its opening quote and escapes. None if it has other quotes, or something that bash expands."""
    quote = word[:1] if word[:1] in ("'", '"') else ""
    plain: list[str] = []
    chars = iter(word[len(quote) :])
    for char in chars:
        if (char == quote if quote else char in "'\"") or (quote != "'" and char in "$`"):
            return None
        if char == "\\" and quote != "'":
            following = next(chars, "")
            char = following if not quote or following in '$`"\\' else char + following
        plain.append(char)
    return "".join(plain)


def _is_escaped(word: str, at: int) -> bool:
    before = word[:at]
    return (len(before) - len(before.rstrip("\\"))) % 2 == 1


def _escaped(text: str) -> str:
    """The text with a backslash before every character that may be special in bash."""
    return "".join(char if char.isalnum() or char in "_-./:=@%+," or ord(char) > 127 else f"\\{char}" for char in text)


def _within(quote: str, text: str) -> str:
    """The text escaped for an open quote. bash adds the closing quote, unless the text already ends with one."""
    if quote == "'":
        escaped = text.replace("'", "'\\''")
        return escaped[:-1] if text.endswith("'") else escaped
    escaped = "".join(f"\\{char}" if char in '$`"\\' else char for char in text)
    escaped = escaped.replace("!", "\"'!'\"")  # in double quotes a backslash would stay before it
    return f'{escaped}"' if escaped.endswith('"') else escaped


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
    """What an argument may be: its choices, or the names of its kind that are recorded."""
    if isinstance(action, argparse._SubParsersAction):
        return [(choice.dest, _line(choice.help)) for choice in action._choices_actions]
    one: Param | None = getattr(action, "param", None)
    if one is None:
        return [(str(choice), "") for choice in action.choices or ()]
    if one.choices:
        return [(word, "") for word in (*one.choices, *filter(None, [one.others.removesuffix("KEY")]))]
    try:
        if one.kind == "session":
            return _sessions()
        if one.kind == "tag":
            return _tags()
        if one.kind == "setting":
            return _settings()
        return _rows(one.kind or one.name) if (one.kind or one.name) in _DIMENSIONS else []
    except BurnctlError:
        return []


_DIMENSIONS = ("model", "project", "agent", "branch", "provider")


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
        found.append((row.get("sessionId"), cut(clean("  ".join(filter(None, words))), 60)))
    return _insertable(found)


def _rows(by: str) -> list[Candidate]:
    """The models, projects, agents, ... there are, those that cost most first."""
    from burnctl.client import Client
    from burnctl.render import number

    with Client(timeout=ANSWER_S) as client:
        rows = client.summary(by=by).get("rows") or []
    return _insertable([(row.get("key"), f"{number(row.get('turns'))} requests") for row in rows])


def _tags() -> list[Candidate]:
    from burnctl.client import Client

    with Client(timeout=ANSWER_S) as client:
        stamps = client.stamps_list(limit=_MOST_STAMPS).get("stamps") or []
    pairs = {f"{key}={value}": "" for stamp in reversed(stamps) for key, value in stamp["enrichment"].items()}
    return _insertable(list(pairs.items()))


def _settings() -> list[Candidate]:
    from burnctl.client import Client

    with Client(timeout=ANSWER_S) as client:
        rows = client.config_show().get("settings") or []
    return _insertable([(row["key"], _line(row.get("says"))) for row in rows])


def _insertable(found: Sequence[tuple[object, str]]) -> list[Candidate]:
    """Leaves out names that cannot be inserted: empty ones, those with control or invisible characters, and those with
    a leading dash, which would be read as flags."""
    from burnctl.render import clean

    return [
        (name, about)
        for name, about in found
        if isinstance(name, str) and name and not name.startswith("-") and name.isprintable() and clean(name) == name
    ]


def _line(text: str | None) -> str:
    return (text or "").replace("\t", " ").replace("\n", " ")
