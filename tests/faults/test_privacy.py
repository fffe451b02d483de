"""Text of conversations stays in its allowed places in every mode, and is deleted everywhere."""

from __future__ import annotations

import json
import resource
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import zstandard

from burnd.attribution.segments import LENGTH
from burnd.index.keys import decompressed
from burnd.paths import Home
from tests import warm
from tests.faults import tally
from tests.faults.canaries import (
    CANARY,
    SINGERS,
    files_with_canary,
    sing_everywhere,
    sing_over_the_socket,
    sings,
    sources_below,
)
from tests.harness.claude_code.transcript import Transcript, call
from tests.server.logs import write
from tests.server.spool import put_in_spool
from tests.server.wire import Daemon, Wire, environment, running, until

_MAY_HOLD_TEXT = ("content/", "index/")


@pytest.fixture
def scratch(home: Home) -> Iterator[dict[str, Any]]:
    """The folder for temporary files; it must end empty."""
    folder = home.root.parent / "scratch"
    folder.mkdir()
    yield {"TMPDIR": str(folder), "SQLITE_TMPDIR": str(folder)}
    assert list(folder.iterdir()) == []


def _record_everything(daemon: Daemon) -> set[str]:
    """The sessions of every harness and one that came over the socket, by their ids."""
    with daemon.wire(60) as wire:
        singers = {*SINGERS, sing_over_the_socket(wire)}
        wire.call("flush")
        if wire.call("status")["content"]["mode"] == "full":
            until(lambda: _found(wire) == singers)
    return singers


def _found(wire: Wire) -> set[str]:
    return {hit["sessionId"] for hit in wire.call("sessions.search", query=CANARY)["hits"]}


def _provoke_errors(daemon: Daemon) -> None:
    """Requests that are wrong in every way, each with the canary in it."""
    asked = (
        {"jsonrpc": "2.0", "id": 1, "method": CANARY},
        {"jsonrpc": "2.0", "id": 1, "method": "summary", "params": {CANARY: CANARY}},
        {"jsonrpc": "2.0", "id": 1, "method": "sessions.search", "params": {"query": CANARY, "limit": CANARY}},
        {"jsonrpc": "2.0", "id": 1, "method": "sessions.search", "params": {"query": f'"{CANARY} AND ('}},
        {"jsonrpc": "2.0", "id": 1, "method": "summary", "params": {"since": CANARY}},
    )
    for request in asked:
        with socket.socket(socket.AF_UNIX) as raw:
            raw.connect(str(daemon.socket))
            raw.settimeout(20)
            raw.sendall(json.dumps(request).encode() + b"\n")
            raw.recv(1 << 16)
    with socket.socket(socket.AF_UNIX) as raw:
        raw.connect(str(daemon.socket))
        raw.sendall(f"garbage {CANARY}\n".encode())
        raw.settimeout(20)
        raw.recv(1 << 16)


def test_text_is_kept_in_content_and_index_alone(home: Home, scratch: dict[str, Any]) -> None:
    """I6, F83: not in the ledger, debug logs, spool or any other file, whatever errors occur. An unusable spool file is
    moved aside unchanged, and its text is not logged."""
    sing_everywhere(home)
    useless = put_in_spool(home.spool, {"v": 1, "kind": CANARY, CANARY: CANARY})
    with running(home, log_level="debug", **scratch) as daemon:
        singers = _record_everything(daemon)
        _provoke_errors(daemon)
        until(lambda: not useless.exists())
        with daemon.wire() as wire:
            told = wire.call("status")
            told.pop("sources")  # which name the kinds of lines that they do not know
            assert CANARY not in json.dumps(told)
        daemon.terminate()
        assert CANARY not in daemon.log.read_text()
    assert {source for source, _ in _reader_states(home)} == {"claude-code", "codex"}
    assert not any(CANARY.encode() in state for _, state in _reader_states(home))
    held = files_with_canary(home)
    # The detector sees every store: else it would say of each that nothing is left in it.
    assert {"content/blobs.db", *(f"content/{session}.jsonl" for session in singers)} <= held
    assert any(name.startswith("index/burn.db") for name in held)
    assert any(name.startswith("index/search/") for name in held)
    assert {name for name in held if not name.startswith(_MAY_HOLD_TEXT)} == {f"spool/bad/{useless.name}"}


@pytest.mark.parametrize("mode", ["hash-only", "off"])
def test_without_content_there_is_no_text_anywhere(home: Home, scratch: dict[str, Any], mode: str) -> None:
    """I6: in these modes not one file of the home holds it, nor the log, while usage is recorded as ever."""
    sing_everywhere(home)
    with running(home, log_level="debug", RELAYBURN_CONTENT_STORE=mode, **scratch) as daemon:
        _record_everything(daemon)
        _provoke_errors(daemon)
        assert files_with_canary(home) == set()
        with daemon.wire() as wire:
            assert wire.call("summary")["totals"]["turns"] >= 7
        daemon.terminate()
        assert CANARY not in daemon.log.read_text()
    assert files_with_canary(home) == set()


