"""`burnctl resume`: prints the command that continues a session in its harness and folder."""

from __future__ import annotations

from burnctl import flags, session_choice
from burnctl.daemon import reach, say
from burnctl.errors import BurnctlError
from burnctl.output import as_json
from burnctl.render.text import clean

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping
    from typing import Any

HELP = (
    "prints the command that continues a session in its folder and its harness. --json prints the facts of the session"
)
EXAMPLES = ("burnctl resume 0f9c1d2e", "burnctl resume scheduler", 'eval "$(burnctl resume --last)"')


def add_arguments(parser: argparse.ArgumentParser) -> None:
    session_choice.add_session(parser)
    flags.reading(parser)


def run(options: argparse.Namespace) -> int:
    client = reach(options)
    session = client.sessions_meta(session_choice.chosen_session(client, options))
    if options.json:
        return as_json(session)
    print(command(session))
    if _is_gone(session):
        remedy = f"; to write it again first: burnctl restore {_word(session['sessionId'])}"
        lost = ", and it cannot be restored, since its content is not stored"
        say(f"its log is gone{remedy if session['content'] == 'yes' else lost}")
    return 0


def _is_gone(session: Mapping[str, Any]) -> bool:
    """Whether the harness has logs, but not this session's."""
    import os
    from importlib import import_module

    from burnd.harness.registry import BY_SOURCE

    product = BY_SOURCE.get(session["source"] or "")
    if product is None or not product.restore:
        return False
    logs = import_module(product.restore).find_logs(product.logs(os.environ, os.path.expanduser("~")))
    return logs is not None and session["sessionId"] not in logs


def command(session: Mapping[str, Any]) -> str:
    """A shell command line, quoted for any folder. Raises BurnctlError if the harness cannot resume."""
    import os

    from burnd.harness.registry import BY_SOURCE

    product = BY_SOURCE.get(session["source"] or "")
    if product is None:
        whose = session["source"] or "an unknown program"
        raise BurnctlError(f"this session was made by {whose}, which has no command to continue it")
    line = " ".join(_with_id((product.program, *product.resume), session["sessionId"]))
    folder = session["project"]
    if not folder:
        return line
    if not os.path.isdir(folder):
        say(f"{clean(folder)} no longer exists")
    return f"cd {_word(f'./{folder}' if folder.startswith('-') else folder)} && {line}"


def _with_id(words: tuple[str, ...], session_id: str) -> list[str]:
    """The harness's command, safe for an id with a leading dash."""
    *before, last = words
    if not session_id.startswith("-"):
        return [*words, _word(session_id)]
    return [*before, f"{last}={_word(session_id)}"] if last.startswith("-") else [*words, "--", _word(session_id)]


def _word(text: str) -> str:
    """A quoted word; control characters are written as bash and zsh escapes."""
    import shlex

    if text.isprintable():
        return shlex.quote(text)
    return "$'" + "".join(c if c.isprintable() and c not in "\\'" else f"\\U{ord(c):08x}" for c in text) + "'"
