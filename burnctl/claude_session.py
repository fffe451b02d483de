"""The session that a run of Claude Code writes to, from its arguments or the transcripts of the folder."""

from __future__ import annotations

import os

from burnctl.errors import BurnctlError
from burnd.harness.claude_code.product import config_folder as named_config_folder
from burnd.harness.claude_code.product import project_folders

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

NEW, NAMED, RESUMED, CONTINUED, PICKED, NO_SESSION = "new", "named", "resumed", "continued", "picked", "no session"
BACKGROUND = "background"  # a new session whose id the client chooses

# Options whose next word is always their value.
_WITH_VALUE = """
    --agent --agents --append-system-prompt --append-system-prompt-file --debug-file --effort --fallback-model
    --input-format --json-schema --max-budget-usd --max-thinking-tokens --max-turns --model --name --output-format
    --permission-mode --permission-prompt-tool --plugin-dir --session-id --setting-sources --settings --system-prompt
    --system-prompt-file --teammate-mode
""".split()  # noqa: SIM905 - as words they can be read
_SHORT = {"c": "--continue", "r": "--resume", "h": "--help", "v": "--version", "n": "--name", "p": "--print"}
_SHORT_ALONE = "chvp"  # without a value, so that more letters may follow
# Subcommands, which hold no conversation.
_COMMANDS = """
    agents auth auto-mode config doctor install mcp migrate-installer plugin plugins remote-control setup-token update
    upgrade
""".split()  # noqa: SIM905 - as words they can be read


class Session:
    """The session that a run will write to, with its id if the arguments name it.

    `has_past`: it resumes a conversation, or a copy of one.
    """

    __slots__ = ("has_past", "id", "kind")

    def __init__(self, kind: str, session_id: str | None = None, *, has_past: bool = False) -> None:
        self.kind, self.id, self.has_past = kind, session_id, has_past


def session_in(arguments: Sequence[str]) -> Session:
    options: dict[str, str | None] = {}
    for name, value in _options(arguments):
        options.setdefault(name, value)
    if options.keys() & {"", "--help", "--version"}:
        return Session(NO_SESSION)
    is_old = bool(options.keys() & {"--resume", "--continue"})
    if options.keys() & {"--bg", "--background"}:
        return Session(BACKGROUND, has_past=is_old)
    if (session_id := options.get("--session-id")) is not None:
        return Session(NAMED, session_id, has_past=is_old)
    if is_old and "--fork-session" in options:
        return Session(NEW, has_past=True)
    if (resumed := options.get("--resume")) is not None and is_uuid(resumed):
        return Session(RESUMED, resumed, has_past=True)
    if "--resume" in options or options.keys() & {"--from-pr", "--teleport"}:
        return Session(PICKED, has_past=True)
    return Session(CONTINUED if is_old else NEW, has_past=is_old)


def new_id() -> str:
    number = bytearray(os.urandom(16))
    number[6] = number[6] & 0x0F | 0x40
    number[8] = number[8] & 0x3F | 0x80
    text = number.hex()
    return "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))


def is_uuid(text: str) -> bool:
    parts = text.split("-")
    return [len(part) for part in parts] == [8, 4, 4, 4, 12] and set(text.lower()) <= set("0123456789abcdef-")


def _options(arguments: Sequence[str]) -> Iterator[tuple[str, str | None]]:
    """Each option with its value; a command as the first word is an option without a name."""
    rest = list(arguments)
    is_first_word = True
    while rest:
        word = rest.pop(0)
        if word == "--":
            return
        if not word.startswith("-") or word == "-":
            if is_first_word and word in _COMMANDS:
                yield "", word
            is_first_word = False
        elif word.startswith("--"):
            yield _long(word, rest)
        else:
            yield from _short(word[1:], rest)


def _long(word: str, rest: list[str]) -> tuple[str, str | None]:
    name, equals, value = word.partition("=")
    if equals:
        return name, value
    return name, _value_of(name, rest)


def _short(letters: str, rest: list[str]) -> Iterator[tuple[str, str | None]]:
    """`-pc` is `-p -c`, `-rID` is `-r ID`."""
    while letters:
        letter, letters = letters[0], letters[1:]
        name = _SHORT.get(letter, "-" + letter)
        if letters and letter not in _SHORT_ALONE:
            yield name, letters
            return
        yield name, None if letters else _value_of(name, rest)


def _value_of(name: str, rest: list[str]) -> str | None:
    """The next word, if the option always takes one, or it is no option itself."""
    is_optional = name in ("--resume", "--from-pr", "--teleport")
    if rest and (name in _WITH_VALUE or (is_optional and not rest[0].startswith("-"))):
        return rest.pop(0)
    return None


# size and time of each transcript, by session id
Look = dict[str, tuple[int, int]]


def config_folder(env: Mapping[str, str] = os.environ) -> str:
    """The folder of Claude Code's data. Raises BurnctlError in a deleted folder."""
    try:
        return named_config_folder(env)
    except OSError:
        raise BurnctlError("this folder no longer exists", "change to another one first") from None


def look(config: str, working_folder: str, env: Mapping[str, str] = os.environ) -> Look:
    """The transcripts of a working folder as they are now."""
    transcripts: Look = {}
    for folder in project_folders(config, working_folder, env):
        for entry in os.scandir(folder):
            stem, suffix = os.path.splitext(entry.name)
            if suffix == ".jsonl" and not stem.startswith("agent-") and entry.is_file():
                facts = entry.stat()
                transcripts[stem] = (facts.st_size, facts.st_mtime_ns)
    return transcripts


def newest(seen: Look) -> str | None:
    """The session written to last, which `--continue` resumes."""
    return max(seen, key=lambda session: (seen[session][1], session), default=None)


def written_to(before: Look, after: Look, expected: str | None) -> str | None:
    """The session that is new or has grown; None unless there is exactly one."""
    changed = [session for session, facts in after.items() if before.get(session, (0, 0))[0] != facts[0]]
    if expected in changed:
        return expected
    return changed[0] if len(changed) == 1 else None
