"""`burnctl claude`: runs Claude Code with its session announced and tagged before the first line is logged."""

from __future__ import annotations

import os
import time

from burnctl import delivery, flags, foreground, stamp_record
from burnctl.client import Client
from burnctl.commands.run import (
    Claim,
    WrapperFlags,
    after_dashes,
    content_mode,
    folder_of_run,
    print_claimed,
    print_note,
    print_session,
)
from burnctl.errors import BurnctlError
from burnd.harness.claude_code.product import PRODUCT, live_sessions, project_folders
from burnd.harness.claude_code.product import config_folder as named_config_folder
from burnd.paths import working_folder

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Mapping, Sequence
    from typing import Any

_RUN = "BURNCTL_RUN"  # marks the processes of this run
_BACKGROUND_S = 5.0  # seconds until a background session appears in the registry
_LATE_S = 60.0  # seconds until its log appears


WRAPS = "Claude Code"
HELP = (
    "Runs Claude Code with a new session id that is tagged before it starts. RELAYBURN_CONTENT_STORE and "
    "CLAUDE_CONFIG_DIR apply to every session of this run, even if burnd was started without them. "
    "With --resume, --continue or --session-id among Claude Code's arguments that session is tagged from now on, with "
    "--bg the one in the background. The exit code is Claude Code's."
)
EXAMPLES = (
    "burnctl claude --tag workflowId=wf-1 --tag persona=senior",
    "burnctl claude --tag step=review -- --model opus -p 'review the last commit'",
    "burnctl claude --tag step=fix -- --resume 0f9c1d2e-...",
    "RELAYBURN_CONTENT_STORE=off burnctl claude",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    flags.add(parser, WrapperFlags)
    flags.place(parser, WrapperFlags, "arguments", nargs="...")


def run(options: argparse.Namespace) -> int:
    tags = stamp_record.from_words(options.tag)
    mode = content_mode(os.environ)
    arguments = after_dashes(options.arguments)
    session = session_in(arguments)
    program = foreground.find_program(PRODUCT.program, "install Claude Code, or correct PATH", is_client=True)
    if session.kind == NO_SESSION:
        return foreground.run(program, arguments).code
    if session.kind == NEW:
        session.id = new_id()
        arguments = ["--session-id", session.id, *arguments]
    tagged = TaggedRun(session, tags, mode, quiet=options.quiet)
    return (tagged.run_in_background if session.kind == BACKGROUND else tagged.run)(program, arguments)


class TaggedRun:
    def __init__(self, session: Session, tags: dict[str, str], mode: str | None, *, quiet: bool) -> None:
        self._session, self._tags, self._mode, self._quiet = session, tags, mode, quiet
        self._begun_at = stamp_record.now_iso()
        self._config = config_folder()
        self._known: set[str] = set()  # announced, or older than this run
        self._mark = os.environ[_RUN] = os.urandom(8).hex()

    def run(self, program: str, arguments: Sequence[str]) -> int:
        before: Look = {}
        expected = None
        if self._session.id is not None:  # an error here stops us before Claude Code starts
            with Client(timeout=delivery.ANSWER_S) as client:
                receipt = delivery.announcement(client, self._wishes(self._session.id), self._begun_at)
                self._stamp(client, self._session.id, 0 if receipt.spooled else delivery.ANSWER_S)
        else:
            before = self._look()
            expected = newest(before) if self._session.kind == CONTINUED else None
            if expected is not None:
                with Client(timeout=delivery.ANSWER_S) as client:
                    delivery.announcement(client, self._wishes(expected), self._begun_at)
        status = self._run(program, arguments)
        try:
            session_id = self._session.id or self._find(before, expected)
        except BurnctlError as error:
            print_note(str(error))  # the run is over: keep its exit code
            return status.code
        if session_id is not None and not status.was_stopped:
            print_session(session_id, quiet=self._quiet)
        return status.code

    def run_in_background(self, program: str, arguments: Sequence[str]) -> int:
        """Runs `claude --bg`, which starts a session with a new id and exits."""
        folder = folder_of_run()
        roots = [self._config] if os.environ.get("CLAUDE_CONFIG_DIR") else []
        claim = Claim(folder, PRODUCT.program, self._tags, self._mode, roots)
        claim.open()
        before = {live.id for live in live_sessions(self._config).values()} | self._look().keys()
        self._known |= before
        status = self._run(program, arguments)
        session_id = self._begun(before, folder) if status.code == 0 else None
        claim.close(session_id, grace_s=_LATE_S)
        if not status.was_stopped:
            print_claimed(claim.name, quiet=self._quiet)
        return status.code

    def _begun(self, before: set[str], folder: str) -> str | None:
        """The session that started in the background; None unless there is exactly one."""
        deadline = time.monotonic() + _BACKGROUND_S
        while True:
            live = live_sessions(self._config)
            new = {pid: one for pid, one in live.items() if one.id not in before}
            ours = {one.id for pid, one in new.items() if self._is_ours(pid)}
            here = ours or {one.id for one in new.values() if os.path.realpath(one.cwd) == os.path.realpath(folder)}
            here = here or self._look().keys() - before
            if here:
                return here.pop() if len(here) == 1 else None
            if time.monotonic() >= deadline:
                return None
            time.sleep(0.1)

    def _run(self, program: str, arguments: Sequence[str]) -> foreground.ExitStatus:
        if self._session.id is not None:
            self._known.add(self._session.id)
        is_watched = self._mode is not None or bool(os.environ.get("CLAUDE_CONFIG_DIR"))
        return foreground.run(program, arguments, self._announce_others if is_watched else None)

    def _announce_others(self, child: int) -> None:
        """Announces sessions that a process switched to by /clear or /branch, from its registry entry."""
        for pid, live in live_sessions(self._config).items():
            if live.id not in self._known and (pid == child or self._is_ours(pid)):
                self._known.add(live.id)
                try:
                    with Client(timeout=delivery.ANSWER_S) as client:
                        delivery.announcement(client, self._wishes(live.id), self._begun_at)
                except BurnctlError as error:
                    print_note(str(error))

    def _is_ours(self, pid: int) -> bool:
        """True if the process has this run's mark in its environment; False without /proc."""
        try:
            with open(f"/proc/{pid}/environ", "rb") as file:
                return f"{_RUN}={self._mark}".encode() in file.read().split(b"\0")
        except OSError:
            return False

    def _find(self, before: Look, expected: str | None) -> str | None:
        """The resumed session, found by what was written; tags it if it is not the expected one."""
        session_id = written_to(before, self._look(), expected)
        if session_id is None and self._tags:
            print_note("nothing was tagged: the session of this run is unknown")
        if session_id is not None:
            with Client(timeout=delivery.ANSWER_S) as client:
                if session_id != expected:
                    delivery.announcement(client, self._wishes(session_id), self._begun_at)
                self._stamp(client, session_id)
        return session_id

    def _stamp(self, client: Client, session_id: str, timeout: float = delivery.ANSWER_S) -> None:
        """Tags all of a new session, and the rest of an older one."""
        if self._tags:
            since = self._begun_at if self._session.kind in (RESUMED, CONTINUED, PICKED) else None
            stamp = stamp_record.made(stamp_record.selector_of(session_id, from_ts=since), self._tags, self._begun_at)
            delivery.stamps(client, [stamp], timeout)

    def _wishes(self, session_id: str) -> dict[str, Any]:
        wishes: dict[str, Any] = {"sessionId": session_id, "source": PRODUCT.source}
        if self._mode is not None:
            wishes["contentMode"] = self._mode
            if self._session.has_past:
                wishes["isNew"] = False
        if os.environ.get("CLAUDE_CONFIG_DIR"):
            wishes["roots"] = [self._config]
        return wishes

    def _look(self) -> Look:
        try:
            return look(self._config, working_folder() or "/")
        except OSError:
            return {}


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
            name, equals, value = word.partition("=")
            yield name, value if equals else _value_of(name, rest)
        else:
            yield from _short(word[1:], rest)


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
