"""Part A: session files that are cut, replaced, damaged and hostile, under a running daemon."""

from __future__ import annotations

import json
import os
import random
import signal
import socket
import stat
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest

from burnd.logfiles.tail import TOO_LONG
from burnd.paths import Home
from tests.faults import tally
from tests.faults.watched import Watched, answers, sum_of, whole
from tests.harness.claude_code.transcript import Transcript, text
from tests.harness.opencode import data as opencode
from tests.server.logs import projects
from tests.server.wire import noise, running, until


def test_an_unfinished_line_is_not_read(watched: Watched) -> None:
    """F01: nothing after the last newline counts; the line counts once it is whole."""
    first, second = answers("f01", 0, 2)
    watched.append("f01", first + b"\n" + second[:100])
    assert watched.recorded("f01") == sum_of(0)
    watched.append("f01", second[100:] + b"\n")
    assert watched.recorded("f01") == sum_of(0, 1)
    tally.faults()


@pytest.mark.parametrize("cut", [1, 2, 3])
def test_a_character_cut_in_two_is_whole(watched: Watched, cut: int) -> None:
    """F02: an emoji whose bytes arrive in two appends is read intact."""
    session = f"f02-{cut}"
    log = Transcript(session=session, prefix=f"{session}-u")
    log.says(f"{session}-m", text("ship it \N{ROCKET} now"))
    line = json.dumps(json.loads(log.lines[0]), ensure_ascii=False).encode() + b"\n"
    at = line.index("\N{ROCKET}".encode()) + cut
    watched.append(session, line[:at])
    watched.flush()
    watched.append(session, line[at:])
    watched.flush()
    assert watched.texts(session) == ["ship it \N{ROCKET} now"]


def test_a_log_that_is_cut_is_read_again(watched: Watched) -> None:
    """F03: ten lines, cut to three, two new ones: twelve answers, each once."""
    lines, before = answers("f03", 0, 10), watched.rewinds()
    path = watched.append("f03", whole(lines))
    assert watched.recorded("f03") == sum_of(*range(10))
    with path.open("r+b") as file:
        file.truncate(len(whole(lines[:3])))
    watched.append("f03", whole(answers("f03", 10, 2)))
    assert watched.recorded("f03") == sum_of(*range(12))
    until(lambda: watched.rewinds() == before + 1)  # the log is written in the background
    tally.faults()


def test_a_log_rewritten_between_two_looks_is_read_again(watched: Watched) -> None:
    """F04: longer, with different content, between two polls: the bytes before the cursor reveal it."""
    before, path = watched.rewinds(), watched.append("f04", whole(answers("f04", 0, 3)))
    assert watched.recorded("f04") == sum_of(0, 1, 2)
    watched.daemon.process.send_signal(signal.SIGSTOP)
    try:
        with path.open("r+b") as file:
            file.truncate(0)
            file.write(whole(answers("f04", 3, 9, words="quite another, and longer, answer")))
    finally:
        watched.daemon.process.send_signal(signal.SIGCONT)
    assert watched.recorded("f04") == sum_of(*range(12))
    until(lambda: watched.rewinds() == before + 1)
    tally.faults()


def test_an_edit_in_place_changes_nothing_that_was_seen(watched: Watched) -> None:
    """F05: within the bytes before the cursor the log is read again; far before it, what was seen stays."""
    lines = answers("f05", 0, 8)
    path = watched.append("f05", whole(lines))
    assert watched.recorded("f05") == sum_of(*range(8))
    data, before = bytearray(whole(lines)), watched.rewinds()
    for at in (data.rindex(b"answer"), data.index(b"answer 4")):
        data[at : at + 6] = b"ANSWER"
        with path.open("r+b") as file:
            file.write(data)
        assert watched.recorded("f05") == sum_of(*range(8))
        until(lambda: watched.rewinds() == before + 1)
    tally.faults(2)


def test_another_file_in_its_place_is_read_from_the_start(watched: Watched) -> None:
    """F06: the old file is read to its end, including unread lines; lines in both are recorded once."""
    path = watched.append("f06", whole(answers("f06", 0, 3)))
    assert watched.recorded("f06") == sum_of(0, 1, 2)
    new = path.with_suffix(".tmp")
    new.write_bytes(whole(answers("f06", 1, 6)))
    watched.daemon.process.send_signal(signal.SIGSTOP)
    watched.append("f06", whole(answers("f06", 7, 1)))
    os.replace(new, path)
    watched.daemon.process.send_signal(signal.SIGCONT)
    assert watched.recorded("f06") == sum_of(*range(8))
    tally.faults()


