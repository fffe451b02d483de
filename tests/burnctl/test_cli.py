"""burnctl's command line: input is understood or refused in one line, and exit codes tell scripts what happened."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

from burnctl.cli import load, options_of
from burnctl.commands import VERBS, module_of, present
from burnctl.parser import parser_for
from burnd import __version__, protocol
from burnd.paths import Home
from tests import warm
from tests.burnctl.fake_daemon import FakeConnection, Refused, fake_daemon
from tests.burnctl.invoke import TerminalProcess, environment, run, seen

STATUS: dict[str, Any] = {"daemon": {"version": __version__, "pid": 4711, "uptimeMs": 7_500_000}, "sources": []}


def socket_of(home: Home) -> Path:
    return home.root / "burnd.sock"


def test_the_overview_names_every_command(home: Home) -> None:
    """In a script without a daemon `burnctl` alone is a question as well, and the answer fits a terminal."""
    for words in ([], ["help"], ["--help"], ["-h"], ["help", "--no-color"]):
        done = run(home, *words)
        assert done.returncode == 0
        assert all(f"  {verb} " in done.stdout for verb in present())
        assert max(map(len, done.stdout.splitlines())) <= 80


def test_the_version(home: Home) -> None:
    for flag in ("--version", "-V"):
        assert run(home, flag).stdout == f"burnctl {__version__}\n"


ONE_AFTER_THE_OTHER = """
import json, sys
from burnctl.cli import main
for words in json.loads(sys.argv[1]):
    print("\\f", main(words), sep="")
