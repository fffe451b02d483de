"""A push contains conversation text only on request, and nothing of excluded projects."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from burnctl.push.schema import TABLES
from burnd.paths import Home
from tests.burnctl.runner import burnctl
from tests.faults.canaries import CANARY, SINGERS, sing_everywhere
from tests.server.wire import running

parquet = pytest.importorskip("pyarrow.parquet")


def test_what_people_wrote_is_not_sent(home: Home, tmp_path: Path) -> None:
    sing_everywhere(home)
    folder = tmp_path / "there"
    with running(home) as daemon, daemon.wire() as wire:
        wire.call("flush")
        wire.call("hotspots")  # waits until causes are explained
        done = burnctl(home.root, "push", str(folder))
        assert done.returncode == 0, done.stderr
    rows = {table: [str(row) for row in rows_of(folder, table)] for table in TABLES}
    assert all(rows[table] for table in ("turns", "sessions", "causes"))
    assert all(any(session in row for row in rows["turns"]) for session in SINGERS)
    assert [row for some in rows.values() for row in some if CANARY in row] == []
    assert not has_text(folder, CANARY)
    assert not has_text(home.root / "push", CANARY)


def test_content_is_sent_on_request_and_erased_with_the_original(home: Home, tmp_path: Path) -> None:
    sing_everywhere(home)
    folder = tmp_path / "there"
    with running(home) as daemon, daemon.wire() as wire:
        wire.call("flush")
        push(home, folder, "--content")
        there = {
            session: [row for row in rows_of(folder, "content") if row["session_id"] == session] for session in SINGERS
        }
        for session, rows in there.items():
            records = wire.call("content.read", session=session, limit=500)["records"]
            assert sorted(rows, key=lambda row: int(row["n"])) == rows
            assert [(row["message_id"], row["kind"]) for row in rows] == [
                (record["messageId"], record["kind"]) for record in records
            ]
            shown = [
                (row["text"], record["text"]) for row, record in zip(rows, records, strict=True) if "text" in record
            ]
            assert shown
            lost = [original for text, original in shown if text is None]
            assert all(text == original for text, original in shown if text is not None)
            assert all("blob" in original for original in lost)
            assert any(CANARY in row["text"] for row in rows if row["kind"] == "tool_result")
        push(home, folder, "--content")
        wire.call("content.forget", session="bird")
        push(home, folder, "--content")
        assert {row["session_id"] for row in rows_of(folder, "content")} == SINGERS - {"bird"}
        push(home, folder)
        assert rows_of(folder, "content") == []
        assert not has_text(folder, CANARY)


def test_a_project_that_is_left_out_leaves_no_trace(home: Home, tmp_path: Path) -> None:
    """Neither at first nor after it is left out, and its requests that change are not named either."""
    folder, secret = tmp_path / "there", ("--content", "--without-project", "/home/dev/secret")
    with running(home) as daemon, daemon.wire() as wire:
        ids = [
            str(wire.call("sessions.new", agent="a", sender="s", source="anthropic-api", project=project)["sessionId"])
            for project in ("/home/dev/open", "/home/dev/secret")
        ]

        def work(n: int) -> None:
            for session in ids:
                usage = {"input_tokens": n, "output_tokens": 3}
                answer = [{"type": "text", "text": f"{CANARY} {session}"}]
                message = {"role": "assistant", "model": "claude-opus-4-5", "content": answer, "usage": usage}
                wire.call("sessions.append", id=session, messages=[message | {"id": f"msg-{session}-{n}"}])
            wire.call("stamp", selector={"sessionId": ids[1]}, enrichment={"step": str(n)})
            wire.call("flush")
            wire.call("hotspots")

        def traces() -> list[bool]:
            rows = [str(row) for table in TABLES for row in rows_of(folder, table)]
            return [any(word in row for row in rows) for word in (*ids, "dev/open", "dev/secret")]

        work(1)
        push(home, folder, *secret)
        assert traces() == [True, False, True, False]
        work(2)
        push(home, folder, *secret)
        assert traces() == [True, False, True, False]
        push(home, folder, "--content")
        assert traces() == [True, True, True, True]
        push(home, folder, *secret)
        assert traces() == [True, False, True, False]
        assert not has_text(folder, "dev/secret")


def push(home: Home, folder: Path, *flags: str) -> None:
    done = burnctl(home.root, "push", str(folder), *flags)
    assert done.returncode == 0, done.stderr


def rows_of(folder: Path, table: str) -> list[dict[str, Any]]:
    return [row for path in sorted(folder.glob(f"{table}/*/*.parquet")) for row in parquet.read_table(path).to_pylist()]


def has_text(folder: Path, text: str) -> bool:
    return any(text.encode() in path.read_bytes() for path in folder.rglob("*") if path.is_file())