@pytest.fixture
def home_on_disk() -> Iterator[Home]:
    """A home on a disk, where file systems give inodes away again; in memory they do not."""
    with tempfile.TemporaryDirectory(prefix="burnd-", dir="/var/tmp") as folder:
        yield Home(Path(folder) / "home")


def test_a_new_file_with_an_old_number_is_a_new_file(home_on_disk: Home) -> None:
    """F07: a log replaced while the daemon was down is read from its start. On file systems that reuse inodes it has
    the same one, so that only its content reveals the replacement."""
    with running(home_on_disk) as daemon:
        watched = Watched(home_on_disk, daemon)
        path = watched.append("f07", whole(answers("f07", 0, 4)))
        assert watched.recorded("f07") == sum_of(0, 1, 2, 3)
        daemon.terminate()
    number = path.stat().st_ino
    path.unlink()
    made = _made_with(number, path.parent)
    made.write_bytes(whole(answers("f07", 4, 6)))
    os.replace(made, path)
    with running(home_on_disk) as daemon:
        assert Watched(home_on_disk, daemon).recorded("f07") == sum_of(*range(10)), (
            f"inode {path.stat().st_ino} for {number}"
        )
    tally.faults()
    if path.stat().st_ino != number:
        pytest.skip("held, but with another inode: this file system gave none a second time")


def _made_with(number: int, folder: Path) -> Path:
    """A new file with this inode, or with any where the file system does not use one again."""
    made = [folder / f"{n}.tmp" for n in range(200)]
    for path in made:
        path.touch()
        if path.stat().st_ino == number:
            break
    for other in made:
        if other != path:
            other.unlink(missing_ok=True)
    return path


def test_deleted_logs_take_nothing_with_them(watched: Watched) -> None:
    """F08: all readable lines are recorded, the last ones too, without a warning."""
    path = watched.append("f08", whole(answers("f08", 0, 5)))
    assert watched.recorded("f08") == sum_of(*range(5))
    watched.daemon.process.send_signal(signal.SIGSTOP)
    watched.append("f08", whole(answers("f08", 5, 3)))
    path.unlink()
    watched.daemon.process.send_signal(signal.SIGCONT)
    watched.append("f08b", whole(answers("f08b", 0, 1))).unlink()
    assert watched.recorded("f08") == sum_of(*range(8))
    assert "f08" not in json.dumps(watched.call("status")["degraded"])
    tally.faults()


def test_a_line_too_long_is_passed_over(watched: Watched) -> None:
    """F09: 70 MB without a newline between two answers: both are recorded, and memory does not grow. Status shows
    position and length of the line."""
    first, second = answers("f09", 0, 2)
    before = watched.daemon.rss()
    path = watched.append("f09", first + b"\n")
    with path.open("r+b") as file:
        file.seek(70 << 20, os.SEEK_END)  # a hole: it takes no room on the disk
        file.write(b"\n" + second + b"\n")
    assert watched.recorded("f09") == sum_of(0, 1)
    assert watched.daemon.rss() - before < 48 << 20
    assert watched.counts()["skipped lines"] >= 1
    place = {"path": str(path), "offset": len(first) + 1, "size": (70 << 20) + 1, "reason": TOO_LONG, "row": None}
    status = watched.call("status")
    assert [line for line in status["sources"][0]["unused"]["lines"] if line["path"] == str(path)] == [place]
    assert any(f"{path}, 73,400,321 bytes from byte {place['offset']}" in item["what"] for item in status["degraded"])
    path.unlink()
    tally.bad_inputs()


def test_the_last_line_of_a_dead_process_is_read_when_its_log_goes_on(watched: Watched) -> None:
    """F10: a tail without a newline waits; the next writer's newline makes it a line."""
    first, second = answers("f10", 0, 2)
    watched.append("f10", first)
    assert watched.recorded("f10") == 0
    watched.append("f10", b"\n" + second + b"\n")
    assert watched.recorded("f10") == sum_of(0, 1)


def test_a_last_line_without_newline_is_taken_when_its_log_is_deleted(watched: Watched) -> None:
    """F10: the line will never be completed."""
    path = watched.append("f10b", answers("f10b", 0, 1)[0])
    assert watched.recorded("f10b") == 0
    path.unlink()
    assert watched.recorded("f10b") == sum_of(0)
    tally.faults()