"""


def test_every_command_explains_itself(home: Home) -> None:
    """`burnctl help VERB`, `burnctl VERB --help` and `-h` say the same, in lines that fit."""
    asked = [words for verb in present() for words in (["help", verb], [verb, "--help"], [verb, "-h"])]
    command = [sys.executable, "-c", ONE_AFTER_THE_OTHER, json.dumps(asked)]
    done = warm.run(command, env=environment(home), capture_output=True, text=True, check=True)
    *told, last = done.stdout.split("\f")
    told = [told[0], *(words.removeprefix("0\n") for words in told[1:])]
    assert (last, len(told)) == ("0\n", len(asked))
    for number, verb in enumerate(present()):
        assert len(set(told[3 * number : 3 * number + 3])) == 1, verb
        page = told[3 * number]
        assert page.startswith(f"usage: burnctl {verb}")
        assert max(len(line) for line in page.splitlines() if "burnctl" not in line) <= 80
    assert run(home, "status", "--help").stdout == told[3 * [*present()].index("status")]


def test_help_shows_a_commands_own_options_first(home: Home) -> None:
    """Filters and output options, which many commands share, follow in sections of their own."""
    page = run(home, "help", "summary").stdout
    parts = ["usage:", "\noptions:\n", "  --by WHAT", "\nfilters:\n", "  --since TIME", "\noutput:\n", "  --json"]
    places = [page.index(part) for part in parts]
    assert places == sorted(places)


def test_the_table_of_verbs_is_the_folder_of_commands() -> None:
    """A command without a line in the table could not be found; a line without a command would mislead."""
    here = Path(__file__).parents[2] / "burnctl" / "commands"
    modules = {path.stem for path in here.glob("*.py")} - {"__init__"}
    assert {module_of(verb) for verb in VERBS} == modules
    assert set(present()) == set(VERBS)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["statsu"], "burnctl: no such command: statsu; did you mean: burnctl status"),
        (["start"], "burnctl: no such command: start; did you mean: burnctl up"),
        (["version"], "burnctl: no such command: version; did you mean: burnctl --version"),
        (["dashboard"], "burnctl: no such command: dashboard; the overview is: burnctl; the live view: burnctl top"),
        (["prune"], "burnctl: no such command: prune; see: burnctl content prune"),
        (
            ["codex"],
            "burnctl: no such command: codex; its cost: burnctl harnesses; run it tagged: burnctl run -- codex",
        ),
        (["daly"], "burnctl: no such command: daly; did you mean: burnctl daily"),
        (["xyzzy"], "burnctl: no such command: xyzzy; see: burnctl help"),
        (["--jsn"], "burnctl: no such option: --jsn; the command comes first; see: burnctl help"),
        (["help", "sttus"], "burnctl: no such command: sttus; did you mean: burnctl status"),
        (["status", "--jsno"], "burnctl: status: no such option: --jsno; did you mean: --json"),
        (["tail", "--since", "1h"], "burnctl: tail: no such option: --since; see: burnctl help tail"),
        (["status", "now"], "burnctl: status: did not expect 'now'; see: burnctl help status"),
        (["config", "sett"], "burnctl: config: no such action: 'sett'; did you mean: set"),
        (["config"], "burnctl: config: ACTION is missing; choose from init, show, set, get, edit, path"),
        (
            ["config", "set", "x"],
            "burnctl: config set: VALUE is missing; see: burnctl help config set",
        ),
        (["completions", "nu"], "burnctl: completions: no such shell: 'nu'; choose from bash, zsh, fish"),
        (["tail", "--session"], "burnctl: tail: --session: expected one argument; see: burnctl help tail"),
        (
            ["claude", "-p", "hi"],
            "burnctl: claude: arguments for Claude Code go behind --; try: burnctl claude -- -p hi",
        ),
        (["status", "--js"], "burnctl: status: no such option: --js; did you mean: --json"),
    ],
)
def test_mistakes_are_reported_in_one_line_with_a_hint(home: Home, words: list[str], says: str) -> None:
    """Usage errors: exit code 2, one line on stderr, nothing on stdout."""
    done = run(home, *words)
    assert (done.returncode, done.stdout, done.stderr) == (2, "", says + "\n")


def test_shared_flags_may_come_first(home: Home) -> None:
    with fake_daemon(socket_of(home), status=STATUS):
        assert json.loads(run(home, "--json", "status").stdout)["daemon"]["pid"] == 4711


def test_scripts_never_start_the_daemon(home: Home) -> None:
    """A reading command without a terminal: exit code 3, one line of advice, and no daemon afterwards."""
    done = run(home, "status", "--json")
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr == "burnctl: burnd is not running; start it with: burnctl up\n"
    assert not home.root.exists()


@pytest.mark.parametrize(("words", "environ"), [(["--no-start"], {}), ([], {"CI": "true"})])
def test_at_a_terminal_it_can_be_refused(home: Home, words: list[str], environ: dict[str, str]) -> None:
    """`--no-start` and CI keep the daemon down even where a terminal is."""
    shown = seen(home, "status", *words, environ=environ)
    assert shown.code == 3
    assert shown.text == "burnctl: burnd is not running; start it with: burnctl up\n"
    assert not home.root.exists()


def test_a_stale_socket_is_no_daemon(home: Home) -> None:
    """F60: what a killed daemon left behind reads as not running, and so does a file of that name."""
    with fake_daemon(socket_of(home)):
        pass
    import socket

    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(socket_of(home)))
    assert run(home, "status").returncode == 3
    socket_of(home).unlink()
    socket_of(home).write_bytes(b"")
    assert run(home, "status").returncode == 3


def test_json_is_the_answer_of_the_socket(home: Home) -> None:
    """--json is the answer with its version, unchanged apart from escapes for hostile text."""
    hostile = "\x1b]52;c;aGk=\x07\u202e日本"
    with fake_daemon(socket_of(home), status=STATUS | {"title": hostile}):
        done = run(home, "status", "--json")
    assert json.loads(done.stdout) == {"version": protocol.VERSION, **STATUS, "title": hostile}
    assert done.stdout.isascii()
    assert "\x1b" not in done.stdout


def test_a_protocol_mismatch_names_both_versions(home: Home) -> None:
    """F73: exit code 4, naming both versions."""
    with fake_daemon(socket_of(home), status={**STATUS, "version": 99}):
        done = run(home, "status")
    assert done.returncode == 4
    assert done.stderr == (
        "burnctl: burnd speaks protocol version 99, this burnctl version 1; "
        "after an upgrade, restart the daemon with: burnctl restart\n"
    )


def test_an_error_has_its_sentence_and_its_hint(home: Home) -> None:
    def refuse(_params: dict[str, Any], _talk: object) -> dict[str, Any]:
        raise Refused(protocol.NOT_NOW, "the index is \x1b[31mbeing rebuilt.", "try again in a minute")

    with fake_daemon(socket_of(home), status=refuse):
        done = run(home, "status")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "burnctl: the index is being rebuilt; try again in a minute\n"


def test_a_method_the_daemon_lacks_suggests_a_restart(home: Home) -> None:
    with fake_daemon(socket_of(home)):
        done = run(home, "flush")
    assert done.returncode == 1
    assert "burnctl restart" in done.stderr


def test_a_flush_that_did_not_flush_exits_1_with_the_reason(home: Home) -> None:
    """A script that deletes its logs after a flush must be able to rely on the exit code, with --json as well."""
    claude = {"name": "claude-code", "flushed": False, "reason": "stopped on RuntimeError and is started again"}
    answer = {"version": 1, "flushed": False, "sources": [claude, {"name": "codex", "flushed": True}]}
    with fake_daemon(socket_of(home), flush=answer):
        spoken, plain = run(home, "flush"), run(home, "flush", "--json")
    assert (spoken.returncode, spoken.stdout) == (1, "")
    assert "claude-code: stopped on RuntimeError and is started again" in spoken.stderr
    assert "codex" not in spoken.stderr
    assert (plain.returncode, json.loads(plain.stdout)["flushed"]) == (1, False)


def test_ctrl_c_is_quiet(home: Home) -> None:
    """Exit code 130 and not a word, as from any well-behaved program."""
    with (
        fake_daemon(socket_of(home), tail=lambda _params, talk: talk.answer({})),
        TerminalProcess(home, "tail") as person,
    ):
        person.wait_for("cost")
        person.type("\x03")
        shown = person.end()
    assert shown.code == 130
    assert "Traceback" not in shown.text


def test_tail_of_an_unknown_session_states_that_it_waits(home: Home) -> None:
    """The session may be yet to come, but the id may also be mistyped."""

    def absent(_params: dict[str, Any], _talk: FakeConnection) -> dict[str, Any]:
        raise Refused(protocol.NOT_FOUND, "no session is or begins with 'zz'")

    with (
        fake_daemon(socket_of(home), sessions__meta=absent, tail=lambda _params, talk: talk.answer({})),
        TerminalProcess(home, "tail", "--session", "zz") as person,
    ):
        person.wait_for("no session begins with 'zz' yet; waiting for one with this id")
        person.type("\x03")
        assert person.end().code == 130


def test_a_reader_that_goes_away_is_no_error(home: Home) -> None:
    """`burnctl tail | head -1` ends without a traceback when head has seen enough."""

    def many(_params: dict[str, Any], talk: Any) -> None:
        talk.answer({})
        try:
            for n in range(20_000):
                talk.notify("tail", {"turn": {"n": n, "pad": "x" * 200}})
        except OSError:
            return

    with fake_daemon(socket_of(home), tail=many):
        burnctl = warm.Popen(
            [sys.executable, "-m", "burnctl", "tail", "--json"],
            env=environment(home),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert burnctl.stdout is not None
        assert burnctl.stderr is not None
        burnctl.stdout.readline()
        burnctl.stdout.close()
        assert burnctl.stderr.read() == ""
        burnctl.stderr.close()
        assert burnctl.wait(30) == 128 + signal.SIGPIPE


def test_output_that_cannot_be_encoded_is_still_output(home: Home) -> None:
    """An ASCII-only terminal gets substitutes for our own characters and `?` for others."""
    done = run(home, "doctor", PYTHONIOENCODING="ascii:strict")
    assert "Traceback" not in done.stderr
    assert "> start it with: burnctl up" in done.stdout
    assert "?" not in done.stdout


def test_long_output_goes_through_the_pager(home: Home) -> None:
    """At a terminal that is too short $PAGER shows it; what fits, and what is piped, is printed."""
    pager = f"{sys.executable} -c \"import sys; print('PAGED', len(sys.stdin.read().splitlines()))\""
    shown = seen(home, "config", "show", lines=5, environ={"PAGER": pager})
    assert shown.code == 0
    assert "PAGED" in shown.text
    assert "PAGED" not in seen(home, "config", "show", lines=100, environ={"PAGER": pager}).text
    assert "PAGED" not in run(home, "config", "show", PAGER=pager).stdout
    assert "content.store" in seen(home, "config", "show", lines=5, environ={"PAGER": "/nowhere/pager"}).text
    assert "content.store" in seen(home, "config", "show", lines=5, environ={"PAGER": "cat"}).text
    unbalanced = seen(home, "config", "show", lines=5, environ={"PAGER": '"less'})
    assert (unbalanced.code, "content.store" in unbalanced.text) == (0, True)


@pytest.mark.parametrize(
    ("words", "environ", "colour"),
    [([], {}, True), (["--no-color"], {}, False), ([], {"NO_COLOR": "1"}, False), ([], {"TERM": "dumb"}, False)],
)
def test_colour_only_where_it_is_wanted(home: Home, words: list[str], environ: dict[str, str], colour: bool) -> None:
    assert ("\x1b[" in seen(home, "config", "show", *words, environ=environ).text) is colour
    assert "\x1b[" not in run(home, "config", "show", *words).stdout


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_streams_are_no_trouble(home: Home, closed: str) -> None:
    """F82: a parent may have closed any stream; the exit code is still right."""
    command = f"{sys.executable} -m burnctl status {closed}"
    done = subprocess.run(["sh", "-c", command], env=environment(home), capture_output=True, text=True, check=False)
    assert done.returncode == 3
    assert "Traceback" not in done.stderr


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full here")
def test_a_full_disk_for_output_is_reported(home: Home) -> None:
    with fake_daemon(socket_of(home), status=STATUS):
        command = f"{sys.executable} -m burnctl status --json > /dev/full"
        done = subprocess.run(["sh", "-c", command], env=environment(home), capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr == "burnctl: No space left on device\n"


def test_it_runs_from_a_zip_file(home: Home, tmp_path: Path) -> None:
    """Help and completions know every verb without a folder to list, and requests reach burnd."""
    packed = tmp_path / "burnctl.pyz"
    with zipfile.ZipFile(packed, "w") as file:
        for part in (*Path("burnctl").rglob("*.py"), *(Path("burnd") / f"{n}.py" for n in BURND_LEAVES)):
            file.write(part, part)
        file.writestr("__main__.py", "import sys; from burnctl.cli import main; sys.exit(main())")
    command = [sys.executable, "-I", str(packed)]
    said = subprocess.run([*command, "completions", "words", "--", ""], capture_output=True, text=True, check=True)
    assert {line.split("\t")[0] for line in said.stdout.splitlines()} == {*present(), "help"}
    asked = subprocess.run([*command, "status"], capture_output=True, env=environment(home), check=False)
    assert asked.returncode == 3


BURND_LEAVES = (
    *("__init__", "protocol", "paths", "contract/__init__", "contract/daemon", "contract/reports", "contract/sessions"),
    *("harness/__init__", "harness/product", "harness/registry"),
    *(
        f"harness/{name}/{part}"
        for name in ("api", "claude_code", "codex", "opencode")
        for part in ("__init__", "product")
    ),
)


def test_a_setting_can_be_read_and_edited(home: Home, tmp_path: Path) -> None:
    """By its whole name or its last part; a mistake in the edited file is named."""
    assert run(home, "config", "get", "content.store").stdout == "full\n"
    assert run(home, "config", "get", "store").stdout == "full\n"
    missing = run(home, "config", "get", "content.stor")
    assert (missing.returncode, "did you mean: content.store" in missing.stderr) == (1, True)
    editor = tmp_path / "editor"
    editor.write_text('#!/bin/sh\necho \'[content]\nstore = "off"\' > "$1"\n')
    editor.chmod(0o755)
    assert run(home, "config", "edit", EDITOR=str(editor)).returncode == 0
    assert run(home, "config", "get", "content.store").stdout == "off\n"
    editor.write_text("#!/bin/sh\necho 'nonsense = 1' > \"$1\"\n")
    assert "nonsense" in run(home, "config", "edit", EDITOR=str(editor)).stderr


@pytest.mark.parametrize("verb", list(present()))
@pytest.mark.parametrize("words", [[], ["--json"], ["--no-color"], ["--memory"], ["--all"]])
def test_options_are_those_of_the_parser(verb: str, words: list[str]) -> None:
    options = options_of(verb, load(verb), words)
    if options is not None:
        assert vars(options) == vars(parser_for(verb, load(verb)).parse_args(words))


@pytest.mark.parametrize(
    "verb", ["overview", "today", "status", "summary", "daily", "sessions", "waste", "limits", "why"]
)
def test_common_commands_need_no_parser(verb: str) -> None:
    assert options_of(verb, load(verb), []) is not None
    assert options_of(verb, load(verb), ["--json"]) is not None


@pytest.mark.parametrize(
    ("verb", "words"),
    [
        ("search", []),
        ("config", []),
        ("status", ["--help"]),
        ("status", ["x"]),
        ("summary", ["--json", "--csv"]),
    ],
)
def test_the_rest_is_for_the_parser(verb: str, words: list[str]) -> None:
    assert options_of(verb, load(verb), words) is None
