"""`burnctl sessions`, `show`, `search` and `resume`, at a terminal and for programs."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest

from burnctl.cli import load
from burnctl.commands import search
from burnctl.commands.restore import command
from burnctl.commands.sessions import drawn as listed
from burnctl.commands.show import Transcript
from burnctl.errors import BurnctlError
from burnctl.parser import parser_for
from burnctl.render.screen import Screen
from burnctl.render.text import clean, lines_of, width_of, wrap
from burnd import protocol
from burnd.contract.sessions import MOST_HITS, MOST_WINDOW
from burnd.paths import Home
from burnd.search.lookup import MOST_WORDS
from burnd.search.passages import SNIPPET_BYTES
from burnd.tokens.words import LONGEST_WORD
from tests.burnctl.fake_daemon import FakeConnection, FakeDaemon, Refused, fake_daemon
from tests.burnctl.invoke import environment, run, seen

NOW = 1_794_800_000_000
EVIL = "\x1b]52;c;cm0gLXJm\x07\x1b[31m\u202e"
WIDTHS = (40, 80, 160)


def found(answer: dict[str, Any], screen: Screen, now: float) -> str:
    """The hits with the messages around them, and the notes below."""
    return screen.page(answer, search.draw(answer, screen, now, is_list=False))


def session(number: int, **more: Any) -> dict[str, Any]:
    facts = {
        "sessionId": f"{number:08x}-6b7a-4c3d-8e5f-001122334455",
        "shortId": f"{number:08x}",
        "source": "claude-code",
        "parentSessionId": None,
        "project": f"/home/dev/project-{number}",
        "projectKey": None,
        "agent": None,
        "createdBy": None,
        "title": f"Session {number}",
        "summary": None,
        "createdAt": "2026-11-16T00:00:00.000Z",
        "updatedAt": "2026-11-16T00:00:03.000Z",
        "messageCount": number * 1000,
        "contentMode": None,
        "content": "yes",
        "costUsd": number * 1.5,
    }
    return facts | more


SESSIONS = {
    "sessions": [
        session(1),
        session(2, title=f"{EVIL}A title that goes on and on, 重构定时任务, until there is no room left for it at all"),
        session(3, title=None, content="pruned", costUsd=None, agent="painter", source="openai-api", project=None),
    ],
    "next": "1.x",
}
USAGE = {"input": 10, "output": 20, "reasoning": 5, "cacheRead": 30_000, "cacheCreate5m": 0, "cacheCreate1h": 0}
TURN = {"turnIndex": 0, "model": "claude-sonnet-4-5-20250929", "activity": "coding", "open": False, "usage": USAGE}


def message(number: int, role: str, *blocks: dict[str, Any], **more: Any) -> dict[str, Any]:
    facts = {"msgIdx": number, "messageId": f"m{number}", "role": role, "ts": "2026-11-16T10:00:00.000Z"}
    return facts | {"blocks": list(blocks)} | more


MESSAGES = [
    message(0, "user", {"kind": "text", "text": f"Please {EVIL}fix the cron job.\n\n    indented code\n\ttabbed"}),
    message(
        1,
        "assistant",
        {"kind": "thinking", "text": "a secret thought " * 20},
        {"kind": "text", "text": "I will look at it. " * 12},
        {"kind": "tool_use", "toolUse": {"id": "c", "name": "Bash", "input": {"command": "npm test", "x": 1}}},
        turn=TURN | {"costUsd": 0.0123},
    ),
    message(
        2,
        "tool_result",
        {
            "kind": "tool_result",
            "toolResult": {"toolUseId": "c", "toolName": "Bash", "content": "line one\nline two", "isError": True},
        },
    ),
    message(3, "assistant", {"kind": "text", "lost": "missing"}, turn=TURN | {"costUsd": None}),
    message(4, "user", {"kind": "file", "file": {"mime": "image/png", "name": "x.png", "bytes": 1234}}),
]
PAGE = {
    "sessionId": session(1)["sessionId"],
    "source": "claude-code",
    "title": "Fix the cron job",
    "project": "/home/dev/app",
    "railId": "main",
    "rails": [{"railId": "main", "messages": 5}, {"railId": "a1b2", "messages": 3}],
    "offset": 0,
    "retained": True,
    "total": 5,
    "messages": MESSAGES,
}
SNIPPET = f"{EVIL}before\nthe cron refactor went well, " + "and so on " * 30
HIT = {
    "sessionId": session(1)["sessionId"],
    "shortId": "0",
    "railId": "main",
    "msgIdx": 7,
    "score": 3.2,
    "meta": {
        "title": "A title",
        "createdAt": None,
        "updatedAt": "2026-11-16T00:00:03.000Z",
        "messageCount": 12,
        "source": "claude-code",
        "project": "/home/dev/app",
    },
    "window": [
        {"role": "user", "msgIdx": 6, "snippet": "please\nrefactor " * 20, "truncated": False},
        {
            "role": "assistant",
            "msgIdx": 7,
            "snippet": SNIPPET,
            "truncated": True,
            "match": True,
            "highlights": [[SNIPPET.index("cron"), SNIPPET.index("cron") + 4]],
        },
        {"role": "tool_result", "msgIdx": 8, "snippet": "ok", "truncated": False, "toolName": "Bash"},
    ],
}


def tidy(text: str, width: int) -> None:
    """Nothing runs over the edge, nothing steers the terminal, nothing trails."""
    for line in text.split("\n"):
        assert width_of(line) <= width, line
        assert clean(line) == line
        assert line == line.rstrip()


@pytest.mark.parametrize("width", WIDTHS)
def test_lists_fit_any_width(width: int) -> None:
    """One line per session, whatever its title contains; an empty list gives the reason."""
    screen = Screen(width)
    text = screen.page(SESSIONS, listed(SESSIONS, screen, NOW))
    tidy(text.partition("\n\n")[0], width)
    assert "00000001" in text
    assert "content pruned" in text or width < 80
    assert "3,000" in text or width < 120
    assert "more: --limit 6" in text
    assert listed({"sessions": []}, Screen(width), NOW) == ""


@pytest.mark.parametrize("width", WIDTHS)
def test_a_transcript_fits_any_width(width: int) -> None:
    """Prompts and answers in full, calls, results and thoughts in a line each, costs in the margin."""
    text = "\n".join(Transcript(Screen(width)).drawn(MESSAGES))
    tidy(text, width)
    assert "$0.01  assistant · " in text
    assert "          ▸ Bash  npm test" in text
    assert "◂ Bash failed 17 B  line one" in text
    assert "∴ thinking 340 B  a secret" in text
    assert "              indented code" in text
    assert "[text: missing on disk]" in text
    assert "+ x.png (image/png, 1.2 kB)" in text
    assert "line two" not in text.replace("line one line two", "")


def test_a_raw_transcript_leaves_nothing_out() -> None:
    """Arguments, results and thoughts are there in full."""
    text = "\n".join(Transcript(Screen(100), raw=True).drawn(MESSAGES))
    assert '"x": 1' in text
    assert "          line one\n          line two" in text
    assert text.count("secret thought") == 20


def test_a_day_is_named_once() -> None:
    """A conversation over two days shows where each begins."""
    days = [message(0, "user", ts="2026-11-16T12:00:00Z"), message(1, "user", ts="2026-11-17T12:00:00Z")]
    text = "\n".join(Transcript(Screen(80)).drawn([*days, message(2, "user", ts="2026-11-17T12:30:00Z")]))
    assert (text.count("Nov 16"), text.count("Nov 17")) == (1, 1)


@pytest.mark.parametrize("width", WIDTHS)
def test_hits_fit_any_width(width: int) -> None:
    """Each session with its matches, marked, and their context on a line each."""
    answer = {"hits": [HIT, HIT | {"msgIdx": 9}], "corrected": {"corn": ["cron"]}, "note": "there is more"}
    text = found(answer, Screen(width), NOW)
    tidy(text, width)
    assert text.count("00000001  ") == 1
    assert "▸ #7    assistant" in text
    assert "burnctl show 00000001 --from 3" in text
    assert "corn was not found; searched for cron" in " ".join(text.split())
    assert found({"hits": []}, Screen(width), NOW) == ""


@pytest.mark.parametrize("width", WIDTHS)
def test_a_hit_is_called_by_its_title(width: int) -> None:
    """The title comes first, and fields that do not fit are left out as a whole."""
    meta = HIT["meta"] | {"title": "Cron refactor", "project": "/p/a-project-with-quite-a-long-name-of-its-own"}
    head = found({"hits": [HIT | {"meta": meta}]}, Screen(width), NOW).splitlines()[0]
    assert head.startswith("00000001  Cron refactor")
    assert "…" not in head
    assert ("messages" in head) == (width == 160)


def test_similar_ids_are_printed_distinctly() -> None:
    """A printed id can be typed back in, even for sessions that began at the same moment."""
    ids = {"ses_0fec72b97014LrRJ": "ses_0fec72b97", "ses_0fec72b98113BcDE": "ses_0fec72b98", "ses_1c8f13e0ed62R1": "s"}
    text = listed({"sessions": [session(1, sessionId=id_, shortId=ids[id_]) for id_ in ids]}, Screen(160), NOW)
    shown = [line.split()[0] for line in text.splitlines()[1:]]
    assert shown == ["ses_0fec72b97", "ses_0fec72b98", "ses_1c8f13e0"]
    hits = [HIT | {"sessionId": id_, "shortId": enough} for id_, enough in ids.items()]
    assert "burnctl show ses_0fec72b98 --from" in found({"hits": hits}, Screen(160), NOW)


def test_a_hostile_id_does_nothing() -> None:
    """A session's id comes from a log that any program may have written."""
    hit = HIT | {"sessionId": f"x{EVIL}", "railId": f"y{EVIL}"}
    assert "\x1b" not in found({"hits": [hit]}, Screen(80), NOW)


