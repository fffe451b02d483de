"""`burnctl stamp` and `Client().stamp`: a stamp is recorded, spooled, or refused with a reason, and never lost."""

from __future__ import annotations

import json
import os
import re
import shutil
import stat
import subprocess
import time
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from burnctl import Client
from burnctl.stamp_record import BadStamp
from burnd import protocol
from tests import warm
from tests.burnctl.fake_daemon import Answer, FakeConnection, FakeDaemon, Refused, fake_daemon
from tests.burnctl.runner import BURNCTL, burnctl, environment, leftovers, spool_files, spooled
from tests.burnctl.terminal import Terminal

SESSION = "0f9c1d2e-0000-4000-8000-000000000001"


@pytest.fixture
def home(folder: Path) -> Path:
    return folder / "home"


def complains(code: int, message: str = "no", hint: str = "") -> Answer:
    def answer(_params: dict[str, Any], _talk: FakeConnection) -> None:
        raise Refused(code, message, hint)

    return answer


def hangs(_params: dict[str, Any], _talk: FakeConnection) -> None:
    """Accepts a request and never answers."""


def daemon(home: Path, stamp: Answer) -> AbstractContextManager[FakeDaemon]:
    return fake_daemon(home / "burnd.sock", stamp=stamp)


def test_with_no_daemon_it_is_spooled(home: Path) -> None:
    """Down: success, one whole file in the ledger's own form, and not a word beside."""
    done = burnctl(home, "stamp", "--session", SESSION, "workflowId=wf-1", "persona=senior=ish", "empty=")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    (record,) = spooled(home)
    assert re.fullmatch(r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d\.\d\d\dZ", record.pop("ts"))
    assert record == {
        "v": 1,
        "kind": "stamp",
        "selector": {"sessionId": SESSION},
        "enrichment": {"workflowId": "wf-1", "persona": "senior=ish", "empty": ""},
    }


def test_the_spool_is_private_whatever_the_umask(home: Path) -> None:
    """F82: folders 0700 and files 0600 under umask 000."""
    assert burnctl(home, "stamp", "--session", SESSION, "a=b", umask=0).returncode == 0
    (file,) = spool_files(home)
    modes = [stat.S_IMODE(path.stat().st_mode) for path in (home, home / "spool", file)]
    assert modes == [0o700, 0o700, 0o600]
    assert re.fullmatch(r"\d{19}-\d+-[0-9a-f]{8}\.json", file.name)


def test_json_shows_where_it_went(home: Path) -> None:
    """With --json a program can distinguish a recorded stamp from a spooled one, and sees why."""
    answer = json.loads(burnctl(home, "stamp", "--message", "msg_1", "a=b", "--json").stdout)
    assert answer == {"version": 1, "state": "spooled", "stamps": 1, "spooled": 1, "reason": "burnd is not running"}
    with daemon(home, {}):
        answer = json.loads(burnctl(home, "stamp", "--message", "msg_1", "a=b", "--json").stdout)
    assert answer == {"version": 1, "state": "recorded", "stamps": 1}


def test_a_person_sees_a_line(home: Path) -> None:
    """At a terminal a line reports the result of the stamp."""
    words = [*BURNCTL, "stamp", "--session", SESSION, "a=b"]
    with Terminal(words, environment(home), home.parent) as terminal:
        terminal.see("1 stamp spooled, to be recorded later: burnd is not running")
        assert terminal.end() == 0
    with daemon(home, {}), Terminal(words, environment(home), home.parent) as terminal:
        terminal.see("1 stamp recorded")
        assert terminal.end() == 0


def test_with_a_daemon_it_goes_over_the_socket(home: Path) -> None:
    """With a daemon up, it records the stamp with the original time, and nothing is spooled."""
    with daemon(home, {}) as burnd:
        span = ("--from", "2026-11-16T08:30:00+01:00", "--to", "2026-11-16T09:00")
        assert burnctl(home, "stamp", "--session", SESSION, *span, "step=2").returncode == 0
    ((method, params),) = burnd.asked
    assert method == "stamp"
    (sent,) = params["stamps"]
    assert sent["selector"]["range"] == {"fromTs": "2026-11-16T07:30:00.000Z", "toTs": "2026-11-16T09:00:00.000Z"}
    assert sent["enrichment"] == {"step": "2"}
    assert set(sent) == {"ts", "selector", "enrichment"}
    assert not (home / "spool").exists()


@pytest.mark.parametrize(
    "answer",
    [
        complains(protocol.BUSY),
        complains(protocol.TOO_LONG),
        complains(protocol.NOT_NOW),
        complains(protocol.FAILED),
        complains(protocol.NO_SUCH_METHOD),
        {"version": 99},
    ],
)
def test_a_daemon_that_cannot_now_does_not_matter(home: Path, answer: Answer) -> None:
    """Busy, failing, out of room, older or newer: the stamp is spooled, and that is success."""
    with daemon(home, answer):
        assert burnctl(home, "stamp", "--session", SESSION, "a=b").returncode == 0
    assert len(spooled(home)) == 1


def test_a_daemon_that_hangs_is_not_waited_for(home: Path) -> None:
    """Slow: after two seconds it is spooled; the daemon may have it too by then, as the very same stamp."""
    with daemon(home, hangs) as burnd:
        begun = time.monotonic()
        assert burnctl(home, "stamp", "--session", SESSION, "a=b").returncode == 0
        assert time.monotonic() - begun < 30  # it would not have answered for ever
    (record,) = spooled(home)
    (sent,) = burnd.asked[0][1]["stamps"]
    assert {"v": 1, "kind": "stamp", **sent} == record


def test_a_daemon_killed_in_between_does_not_matter(home: Path) -> None:
    """Killed between question and answer: spooled."""

    def dies(_params: dict[str, Any], talk: FakeConnection) -> None:
        talk.hang_up()

    with daemon(home, dies):
        assert burnctl(home, "stamp", "--session", SESSION, "a=b").returncode == 0
    assert len(spooled(home)) == 1


def test_what_the_daemon_refuses_is_not_spooled(home: Path) -> None:
    """A no is a no: the reason is shown, the exit code is 1, and nothing waits that would be refused again."""
    with daemon(home, complains(protocol.REFUSED, "that session is sealed", "unseal it")):
        done = burnctl(home, "stamp", "--session", SESSION, "a=b")
    assert done.returncode == 1
    assert "that session is sealed" in done.stderr
    assert "unseal it" in done.stderr
    assert not (home / "spool").exists()


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--session", "s"], "at least one KEY=VALUE"),
        (["a=b"], "a tag needs a session or a message"),
        (["--session", "s", "--message", "m", "a=b"], "a tag needs a session or a message"),
        (["--session", "", "a=b"], "must not be empty"),
        (["--session", "s", "workflow"], "'workflow' is not KEY=VALUE"),
        (["--session", "s", "=b"], "no key before the ="),
        (["--message", "m", "--from", "2026-01-01", "a=b"], "goes with a session"),
        (["--session", "s", "--from", "yesterday", "a=b"], "'yesterday' is not an ISO time"),
        (["--session", "s", "--from", "2026-01-02", "--to", "2026-01-01", "a=b"], "before it begins"),
        (["--session", "s", "--from", "2026-01-02", "--to", "2026-01-02", "a=b"], "before it begins"),
        (["--session", "s", "a=" + "x" * 300_000], "at most"),
        (["--stdin", "--session", "s"], "tags and sessions are in the lines"),
        (["--session", "s", "--sessoin", "t", "a=b"], "no such option"),
    ],
)
def test_nonsense_is_refused_with_a_reason(home: Path, words: list[str], says: str) -> None:
    """Exit code 2, what is wrong in one line, and nothing on the disk."""
    limit = 100_000  # one argument of the kernel's may have 128 KiB
    if any(len(word) > limit for word in words):
        done = burnctl(home, "stamp", "--stdin", input=json.dumps({"sessionId": "s", "a": "x" * 300_000}))
    else:
        done = burnctl(home, "stamp", *words)
    assert done.returncode == 2, done.stderr
    assert says in done.stderr
    assert "Traceback" not in done.stderr
    assert not home.exists()


