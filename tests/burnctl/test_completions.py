"""Pressing Tab: verbs, flags, choices, and the session ids and models that burnd knows, without ever starting it."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from burnctl.commands import present
from burnd.paths import Home
from tests.burnctl.fake import fake
from tests.burnctl.person import Person, environment, run
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
    assert words(home, "config", "") == ["init", "show", "set", "path"]
    assert words(home, "config", "show", "--") == ["--help", "--json", "--no-color"]
    assert words(home, "completions", "") == ["bash", "zsh", "fish"]
    assert words(home, "compare", "--by", "") == ["model", "source", "tag:"]
    assert words(home, "tail", "--source", "o") == ["opencode"]
    assert "--session" in words(home, "tail", "--")
    assert "--json" not in words(home, "tail", "--json", "--j")
    assert words(home, "no-such-verb", "") == []
    assert words(home, "run", "--", "cl") == []


def test_names_that_burnd_knows(home: Home) -> None:
    with fake(home.root / "burnd.sock", sessions__list=SESSIONS, summary=SUMMARY) as server:
        # An answer that does not come within moments is not waited for, so a busy machine may have to be asked again.
        until(lambda: words(home, "tail", "--session", "0f") == ["0f9c12ab-1", "0fff12ab-2"])
        until(lambda: words(home, "tail", "--model", "") == ["claude-opus-4-5", "anthropic/claude:beta"])
        until(lambda: words(home, "forget", "s") == ["ses_77"])
        described = "0f9c12ab-1\t2026-01-01  burnd  Fix the parser"
        asked = ("completions", "words", "--", "tail", "--session", "0f9")
        until(lambda: run(home, *asked).stdout.startswith(described))
        assert all(method in ("sessions.list", "summary") for method, _ in server.asked)


def test_burnd_is_never_started_and_never_waited_for(home: Home) -> None:
    """With burnd down, or not answering, there is simply nothing to offer, at once."""
    assert words(home, "tail", "--session", "") == []
    assert not home.root.exists()
    with fake(home.root / "burnd.sock", sessions__list=lambda *_: None):
        begun = time.monotonic()
        assert words(home, "tail", "--session", "") == []
        assert time.monotonic() - begun < 30  # it would not have answered for ever


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_scripts_are_sound(home: Home, shell: str) -> None:
    done = run(home, "completions", shell)
    assert done.returncode == 0
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed here")
    subprocess.run([shell, "-n"], input=done.stdout, text=True, check=True)


def in_bash(home: Home, tmp_path: Path, line: str) -> list[str]:
    """What bash offers when Tab is pressed at the end of the line: split into words as bash itself does it."""
    program = tmp_path / "burnctl"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m burnctl "$@"\n')
    program.chmod(0o755)
    (tmp_path / "script").write_text(run(home, "completions", "bash").stdout)
    test = r"""
        source "$1"
        COMP_LINE=$2 COMP_POINT=${#2}
        read -ra parts <<< "$(sed -E 's/([=:])/ \1 /g' <<< "$2")"
        [[ $2 == *' ' || $2 == *= || $2 == *: ]] && parts+=('')
        COMP_WORDS=("${parts[@]}") COMP_CWORD=$((${#parts[@]} - 1))
        _burnctl
        printf '%s\n' "${COMPREPLY[@]}"
    """
    done = subprocess.run(
        ["bash", "-c", test, "bash", str(tmp_path / "script"), line],
        env=environment(home, PATH=f"{tmp_path}:/usr/bin:/bin", PYTHONPATH=str(Path(__file__).parents[2])),
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert done.stderr == ""
    return [word for word in done.stdout.splitlines() if word]


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed here")
def test_bash_completes(home: Home, tmp_path: Path) -> None:
    """The script as bash runs it, with words broken at = and : put together again."""
    with fake(home.root / "burnd.sock", sessions__list=SESSIONS, summary=SUMMARY):
        assert in_bash(home, tmp_path, "burnctl stat") == [verb for verb in present() if verb.startswith("stat")]
        assert in_bash(home, tmp_path, "burnctl config ") == ["init", "show", "set", "path"]
        until(lambda: in_bash(home, tmp_path, "burnctl tail --session 0f") == ["0f9c12ab-1", "0fff12ab-2"])
        until(lambda: in_bash(home, tmp_path, "burnctl tail --session=0f9") == ["0f9c12ab-1"])
        until(lambda: in_bash(home, tmp_path, "burnctl tail --session=") == ["0f9c12ab-1", "0fff12ab-2", "ses_77"])
        until(lambda: in_bash(home, tmp_path, "burnctl tail --model anthropic/claude:b") == ["beta"])
        assert in_bash(home, tmp_path, "burnctl nothing ") == []


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed here")
def test_tab_in_a_real_bash(home: Home, tmp_path: Path) -> None:
    """A person types half an id after a flag and an equals sign, presses Tab, and the rest appears."""
    program = tmp_path / "burnctl"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m burnctl "$@"\n')
    program.chmod(0o755)
    place = {"PATH": f"{tmp_path}:/usr/bin:/bin", "PYTHONPATH": str(Path(__file__).parents[2])}
    with (
        fake(home.root / "burnd.sock", sessions__list=SESSIONS),
        Person(home, command=["bash", "--norc", "--noprofile", "-i"], environ=place) as bash,
    ):
        bash.type("source <(burnctl completions bash); PS1='rea''dy> '\n")
        bash.wait_for("ready> ")
        bash.type("burnctl tail --session=0f9")
        until(lambda: _appears_after_tab(bash, "0f9c12ab-1"))
        bash.type("\x15burnctl comp\t")
        bash.wait_for("burnctl completions ")


def _appears_after_tab(bash: Person, text: str) -> bool:
    """On a busy machine burnd's answer may come too late for a Tab; then a person presses it again."""
    bash.type("\t")
    try:
        bash.wait_for(text, 5)
    except AssertionError:
        return False
    return True