def test_what_matched_is_marked_in_colour() -> None:
    text = found({"hits": [HIT]}, Screen(60, color=True), NOW)
    assert "\x1b[1;31mcron\x1b[0m" in text
    assert "\x1b]52" not in text


def test_a_title_that_matched_is_shown() -> None:
    title = {"snippet": "About cron jobs", "highlights": [[6, 10]], "truncated": False}
    text = found({"hits": [HIT | {"matchedTitle": title, "window": [], "msgIdx": None}]}, Screen(80), NOW)
    assert "  About cron jobs" in text


def test_the_command_below_a_hit_is_safe_to_run() -> None:
    """An id may be anything that a file can be called."""
    hit = HIT | {"sessionId": "x;$(rm -rf ~)", "shortId": "x;$(rm", "railId": "`a`"}
    assert "burnctl show 'x;$(rm -' --rail '`a`' --from" in found({"hits": [hit]}, Screen(160), NOW)


def test_hits_of_a_session_are_shown_in_order() -> None:
    """In the order of the conversation, with a mark for each gap."""

    def hit(match: int, *numbers: int, rail: str = "main") -> dict[str, Any]:
        item = {"role": "user", "snippet": "word", "truncated": False}
        marks = {match: {"match": True, "highlights": []}}
        window = [item | {"msgIdx": number} | marks.get(number, {}) for number in numbers]
        return HIT | {"msgIdx": match, "railId": rail, "window": window}

    hits = [hit(5, 5, 6), hit(3, 2, 3, 4), hit(9, 9), hit(0, 0, rail="a1"), hit(0) | {"window": []}]
    shown = found({"hits": hits}, Screen(80), NOW).splitlines()[1:-1]
    told = [line.lstrip("▸ ").split()[0] for line in shown]
    assert told == ["#2", "#3", "#4", "#5", "#6", "⋯", "#9", "⋯", "#0"]