def test_a_word_that_is_no_utf8_is_refused(home: Path) -> None:
    """Bytes that no ledger could hold are not turned into something else."""
    done = subprocess.run(
        [*map(os.fsencode, BURNCTL), b"stamp", b"--session", b"s", b"a=\xff"],
        env=environment(home),
        capture_output=True,
        check=False,
    )
    assert done.returncode == 2
    assert b"is not valid UTF-8" in done.stderr


def test_a_range_may_be_open_at_one_end(home: Path) -> None:
    """--from alone means from then on, --to alone up to then."""
    assert burnctl(home, "stamp", "--session", "s", "--from", "2026-01-01", "a=b").returncode == 0
    assert burnctl(home, "stamp", "--session", "s", "--to", "2026-01-01", "a=b").returncode == 0
    ranges = [record["selector"]["range"] for record in spooled(home)]
    assert ranges[0] == {"fromTs": "2026-01-01T00:00:00.000Z", "toTs": "9999-12-31T23:59:59.999Z"}
    assert ranges[1] == {"fromTs": "0001-01-01T00:00:00.000Z", "toTs": "2026-01-01T00:00:00.000Z"}


LINES: list[dict[str, Any]] = [
    {"sessionId": "s1", "workflowId": "wf-1", "step": "1"},
    {"messageId": "m1", "enrichment": {"kind": "x", "v": "y"}},
    {"sessionId": "s2", "range": {"fromTs": "2026-01-01T00:00:00Z"}, "enrichment": {"a": "b"}},
    {"selector": {"sessionId": "s3"}, "enrichment": {"a": "b"}},
    {
        "v": 1,
        "kind": "stamp",
        "ts": "2026-01-01T00:00:00.000Z",
        "selector": {"messageId": "m2"},
        "enrichment": {"a": "b"},
    },
]