@pytest.mark.slow
def test_a_last_line_is_taken_when_its_log_has_been_quiet(home: Home) -> None:
    """F10: a complete line is read without its newline; half a line is listed as unfinished and waited for."""
    with running(home, script="tests.faults.quick") as daemon:
        watched = Watched(home, daemon)
        watched.append("f10c", answers("f10c", 0, 1)[0])
        half = watched.append("f10d", answers("f10d", 0, 1)[0][:100])
        watched.until_recorded("f10c", sum_of(0))
        until(lambda: [(str(half), "unfinished")] == _unused(watched), 60, lambda: str(_unused(watched)))
        watched.append("f10d", answers("f10d", 0, 1)[0][100:] + b"\n")
        watched.append("f10c", b"\n" + whole(answers("f10c", 1, 1)))
        watched.until_recorded("f10d", sum_of(0))
        assert watched.recorded("f10c") == sum_of(0, 1)
        assert _unused(watched) == []
    tally.faults()


def _unused(watched: Watched) -> list[tuple[str, str]]:
    return [(line["path"], line["reason"]) for line in watched.call("status")["sources"][0]["unused"]["lines"]]


def test_random_bytes_are_counted_line_by_line(watched: Watched) -> None:
    """F11: 10,000 lines of them, each rejected once, and the answers between them are read."""
    chance, before = random.Random(11), _rejected(watched)
    junk = [chance.randbytes(chance.randrange(20, 80)).replace(b"\n", b"\xff") for _ in range(10_000)]
    lines = answers("f11b", 0, 3)
    watched.append("f11b", whole([*junk[:3000], lines[0], *junk[3000:7000], lines[1], *junk[7000:], lines[2]]))
    assert watched.recorded("f11b") == sum_of(0, 1, 2)
    assert _rejected(watched) - before == len(junk)
    tally.bad_inputs(len(junk))


def _rejected(watched: Watched) -> int:
    return sum(number for name, number in watched.counts().items() if name.startswith("rejected"))


def test_odd_bytes_hurt_only_their_own_line(watched: Watched) -> None:
    """F11: a BOM, CRLF, NULs, invalid UTF-8 and U+2028: neighbours are read, and no line is split."""
    lines = answers("f11", 0, 6, words="one\u2028two")
    odd = (b"\xff\xfe garbage", b"\x00" * 100, b'{"type":"user","message":"\xc3\x28"}', b"")
    data = b"\xef\xbb\xbf" + lines[0] + b"\r\n"
    for line, bad in zip(lines[1:5], odd, strict=True):
        data += bad + b"\n" + line + b"\n"
    watched.append("f11", data + lines[5].replace(b"one", b"\xc3\x28") + b"\n")
    assert watched.recorded("f11") == sum_of(*range(6))
    assert any("one\u2028two 1" in words for words in watched.texts("f11"))
    tally.bad_inputs(len(odd) + 2)


def test_hostile_json_hurts_only_its_own_line(watched: Watched) -> None:
    """F12: depth, huge numbers, what is no number, lone surrogates, doubled keys; a value is never wrong silently."""
    lines = answers("f12", 0, 9)
    usage = '{"type":"assistant","sessionId":"f12","message":{"id":"f12-x%d","usage":{"output_tokens":%s}}}'
    hostile = [
        b"[" * 1_000_000,
        b'{"a":' * 5000 + b"1" + b"}" * 5000,
        (usage % (0, "9" * 5000)).encode(),
        (usage % (1, "NaN")).encode(),
        (usage % (2, "1e999")).encode(),
        (usage % (3, "-5")).encode(),
        b'{"type":"user","sessionId":"f12","uuid":"x","message":{"role":"user","content":"\\ud800"}}',
        b'{"type":"user","type":"assistant","sessionId":"f12","sessionId":"f12"}',
    ]
    data = b""
    for line, bad in zip(lines, [*hostile, b"null"], strict=True):
        data += bad + b"\n" + line + b"\n"
    watched.append("f12", data)
    assert watched.recorded("f12") == sum_of(*range(9))
    tally.bad_inputs(len(hostile) + 1)