@pytest.mark.parametrize("width", WIDTHS)
def test_a_hit_is_a_line(width: int) -> None:
    """Title and passage with marked words; the number of further hits is below."""
    hits = [HIT | {"sessionId": f"{n:08d}-1", "shortId": f"{n:08d}"} for n in range(12)]
    screen = Screen(width)
    text = screen.page(
        {}, search.draw({"hits": hits[:10], "matches": 1234, "next": 10, "allWords": False}, screen, NOW)
    )
    lines = text.partition("\n\n")[0].splitlines()
    assert len(lines) == 10
    assert all(width_of(line) <= width for line in text.splitlines())
    assert all("cron" in line for line in lines) or width == 40
    below = " ".join(text.partition("\n\n")[2].replace("·", "").split())
    assert below.startswith("no message has all words 10 of 1,234 hits; the next: --offset 10 read one: burnctl show")
    colored = search.draw({"hits": hits[:1]}, Screen(160, color=True), NOW)
    assert "\x1b[1;31mcron\x1b[0m" in colored
    assert "\n" not in search.draw({"hits": hits[:1]}, Screen(80, is_pipe=True), NOW)


def test_a_long_system_prompt_is_folded_and_a_pattern_is_shown() -> None:
    blocks = [{"kind": "text", "text": "You are an agent. " * 100}]
    lines = list(Transcript(Screen(80)).drawn([message(0, "system", *blocks)]))
    assert len(lines) < 8
    assert any("system prompt 1.8 kB" in line for line in lines)
    assert len(list(Transcript(Screen(80), raw=True).drawn([message(0, "system", *blocks)]))) > 20
    grep = {"kind": "tool_use", "toolUse": {"id": "c", "name": "Grep", "input": {"path": "src", "pattern": "def x"}}}
    assert any('Grep  "def x" in src' in line for line in Transcript(Screen(80)).drawn([message(0, "assistant", grep)]))