def test_many_come_on_stdin(home: Path) -> None:
    """--stdin takes each of the documented forms, empty lines between them, and keeps their order and times."""
    text = "\n\n".join(json.dumps(line) for line in LINES)
    assert burnctl(home, "stamp", "--stdin", input=text).returncode == 0
    found = spooled(home)
    assert [record["selector"] for record in found] == [
        {"sessionId": "s1"},
        {"messageId": "m1"},
        {"sessionId": "s2", "range": {"fromTs": "2026-01-01T00:00:00.000Z", "toTs": "9999-12-31T23:59:59.999Z"}},
        {"sessionId": "s3"},
        {"messageId": "m2"},
    ]
    assert [record["enrichment"] for record in found[:2]] == [
        {"workflowId": "wf-1", "step": "1"},
        {"kind": "x", "v": "y"},
    ]
    assert found[-1] == LINES[-1]


def test_no_lines_are_no_stamps(home: Path) -> None:
    """An empty stdin is nothing to do, not a mistake."""
    done = burnctl(home, "stamp", "--stdin", "--json", input="\n")
    assert (done.returncode, json.loads(done.stdout)["stamps"]) == (0, 0)


def test_many_are_split_into_requests_that_fit(home: Path) -> None:
    """However many lines come, no request is larger than the daemon takes."""
    lines = [json.dumps({"sessionId": f"s{n}", "note": "x" * 1000}) for n in range(2000)]
    with daemon(home, {}) as burnd:
        assert burnctl(home, "stamp", "--stdin", input="\n".join(lines)).returncode == 0
    sent = [stamp for _, params in burnd.asked for stamp in params["stamps"]]
    assert [stamp["selector"]["sessionId"] for stamp in sent] == [f"s{n}" for n in range(2000)]
    assert all(len(json.dumps(params)) < protocol.REQUEST_BYTES for _, params in burnd.asked)
    assert len(burnd.asked) > 1


