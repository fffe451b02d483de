"""What people said stays where it may be, in every mode, and is gone everywhere when it is to go."""

from __future__ import annotations

import json
import shutil
import socket
from pathlib import Path

import pytest

from burnd.paths import Home
from tests.faults.canaries import CANARY, SINGERS, files_with_canary, sing_everywhere, sources_below
from tests.server.wire import Daemon, Wire, running, until

_MAY_HOLD_TEXT = ("content/", "index/")


def _record_everything(daemon: Daemon) -> None:
    with daemon.wire(60) as wire:
        wire.call("flush")
        if wire.call("status")["content"]["mode"] == "full":
            until(lambda: _found(wire) == SINGERS)


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


def test_text_is_kept_in_content_and_index_alone(home: Home) -> None:
    """I6, F83: not in the ledger, the logs at debug, the spool or any other file, whatever errors it meets."""
    sing_everywhere(home)
    with running(home, log_level="debug") as daemon:
        _record_everything(daemon)
        _provoke_errors(daemon)
        daemon.terminate()
        assert CANARY not in daemon.log.read_text()
    held = files_with_canary(home)
    assert any(name.startswith("content/") for name in held)
    assert any(name.startswith("index/search/") for name in held)
    assert [name for name in held if not name.startswith(_MAY_HOLD_TEXT)] == []


@pytest.mark.parametrize("mode", ["hash-only", "off"])
def test_without_content_there_is_no_text_anywhere(home: Home, mode: str) -> None:
    """I6: in these modes not one file of the home holds it, nor the log, while usage is recorded as ever."""
    sing_everywhere(home)
    with running(home, log_level="debug", RELAYBURN_CONTENT_STORE=mode) as daemon:
        _record_everything(daemon)
        _provoke_errors(daemon)
        assert files_with_canary(home) == set()
        with daemon.wire() as wire:
            assert wire.call("summary")["totals"]["turns"] >= 7
        daemon.terminate()
        assert CANARY not in daemon.log.read_text()
    assert files_with_canary(home) == set()


@pytest.mark.parametrize("how", ["prune", "match", pytest.param("forget", marks=pytest.mark.slow)])
def test_what_is_erased_is_gone_from_the_whole_home(home: Home, how: str) -> None:
    """After pruning or forgetting, it is gone: free pages of SQLite, write-ahead logs and search segments included."""
    sing_everywhere(home)
    with running(home, RELAYBURN_CONTENT_TTL_DAYS="forever") as daemon:
        _record_everything(daemon)
        before = _segments(home)
        assert before
        with daemon.wire(60) as wire:
            if how == "prune":
                wire.call("content.prune", olderThanDays=0)
            elif how == "forget":
                for session in SINGERS:
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


def _segments(home: Home) -> set[Path]:
    """The files of the search index that hold documents."""
    return set((home.root / "index" / "search").rglob("*.store"))