def test_what_is_unknown_is_counted(watched: Watched) -> None:
    """F13: a type and fields of a later release: counted by type, shown in status, and nothing else is hurt."""
    line = json.loads(answers("f13", 0, 1)[0])
    line = {"later": [1, {"x": None}], **dict(reversed(line.items())), "zz": "new"}
    watched.append("f13", whole([b'{"type":"hologram","sessionId":"f13"}', json.dumps(line).encode()]))
    assert watched.recorded("f13") == sum_of(0)
    assert watched.counts()["unrecognised type=hologram"] == 1
    tally.bad_inputs()


def test_the_same_message_in_many_files_counts_once(watched: Watched) -> None:
    """F14: streamed again, copied by a resume, shuffled: each answer is one turn in all."""
    before = watched.call("summary")["totals"]
    lines = answers("f14", 0, 4)
    watched.append("f14", whole([lines[0], lines[0], *lines, lines[3]]))
    copies = [line.replace(b'"sessionId": "f14"', b'"sessionId": "f14b"') for line in reversed(lines)]
    watched.append("f14b", whole(copies))
    watched.flush()
    after = watched.call("summary")["totals"]
    assert after["turns"] - before["turns"] == 4
    assert after["usage"]["output"] - before["usage"]["output"] == sum_of(0, 1, 2, 3)
    tally.faults()


_ODD_IDS = [
    *("../../../escape", "/etc/escape", "..", ".", "a/b/c", "a\\b", "x" * 10_000, "con", "a\u0000b", "sp ace\n", "-rf"),
    *("F15", "f15", "\u00c4", "A\u0308", "\u202e", "%s%n", "f15.jsonl", "blobs.db", "\U0001f600" * 60),
]


def test_a_session_id_names_no_path(watched: Watched) -> None:
    """F15: content stays in its folder under a short file name for any session id: each is read back by its id, also
    when ids differ only in case, and forgetting one leaves the others."""
    path = watched.home.root.parent / ".local" / "share" / "opencode" / "opencode.db"
    with closing(opencode.Writer(path)) as writer:  # a log's name is limited by the file system, an id in a row is not
        elsewhere = _outside_content(watched)
        for n, name in enumerate(_ODD_IDS):
            writer.session(name)
            writer.user(f"f15-u{n}", name, "go")
            writer.step(f"f15-a{n}", name, f"f15-u{n}", opencode.text(f"odd {n}"), tokens=opencode.tokens(output=1))
        watched.flush()
    said = [["go", f"odd {n}"] for n in range(len(_ODD_IDS))]
    assert [watched.texts(name) for name in _ODD_IDS] == said
    entries = list(watched.home.content.rglob("*"))
    assert all(len(entry.name.encode()) <= 120 and entry.parent == watched.home.content for entry in entries)
    assert _outside_content(watched) == elsewhere
    for name in _ODD_IDS[::6]:
        watched.call("content.forget", session=name)
    kept = [words if n % 6 else [] for n, words in enumerate(said)]
    assert [watched.texts(name) for name in _ODD_IDS] == kept
    tally.bad_inputs(len(_ODD_IDS))


def _outside_content(watched: Watched) -> set[Path]:
    """Files besides logs, content and the index."""
    home = watched.home
    own = (home.content, home.index, watched.root, home.root.parent / ".local")
    found = home.root.parent.rglob("*")
    return {path for path in found if not any(path.is_relative_to(folder) for folder in own)} - {watched.root.parent}


@pytest.mark.timed
def test_what_is_no_plain_file_is_not_opened(watched: Watched, tmp_path: Path) -> None:
    """F16: links, pipes, sockets, devices and loops are neither read nor waited for; logs beside them are read."""
    secret = tmp_path / "secret.jsonl"
    secret.write_bytes(whole(answers("f16-secret", 0, 1)))
    folder = watched.path("f16").parent
    (folder / "link.jsonl").symlink_to(secret)
    (folder / "loop").symlink_to(folder)
    os.mkfifo(folder / "pipe.jsonl")
    (folder / "zeros-link.jsonl").symlink_to("/dev/zero")
    with suppress(PermissionError):  # only root may, and not everywhere
        os.mknod(folder / "zeros.jsonl", stat.S_IFCHR | 0o600, os.makedev(1, 5))
    (folder / "folder.jsonl").mkdir()
    here = Path.cwd()
    with socket.socket(socket.AF_UNIX) as listening:
        os.chdir(folder)
        try:
            listening.bind("socket.jsonl")
        finally:
            os.chdir(here)
        began = time.monotonic()
        watched.append("f16", whole(answers("f16", 0, 2)))
        assert watched.recorded("f16") == sum_of(0, 1)
        assert time.monotonic() - began < 2 * noise()
    assert watched.outputs("f16-secret") == 0
    tally.bad_inputs(5)