def test_a_daemon_that_goes_midway_gets_the_rest_by_spool(home: Path) -> None:
    """Acknowledged stamps are recorded and the rest is spooled, without gaps; or the error gives the count."""
    recorded: list[str] = []

    def once(params: dict[str, Any], talk: FakeConnection) -> dict[str, Any] | None:
        if recorded:
            talk.hang_up()
            return None
        recorded.extend(stamp["selector"]["sessionId"] for stamp in params["stamps"])
        return {}

    lines = [json.dumps({"sessionId": f"s{n}", "note": "x" * 150_000}) for n in range(10)]
    with daemon(home, once):
        done = burnctl(home, "stamp", "--stdin", "--json", input="\n".join(lines))
    assert json.loads(done.stdout)["stamps"] == 10
    assert len(recorded) == 3
    assert recorded + [record["selector"]["sessionId"] for record in spooled(home)] == [f"s{n}" for n in range(10)]
    shutil.rmtree(home / "spool")
    (home / "spool").write_text("in the way")
    recorded.clear()
    with daemon(home, once):
        done = burnctl(home, "stamp", "--stdin", input="\n".join(lines))
    assert done.returncode == 1
    assert "the first 3 of 10 were recorded, the others were not" in done.stderr


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("{", "line 2: is not JSON"),
        ("[1]", "line 2: is not an object"),
        ('{"sessionId": "s", "a": 1}', "the value of 'a' is not a string: 1"),
        ('{"sessionId": "s", "a": null}', "the value of 'a' is not a string: null"),
        ('{"sessionId": 7, "a": "b"}', "is not a string"),
        ('{"sessionId": "s", "": "b"}', "a key must not be empty"),
        ('{"sessionId": "s"}', "at least one KEY=VALUE"),
        ('{"a": "b"}', "a tag needs a session or a message"),
        ('{"sessionId": "s", "enrichment": {"a": "b"}, "c": "d"}', "also 'c'"),
        ('{"sessionId": "s", "enrichment": ["a"]}', "is not an object"),
        ('{"selector": {"sessionId": "s"}, "messageId": "m", "a": "b"}', "give one of the two"),
        ('{"selector": {"session": "s"}, "a": "b"}', "'session'"),
        ('{"sessionId": "s", "range": {"from": "2026-01-01"}, "a": "b"}', "'from'"),
        ('{"sessionId": "s", "range": {"fromTs": 5}, "a": "b"}', "is not an ISO time"),
        ('{"sessionId": "s", "ts": "soon", "a": "b"}', "is not an ISO time"),
        ('{"v": 1, "kind": "turn", "sessionId": "s", "a": "b"}', "is not a stamp"),
        ('{"sessionId": "s", "a": "\\ud800"}', "is not valid UTF-8"),
        ("[" * 100_000, "line 2: is not JSON"),
    ],
)
def test_a_bad_line_refuses_them_all(home: Path, line: str, says: str) -> None:
    """The first bad line is named, and none of the good ones before it is recorded."""
    done = burnctl(home, "stamp", "--stdin", input=f'{{"sessionId": "good", "a": "b"}}\n{line}\n')
    assert done.returncode == 2
    assert says in done.stderr
    assert "nothing was recorded" in done.stderr
    assert not home.exists()


def test_it_starts_no_daemon_and_needs_no_streams(home: Path) -> None:
    """F82: with every standard stream closed the stamp is still made."""
    words = " ".join([*BURNCTL, "stamp", "--session", "s", "a=b"])
    done = subprocess.run(["sh", "-c", f"exec {words} <&- >&- 2>&-"], env=environment(home), check=False)
    assert done.returncode == 0
    assert len(spooled(home)) == 1
    assert {path.name for path in home.iterdir()} == {"spool"}