def test_one_message_is_one() -> None:
    assert "1 message\n" in found({"hits": [HIT | {"meta": HIT["meta"] | {"messageCount": 1}}]}, Screen(160), NOW)


def test_cut_text_is_marked_also_when_all_is_shown() -> None:
    """Of long arguments, results and thoughts alike."""
    blocks: list[dict[str, Any]] = [
        {"kind": "tool_use", "toolUse": {"id": "c", "name": "Write", "input": "much"}},
        {"kind": "tool_result", "toolResult": {"toolUseId": "c", "content": "much"}},
        {"kind": "thinking", "text": "much"},
    ]
    for block in blocks:
        said = [message(0, "assistant", block | {"truncated": True}), message(1, "assistant", block)]
        lines = list(Transcript(Screen(80), raw=True).drawn(said))
        assert sum("… cut here" in line for line in lines) == 1


@pytest.mark.parametrize("width", WIDTHS)
def test_a_folded_result_ends_where_the_line_does(width: int) -> None:
    """However short its words are: what is left out is seen to be."""
    block = {"kind": "tool_result", "toolResult": {"toolUseId": "c", "content": "a " * 400}}
    line = list(Transcript(Screen(width)).drawn([message(0, "tool_result", block)]))[-1]
    assert line.endswith("…")
    assert width - 2 <= width_of(line) <= width