@pytest.mark.parametrize("how", ["prune", "match", pytest.param("forget", marks=pytest.mark.slow)])
def test_what_is_erased_is_gone_from_the_whole_home(home: Home, scratch: dict[str, Any], how: str) -> None:
    """After pruning or forgetting, it is gone: free pages of SQLite, write-ahead logs and search segments included."""
    sing_everywhere(home)
    with running(home, RELAYBURN_CONTENT_TTL_DAYS="forever", **scratch) as daemon:
        singers = _record_everything(daemon)
        before = _segments(home)
        assert before
        with daemon.wire(60) as wire:
            if how == "prune":
                wire.call("content.prune", olderThanDays=0)
            elif how == "forget":
                for session in singers:
                    wire.call("content.forget", session=session)
            else:
                wire.call("content.forget", match=CANARY)
            until(lambda: wire.call("status")["search"]["state"] == "ready" and not (before & _segments(home)))
            assert _found(wire) == set()
        assert files_with_canary(home) == set()
        daemon.terminate()
    assert files_with_canary(home) == set()
    with running(home) as daemon:  # nor does reading the sources again bring it back
        shutil.rmtree(home.root / "index", ignore_errors=True)
    with running(home) as daemon, daemon.wire(60) as wire:
        wire.call("flush")
        assert _found(wire) == set()
        assert all(root.exists() for root in sources_below(home))
        assert files_with_canary(home) == set()


def test_what_is_kept_of_a_long_rail_holds_no_text(home: Home, scratch: dict[str, Any]) -> None:
    """Saved segments of a long session have the same data as the ledger, and no text."""
    log = Transcript(session="long", prefix="long-u")
    for n in range(2 * LENGTH + 10):
        log.prompt(f"{n}: please {CANARY}")
        log.calls(f"long-m{n}", call(f"long-c{n}", "Bash", command=f"echo {n} {CANARY}"))
        log.result(f"long-c{n}", f"{n} {CANARY}")
    write(home, log, "long")
    with running(home, **scratch) as daemon, daemon.wire(60) as wire:
        wire.call("flush")
        until(lambda: len(_states(home)) == 2)
        assert wire.call("why", session="long")["totals"]["turns"] == 2 * LENGTH + 10
        daemon.terminate()
    assert all(b"echo" in state for state in _states(home))  # shows that they are not empty
    assert CANARY.encode() not in b"".join(_states(home))


def _states(home: Home) -> list[bytes]:
    """The states of rails that the index stores."""
    with closing(sqlite3.connect(f"file:{home.index_db}?mode=ro", uri=True)) as db:
        rows = db.execute("SELECT state FROM segments WHERE state IS NOT NULL").fetchall()
    return [decompressed(state) for (state,) in rows]


def _reader_states(home: Home) -> list[tuple[str, bytes]]:
    """The states of readers beside their cursors, each with its source."""
    with closing(sqlite3.connect(f"file:{home.index_db}?mode=ro", uri=True)) as db:
        rows = db.execute("SELECT source, state FROM files WHERE state IS NOT NULL").fetchall()
    return [(source, decompressed(state)) for source, state in rows]


def _segments(home: Home) -> set[Path]:
    """The files of the search index that hold documents."""
    return set((home.root / "index" / "search").rglob("*.store"))


def test_the_detector_sees_a_free_page(tmp_path: Path) -> None:
    """A control: what a database has deleted and not overwritten is found, compressed as it is."""
    path = tmp_path / "any.db"
    with closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA secure_delete=OFF")
        db.execute("CREATE TABLE pack (data BLOB)")
        db.execute("INSERT INTO pack VALUES (?)", (_packed(),))
        db.commit()
        db.execute("DELETE FROM pack")
        db.commit()
    assert CANARY.encode() not in path.read_bytes()
    assert sings(path, path.read_bytes())


def _packed() -> bytes:
    """The canary, packed so that its bytes are not in the packed data: its second half repeats earlier bytes."""
    half = len(CANARY) // 2
    return zstandard.ZstdCompressor().compress(f"{CANARY[half:]} {CANARY[:half]}-{CANARY}".encode() * 2)


@pytest.mark.skipif(
    sys.platform != "linux" or resource.getrlimit(resource.RLIMIT_CORE)[1] == 0,
    reason="needs Linux, and a process that may put_in_spool a core",
)
def test_no_core_is_left(home: Home, tmp_path: Path) -> None:
    """However it dies, what it had in memory is not written down, although the limit it was started with allows it."""
    most = resource.getrlimit(resource.RLIMIT_CORE)[1]
    sing_everywhere(home)
    with warm.Popen(
        [sys.executable, "-m", "burnd", "run"],
        env=environment(home),
        cwd=tmp_path,
        stderr=subprocess.DEVNULL,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CORE, (most, most)),
    ) as started:
        try:
            until((home.root / "burnd.sock").exists)
            with Wire(home.root / "burnd.sock") as wire:
                until(lambda: wire.call("status")["daemon"]["state"] == "ready")
                wire.call("flush")
            assert _core_limit(started.pid) == ("0", "0")
            started.send_signal(signal.SIGABRT)
            assert started.wait(30) == -signal.SIGABRT
        finally:
            started.kill()
    assert list(tmp_path.iterdir()) == []
    tally.faults()


def _core_limit(pid: int) -> tuple[str, ...]:
    """Soft and hard limit from the kernel."""
    limits = Path(f"/proc/{pid}/limits").read_text()
    (line,) = [line for line in limits.splitlines() if line.startswith("Max core file size")]
    return tuple(line.split()[4:6])