def test_without_any_home_a_stamp_fails(home: Path) -> None:
    """F82: without HOME there is no place for a stamp, and the error names the variables."""
    script = "import os; os.path.expanduser = lambda path: path; from burnctl.cli import main; raise SystemExit(main())"
    done = subprocess.run(
        [*BURNCTL[:2], "-c", script, "stamp", "--session", "s", "a=b"],
        env={"PATH": "/bin"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "set HOME or RELAYBURN_HOME" in done.stderr


def test_a_home_too_deep_for_a_socket_still_takes_stamps(tmp_path: Path) -> None:
    """F65: no daemon could listen there without help, but a stamp is kept."""
    home = tmp_path / ("deep" * 30)
    assert burnctl(home, "stamp", "--session", "s", "a=b").returncode == 0
    assert len(spooled(home)) == 1


def test_from_python(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`Client().stamp(...)` does the same: over the socket, by spool, or BadStamp, which is a ValueError."""
    monkeypatch.setenv("RELAYBURN_HOME", str(home))
    with Client() as client:
        assert client.stamp(session="s", workflowId="wf-1") == {
            "version": 1,
            "state": "spooled",
            "stamps": 1,
            "spooled": 1,
            "reason": "burnd is not running",
        }
        client.stamp(session="s", from_ts="2026-01-01", to_ts="2026-01-02", step="1")
        client.stamp(message="m", **{"odd key": "x"})
    assert [record["enrichment"] for record in spooled(home)] == [
        {"workflowId": "wf-1"},
        {"step": "1"},
        {"odd key": "x"},
    ]
    with daemon(home, {}) as burnd, Client() as client:
        assert client.stamp(session="s", a="b") == {"version": 1, "state": "recorded", "stamps": 1}
    assert burnd.asked[0][1]["stamps"][0]["selector"] == {"sessionId": "s"}


def test_a_refused_session_is_reported_and_not_spooled(home: Path) -> None:
    """burnd knows the sessions with this prefix, so its error is printed, down to the shortest `shortId`."""
    with daemon(home, complains(protocol.REFUSED, "more than one session begins with 'a'", "say more of it: a1, a2")):
        done = burnctl(home, "stamp", "--session", "a", "x=y")
    assert (done.returncode, done.stdout) == (1, "")
    assert "more than one session begins with 'a'; say more of it: a1, a2" in " ".join(done.stderr.split())
    assert not (home / "spool").exists()


def test_many_from_python(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`stamp_many` takes the input of `burnctl stamp --stdin`, and records all of it, or nothing if one is invalid."""
    monkeypatch.setenv("RELAYBURN_HOME", str(home))
    good: list[dict[str, Any]] = [{"sessionId": name, "enrichment": {"step": name}} for name in ("a", "b")]
    with Client() as client:
        with pytest.raises(BadStamp):
            client.stamp_many([*good, {"sessionId": "c"}])
        assert not home.exists()
        assert client.stamp_many(good)["spooled"] == 2
    assert [record["enrichment"] for record in spooled(home)] == [{"step": "a"}, {"step": "b"}]


@pytest.mark.parametrize(
    "said",
    [{"session": "s"}, {"a": "b"}, {"session": "s", "a": 1}, {"session": 5, "a": "b"}, {"session": "s", "": "b"}],
)
def test_nonsense_from_python(home: Path, monkeypatch: pytest.MonkeyPatch, said: dict[str, Any]) -> None:
    """Values that are no strings, missing selectors and empty keys are refused before anything is sent."""
    monkeypatch.setenv("RELAYBURN_HOME", str(home))
    with pytest.raises(BadStamp) as caught, Client() as client:
        client.stamp(**said)
    assert isinstance(caught.value, ValueError)
    assert not home.exists()


def test_a_hundred_spawners_at_once(home: Path) -> None:
    """Processes that stamp at the same moment each leave their own whole file."""
    running = [warm.Popen([*BURNCTL, "stamp", "--session", f"s{n}", "a=b"], env=environment(home)) for n in range(20)]
    assert [process.wait() for process in running] == [0] * 20
    assert {record["selector"]["sessionId"] for record in spooled(home)} == {f"s{n}" for n in range(20)}
    assert leftovers(home) == []
