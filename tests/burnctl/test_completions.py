"""Completion of verbs, flags, choices, session ids and models, without starting burnd."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from burnctl.commands import completions, present
from burnd.contract.reports import COMPARED
from burnd.paths import Home
from tests.burnctl.fake_daemon import fake_daemon
from tests.burnctl.invoke import TerminalProcess, run
from tests.server.wire import until

OLD = "2026-01-01T00:00:00Z"
SESSIONS = {
    "sessions": [
        {"sessionId": "0f9c12ab-1", "title": "Fix the\x1b[31m parser", "project": "/w/burnd", "updatedAt": OLD},
        {"sessionId": "0fff12ab-2", "title": None, "project": None, "updatedAt": None},
        {"sessionId": "ses_77", "title": "日本", "project": "/w/x", "updatedAt": OLD},
    ]
}  # fmt: skip
SUMMARY = {"rows": [{"key": "claude-opus-4-5", "turns": 1200}, {"key": "anthropic/claude:beta", "turns": 1}]}


def words(home: Home, *typed: str) -> list[str]:
    done = run(home, "completions", "words", "--", *typed)
    assert (done.returncode, done.stderr) == (0, "")
    return [line.partition("\t")[0] for line in done.stdout.splitlines()]


def test_verbs_flags_and_choices(home: Home) -> None:
    assert words(home, "") == [*present(), "help"]
    assert words(home, "sta") == [verb for verb in present() if verb.startswith("sta")]
    assert words(home, "help", "con") == [verb for verb in present() if verb.startswith("con")]
    assert words(home, "config", "") == ["init", "show", "set", "get", "edit", "path"]
    assert words(home, "config", "show", "--") == ["--help", "--json", "--no-color"]
    assert words(home, "completions", "") == ["bash", "zsh", "fish"]
    assert words(home, "compare", "--by", "") == [*COMPARED, "tag:"]
    assert words(home, "tail", "--source", "o") == ["opencode", "openai-api"]
    assert "--session" in words(home, "tail", "--")
    assert "--json" not in words(home, "tail", "--json", "--j")
    assert words(home, "no-such-verb", "") == []
    assert words(home, "run", "--", "cl") == []


def test_names_that_burnd_knows(home: Home) -> None:
    with fake_daemon(home.root / "burnd.sock", sessions__list=SESSIONS, summary=SUMMARY) as server:
        # An answer that does not come within moments is not waited for, so a busy machine may have to be asked again.
        until(lambda: words(home, "tail", "--session", "0f") == ["0f9c12ab-1", "0fff12ab-2"])
        until(lambda: words(home, "tail", "--model", "") == ["claude-opus-4-5", "anthropic/claude:beta"])
        until(lambda: words(home, "forget", "s") == ["ses_77"])
        described = "  burnd  Fix the parser\n"
        asked = ("completions", "words", "--", "tail", "--session", "0f9")
        until(lambda: run(home, *asked).stdout.endswith(described))
        assert all(method in ("sessions.list", "summary") for method, _ in server.asked)


def test_tags_and_settings(home: Home) -> None:
    """Keys of tags wherever one is typed, and settings by the short names that `config set` takes."""
    stamps = {"stamps": [{"enrichment": {"persona": "critic", "ticket": "7"}}, {"enrichment": {"ticket": "8"}}]}
    settings = {"settings": [{"key": "display.plan"}, {"key": "log.file"}, {"key": "a.level"}, {"key": "b.level"}]}
    with fake_daemon(home.root / "burnd.sock", stamps__list=stamps, config__show=settings):
        until(lambda: words(home, "tags", "") == ["ticket", "persona"])
        until(lambda: words(home, "stamps", "remove", "t") == ["ticket"])
        until(lambda: words(home, "summary", "--by", "tag:p") == ["tag:persona"])
        until(lambda: words(home, "summary", "--tag", "t") == ["ticket=8", "ticket=7"])
        until(lambda: words(home, "config", "set", "") == ["display.plan", "log.file", "a.level", "b.level"])
        until(lambda: words(home, "config", "set", "pl") == ["plan"])
        until(lambda: words(home, "config", "get", "le") == [])


def test_burnd_is_never_started_and_never_waited_for(home: Home) -> None:
    """With burnd down, or not answering, there is simply nothing to offer, at once."""
    assert words(home, "tail", "--session", "") == []
    assert not home.root.exists()
    with fake_daemon(home.root / "burnd.sock", sessions__list=lambda *_: None):
        begun = time.monotonic()
        assert words(home, "tail", "--session", "") == []
        assert time.monotonic() - begun < 30  # it would not have answered for ever


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_script_is_installed_where_the_shell_looks(home: Home, tmp_path: Path, shell: str) -> None:
    folders = {"XDG_DATA_HOME": str(tmp_path / "data"), "XDG_CONFIG_HOME": str(tmp_path / "config")}
    done = run(home, "completions", shell, "--install", **folders)
    assert done.returncode == 0, done.stderr
    (file,) = [path for path in tmp_path.rglob("*burnctl*") if path.is_file()]
    assert file.read_text() == run(home, "completions", shell).stdout
    assert str(file) in done.stdout
    file.unlink()
    assert run(home, "completions", "--install", SHELL=f"/usr/bin/{shell}", **folders).stdout == done.stdout
    assert file.exists()


def test_a_shell_without_completions_is_named(home: Home) -> None:
    for arguments, what in (
        (("--install",), "no completions for the shell in SHELL, 'tcsh'"),
        ((), "SHELL is missing"),
    ):
        done = run(home, "completions", *arguments, SHELL="/bin/tcsh")
        assert done.returncode == 2
        assert what in done.stderr


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_scripts_are_sound(home: Home, shell: str) -> None:
    done = run(home, "completions", shell)
    assert done.returncode == 0
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed here")
    subprocess.run([shell, "-n"], input=done.stdout, text=True, check=True)


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("stat", ["statusline", "status"]),
        ("config|", ["init", "show", "set", "get", "edit", "path"]),
        ("tail|--session|0f", ["0f9c12ab-1", "0fff12ab-2"]),
        ("tail|--session|=|0f9", ["0f9c12ab-1"]),
        ("tail|--session|=", ["0f9c12ab-1", "0fff12ab-2", "ses_77"]),
        ("tail|--model|anthropic/claude|:|b", ["beta"]),
        ("tail|--model|anthropic/claude|:", ["beta"]),
        ("tail|--model|'anthropic/claude:b", ["anthropic/claude:beta"]),
        ("tail|--model|vertex", ["vertex/claude@1=2"]),
        ("tail|--model|vertex/claude|@|1|=", ["2"]),
        ("tail|--model|m", ["m\\$\\(touch\\ PWNED\\)\\\\\\'\\!"]),
        ("tail|--model|m\\$", ["m\\$\\(touch\\ PWNED\\)\\\\\\'\\!"]),
        ('tail|--model|"m', ["m\\$(touch PWNED)\\\\'\"'!'\"\""]),
        ("tail|--model|'m", ["m$(touch PWNED)\\'\\''!"]),
        ("tail|--model|m$", []),
        ("tail|--model|m`", []),
        ("tail|--model|m''", []),
        ("nothing|", []),
    ],
)
def test_words_for_bash(monkeypatch: pytest.MonkeyPatch, typed: str, offered: list[str]) -> None:
    """Joined where bash breaks them, at = and : and @, and quoted as bash has to insert them."""
    models = [("anthropic/claude:beta", ""), ("vertex/claude@1=2", ""), ("m$(touch PWNED)\\'!", "")]
    monkeypatch.setattr(completions, "_rows", lambda _by: models)
    monkeypatch.setattr(completions, "_sessions", lambda: [("0f9c12ab-1", ""), ("0fff12ab-2", ""), ("ses_77", "")])
    assert completions.bash_candidates(typed.split("|"), " \t\n\"'@><=;|&(:") == offered


HOSTILE = (
    "a$(touch PWNED)",
    "b`touch PWNED`",
    "c;touch PWNED",
    "d' $(touch PWNED) '",
    'e"$(touch PWNED)"',
    "f & touch PWNED &",
    "g|touch PWNED>PWNED<x",
    "h!touch!!",
    "i*?[a-z]{1,2}",
    "j\\$(touch PWNED)\\",
    "k ~ #x $HOME ^",
    "l:x=$(touch PWNED)@:",
    "日本$(touch PWNED)",
    "~root",
    "#n",
    "=o",
)  # fmt: skip
UNUSABLE = (
    "p\n$(touch PWNED)",
    "p\x1b[31m",
    "p\tq",
    "p\x7f",
    "p\x9b1m",
    "p\u202eq",
    "p\u2028q",
    "-p",
    "--all",
    "p\ud800",
    "",
)


def test_names_with_control_characters_or_a_dash_are_not_offered(home: Home) -> None:
    rows = {"rows": [{"key": name, "turns": 1} for name in (*UNUSABLE, *HOSTILE, None)]}
    sessions = {"sessions": [{"sessionId": name} for name in (*UNUSABLE, *HOSTILE, None)]}
    with fake_daemon(home.root / "burnd.sock", sessions__list=sessions, summary=rows):
        until(lambda: words(home, "tail", "--model", "") == list(HOSTILE))
        until(lambda: words(home, "forget", "") == list(HOSTILE))


START = {
    "bash": (["--norc", "--noprofile", "-i"], "set -H; source <(burnctl completions bash); PS1='rea''dy> '"),
    "zsh": (
        ["-f", "-i"],
        "autoload -Uz compinit; compinit -u -D; source <(burnctl completions zsh); PS1='rea''dy> '",
    ),
    "fish": (
        ["--no-config", "-i"],
        "burnctl completions fish | source; function fish_prompt; echo -n 'rea''dy> '; end",
    ),
}


@pytest.mark.parametrize(
    "shell", ["bash", pytest.param("zsh", marks=pytest.mark.slow), pytest.param("fish", marks=pytest.mark.slow)]
)
def test_what_tab_inserts_is_never_run(home: Home, tmp_path: Path, shell: str) -> None:
    """A log names its model after a command. Tab and Enter in a real shell give burnctl that name, and run nothing."""
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed here")
    rows = {"rows": [{"key": name, "turns": 1} for name in HOSTILE]}
    arguments, start = START[shell]
    with (
        fake_daemon(home.root / "burnd.sock", summary=rows),
        TerminalProcess(home, command=[shell, *arguments], environ=_place(tmp_path), columns=200) as person,
    ):
        person.type(f"cd {tmp_path}; {start}\n")
        person.wait_for("ready> ")
        for name in HOSTILE:
            _complete_and_run(person, tmp_path, "", name)
        for quote in "'\"":
            for name in HOSTILE[3:5] + HOSTILE[7:8]:
                _complete_and_run(person, tmp_path, quote, name)
    assert not (tmp_path / "PWNED").exists()


def _complete_and_run(person: TerminalProcess, folder: Path, quote: str, name: str) -> None:
    """Types the first character, presses Tab and Enter, and sees which argument the program got."""
    got = folder / "arguments"
    first = name[0] if name[0].isalnum() else "\\" + name[0]
    person.type(f"burnctl pricing show {quote}{first}\t\n")
    until(got.exists, why=lambda: repr(person.text[-200:]))
    assert got.read_text() == f"pricing\nshow\n{name}\n"
    got.unlink()


def _place(folder: Path) -> dict[str, str]:
    """A burnctl that completes, for as long as burnd takes to answer, and otherwise writes down its arguments."""
    program = folder / "burnctl"
    program.write_text(
        f"""#!/bin/sh
        while [ "$1" = completions ]; do
            found=$({sys.executable} -m burnctl "$@")
            [ -n "$found" ] && printf '%s\\n' "$found" && exit
        done
        printf '%s\\n' "$@" > {folder}/arguments.new
        mv {folder}/arguments.new {folder}/arguments
        """
    )
    program.chmod(0o755)
    return {"PATH": f"{folder}:/usr/bin:/bin", "PYTHONPATH": str(Path(__file__).parents[2])}


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed here")
def test_tab_in_a_real_bash(home: Home, tmp_path: Path) -> None:
    """A person types half an id after a flag and an equals sign, presses Tab, and the rest appears."""
    place = _place(tmp_path)
    with (
        fake_daemon(home.root / "burnd.sock", sessions__list=SESSIONS),
        TerminalProcess(home, command=["bash", "--norc", "--noprofile", "-i"], environ=place) as bash,
    ):
        bash.type("source <(burnctl completions bash); PS1='rea''dy> '\n")
        bash.wait_for("ready> ")
        bash.type("burnctl tail --session=0f9")
        bash.type("\t")
        bash.wait_for("0f9c12ab-1")
        bash.type("\x15burnctl comp\t")
        bash.wait_for("burnctl completions ")