def test_a_log_that_may_not_be_read_hurts_only_itself(home: Home) -> None:
    """F17: listed in status with its path while the others continue; read when permissions allow it."""
    with running(home, script="tests.faults.unprivileged") as daemon:
        watched = Watched(home, daemon)
        secret = watched.append("f17", b"")
        secret.chmod(0)
        watched.append("f17b", whole(answers("f17b", 0, 2)))
        assert watched.recorded("f17b") == sum_of(0, 1)
        until(lambda: str(secret) in str(watched.call("status")), 30)
        secret.chmod(0o600)
        watched.append("f17", whole(answers("f17", 0, 3)))
        watched.until_recorded("f17", sum_of(0, 1, 2))
        until(lambda: watched.call("status")["degraded"] == [], 30)
    tally.faults()


def test_skipped_paths_are_reported(home: Home) -> None:
    """P1, F16, F17: an unreadable or too deep folder, a log of another user, a link: path and advice. A link is not an
    issue. A path that is readable again is read, and its issue removed."""
    root = projects(home)
    secret, deep, elsewhere = root / "-secret", root.joinpath(*"0123456789"), home.root.parent / "elsewhere"
    for folder in (secret, deep, elsewhere):
        folder.mkdir(parents=True)
    (secret / "f17c.jsonl").write_bytes(whole(answers("f17c", 0, 3)))
    (root / "-linked").symlink_to(elsewhere)
    expected = {secret: "chmod", root.joinpath(*"012345678"): "move it up"}
    if os.geteuid() == 0:
        foreign = root / "foreign.jsonl"
        foreign.touch()
        os.chown(foreign, 65534, -1)
        expected[foreign] = "chown"
    secret.chmod(0)
    with running(home, script="tests.faults.unprivileged") as daemon:
        watched = Watched(home, daemon)
        watched.flush()
        status = watched.call("status")
        told = {item["what"]: item["remedy"] for item in status["degraded"]}
        for path, remedy in expected.items():
            assert [remedy in said for what, said in told.items() if f"{path}:" in what] == [True], told
        assert len(told) == len(expected)
        (link,) = [item for item in status["sources"][0]["leftAlone"] if item["isNormal"]]
        assert (link["paths"], link["reason"]) == ([str(root / "-linked")], "symlink")
        assert status["sources"][0]["state"] != "degraded"
        secret.chmod(0o700)
        assert watched.recorded("f17c") == sum_of(0, 1, 2)
        assert "-secret" not in json.dumps(watched.call("status"))
    tally.faults()


@pytest.mark.timed
def test_a_busy_log_starves_no_other(watched: Watched) -> None:
    """F19: beside one that never ends, every quiet line is seen within two seconds."""
    over = threading.Event()
    watched.append("f19", whole(answers("f19", 0, 1)))
    watched.until_recorded("f19", sum_of(0))  # the folder itself, if this log is its first, is seen within some seconds

    def endless() -> None:
        line = json.dumps({"type": "progress", "sessionId": "f19-hot", "data": "x" * 4000}).encode() + b"\n"
        while not over.is_set():
            watched.append("f19-hot", line * 500)
            time.sleep(0.02)

    writer = threading.Thread(target=endless)
    writer.start()
    try:
        for n in range(10):
            watched.append(f"f19-{n}", whole(answers(f"f19-{n}", 0, 1)))
            watched.until_recorded(f"f19-{n}", sum_of(0), 2 * noise())
    finally:
        over.set()
        writer.join()
        watched.path("f19-hot").unlink()
    tally.load(10)


@pytest.mark.parametrize("moment", [0, 4_102_444_800])
def test_file_times_decide_nothing(watched: Watched, moment: int) -> None:
    """F20: a log dated 1970 or 2100 is read like any other."""
    session = f"f20-{moment}"
    path = watched.append(session, whole(answers(session, 0, 2)))
    os.utime(path, (moment, moment))
    assert watched.recorded(session) == sum_of(0, 1)
    watched.append(session, whole(answers(session, 2, 2)))
    os.utime(path, (moment, moment))
    assert watched.recorded(session) == sum_of(0, 1, 2, 3)
    tally.faults()