@pytest.mark.parametrize("room", [10, 24, 79])
def test_paragraphs_keep_every_word(room: int) -> None:
    """However narrow it is, no word is lost and no line is too long."""
    text = "a few words and averyveryverylongwordindeed 重构定时任务完成 and more\n\n  indented as code is, when broken"
    lines = lines_of(text, room)
    assert all(width_of(line) <= room for line in lines)
    assert "".join("".join(lines).split()) == "".join(text.split())
    assert wrap("short", room) == ["short"]


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        ({"project": "/home/dev/app"}, "cd /home/dev/app && claude --resume {id}"),
        ({"project": "/a b/$(rm -rf ~)'s"}, "cd '/a b/$(rm -rf ~)'\"'\"'s' && claude --resume {id}"),
        ({"project": None}, "claude --resume {id}"),
        ({"source": "opencode", "sessionId": "ses_1"}, "cd /home/dev/project-1 && opencode --session ses_1"),
        ({"sessionId": "x; rm -rf /"}, "cd /home/dev/project-1 && claude --resume 'x; rm -rf /'"),
        ({"sessionId": "--yes"}, "cd /home/dev/project-1 && claude --resume=--yes"),
        ({"sessionId": "-p $x", "source": "opencode", "project": None}, "opencode --session='-p $x'"),
        ({"sessionId": "--yes", "source": "codex", "project": "-x"}, "cd ./-x && codex resume -- --yes"),
    ],
)
def test_the_command_that_resumes_is_safe_to_run(
    facts: dict[str, Any], expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whatever the folder is called, it is one word to a shell."""
    about = session(1) | facts
    line = command(about)
    assert line == expected.format(id=about["sessionId"])
    assert shlex.split(line)[-1].removeprefix("--resume=").removeprefix("--session=") == about["sessionId"]


def test_a_resume_command_does_nothing_to_a_terminal(tmp_path: Path) -> None:
    """Any folder name is printed safely, and the shell command leads to the folder."""
    folder = tmp_path / f"a'\\b\n{EVIL}é"
    folder.mkdir()
    line = command(session(1, project=str(folder)))
    assert line.isprintable()
    there = line.partition(" && ")[0]
    spoken = {"PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8"}
    command_line = ["bash", "-c", f"{there} && pwd -P"]
    done = subprocess.run(command_line, env=spoken, capture_output=True, text=True, check=True)
    assert done.stdout == f"{folder}\n"


def test_what_cannot_be_resumed_reports_it() -> None:
    with pytest.raises(BurnctlError, match="openai-api"):
        command(session(1, source="openai-api"))


def test_the_page_on_search_is_true() -> None:
    """docs/search.md names every flag of the command and every number that bounds it."""
    page = (Path(__file__).parents[2] / "docs" / "search.md").read_text()
    parser = parser_for("search", load("search"))
    flags = {flag for action in parser._actions for flag in action.option_strings}
    assert all(
        f"`{flag}`" in page for flag in flags - {"-h", "--help", "--json", "--no-color", "--no-start", "--limit"}
    )
    for bound in (MOST_HITS, MOST_WINDOW, MOST_WORDS, LONGEST_WORD):
        assert f" {bound} " in page
    assert f"{SNIPPET_BYTES:,} bytes" in page


def answers(server: FakeDaemon) -> None:
    server.answers = {
        "sessions.list": SESSIONS,
        "sessions.meta": session(1),
        "sessions.search": {"query": "x", "hits": [HIT]},
        "sessions.messages": _paged,
    }


def _paged(params: dict[str, Any], _talk: FakeConnection) -> dict[str, Any]:
    begin, limit = params["offset"], min(params["limit"], 2)
    page = PAGE | {"offset": begin, "messages": MESSAGES[begin : begin + limit]}
    return page | ({"next": begin + limit} if begin + limit < len(MESSAGES) else {})


COMMANDS = [
    (["sessions", "--since", "7d", "--project", "/home/dev", "--limit", "3"], "sessions.list"),
    (["show", "00000001", "--from", "1", "--limit", "2"], "sessions.messages"),
    (["search", "cron", "refactor", "--all", "-B", "1", "-A", "2", "--tool", "Bash"], "sessions.search"),
    (["resume", "00000001"], "sessions.meta"),
]


@pytest.mark.parametrize(("words", "method"), COMMANDS)
def test_json_is_the_sockets_answer(home: Home, words: list[str], method: str) -> None:
    """Exactly what burnd said, with its version."""
    with fake_daemon(home.root / "burnd.sock") as server:
        answers(server)
        done = run(home, *words, "--json")
        asked = [params for name, params in server.asked if name == method][-1]
    assert done.returncode == 0, done.stderr
    said = server.answers[method]
    expected = said(asked, None) if callable(said) else said  # type: ignore[arg-type]
    assert json.loads(done.stdout) == json.loads(json.dumps({"version": 1, **(expected or {})}))


@pytest.mark.parametrize(("words", "method"), COMMANDS)
def test_a_stopped_daemon_is_reported(home: Home, words: list[str], method: str) -> None:
    done = run(home, *words)
    assert (done.returncode, done.stdout) == (3, "")
    assert "burnd is not running" in done.stderr


@pytest.mark.parametrize(
    ("typed", "hint"),
    [
        ("0000001x", "did you mean: 00000001 (Session 1, "),
        ("00000002-6b7a-4c3d-8e5f-00112233445", "burnctl sessions lists them"),
    ],
)
def test_a_mistyped_session_is_answered_with_the_nearest(home: Home, typed: str, hint: str) -> None:
    """Sessions with similar ids are listed with title and age; without candidates burnd's own hint stays."""

    def unknown(params: dict[str, Any], _talk: FakeConnection) -> dict[str, Any]:
        said = f"no session is or begins with {params['id']!r}"
        raise Refused(protocol.NOT_FOUND, said, "burnctl sessions lists them", about="session")

    listed: dict[str, Any] = SESSIONS if typed.startswith("0000001") else {"sessions": []}
    with fake_daemon(home.root / "burnd.sock", sessions__meta=unknown, sessions__list=listed):
        done = run(home, "resume", typed)
    assert (done.returncode, done.stdout) == (1, "")
    assert f"no session has an id or a title with {typed!r}; {hint}" in done.stderr


def test_what_is_asked_is_what_was_typed(home: Home) -> None:
    """Flags become parameters; days are the caller's."""
    with fake_daemon(home.root / "burnd.sock") as server:
        answers(server)
        run(home, "search", "cron job", "--role", "user", "--since", "today", "--session", "ab", "--limit", "5")
        run(home, "sessions", "--agent", "a", "--parent", "b", "--next", "c", "--source", "opencode")
    (_, search), (_, listing) = server.asked
    assert search.pop("tz") is not None
    asked = {"query": "cron job", "role": "user", "since": "today", "session": "ab"}
    assert search == asked | {"limit": 5, "before": 0, "after": 0}
    assert listing == {
        "agent": "a",
        "parent": "b",
        "next": "c",
        "source": "opencode",
        "limit": 30,
        "costs": True,
    }


def test_show_reads_page_after_page(home: Home) -> None:
    """As many messages as requested, however small burnd's pages are; then a hint how to continue."""
    with fake_daemon(home.root / "burnd.sock") as server:
        answers(server)
        whole = run(home, "show", "00000001").stdout
        part = run(home, "show", "00000001", "--limit", "3").stdout
    assert [f"#{n}" in whole for n in (0, 1, 3, 4)] == [True] * 4
    assert "more:" not in whole
    assert "Fix the cron job\n" in whole
    assert "main conversation; see others with --rail: a1b2" in whole
    assert "burnctl show 00000001 --from 4" in part or "--from 3" in part


def test_where_it_continues_is_the_same_conversation(home: Home) -> None:
    """The command that shows the rest is of the same subagent, and as full."""
    with fake_daemon(home.root / "burnd.sock") as server:
        answers(server)
        part = run(home, "show", "00000001", "--rail", "a1 b2", "--raw", "--limit", "2").stdout
    assert part.endswith("3 more: burnctl show 00000001 --rail 'a1 b2' --raw --from 2\n")


def test_show_shows_what_is_not_retained(home: Home) -> None:
    """A pruned session's turns are listed all the same."""
    pruned = PAGE | {"retained": False, "why": "content not retained: it was pruned", "messages": [MESSAGES[3]]}
    with fake_daemon(home.root / "burnd.sock", sessions__messages=pruned):
        text = run(home, "show", "00000001").stdout
    assert "Content not retained: it was pruned." in text
    assert "assistant · sonnet-4-5" in text


def test_a_long_transcript_is_paged(home: Home, tmp_path: Path) -> None:
    """At a terminal it goes through the pager, in colour."""
    long = PAGE | {"messages": [message(n, "user", {"kind": "text", "text": "word"}) for n in range(60)], "total": 60}
    pager = tmp_path / "pager"
    pager.write_text("#!/bin/sh\nhead -n 3\necho paged\n")
    pager.chmod(0o755)
    with fake_daemon(home.root / "burnd.sock", sessions__messages=long):
        shown = seen(home, "show", "00000001", lines=20, environ=environment(home, PAGER=str(pager)))
    assert shown.text.rstrip().endswith("paged")
    assert shown.code == 0


def test_a_shell_runs_what_resume_prints(home: Home, folder: Path) -> None:
    """`eval "$(burnctl resume ...)"` goes to the folder and starts the harness there."""
    work = folder / "my work"
    work.mkdir()
    (folder / "claude").write_text('#!/bin/sh\necho "$PWD: $*"\n')
    (folder / "claude").chmod(0o755)
    with fake_daemon(home.root / "burnd.sock", sessions__meta=session(1, project=str(work))):
        line = run(home, "resume", "00000001").stdout
    done = subprocess.check_output(["sh", "-c", line], env={"PATH": f"{folder}:/bin:/usr/bin"}, text=True)
    assert done == f"{work}: --resume {session(1)['sessionId']}\n"
