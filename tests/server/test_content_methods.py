"""Content over the socket: read in pages, pruned by age, forgotten at once and everywhere."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import AsyncMock

import msgspec
import pytest

from burnd import protocol
from burnd.content.recall import Recall
from burnd.content.text_scan import ScanStopped, TextScan
from burnd.contract.sessions import ForgetParams
from burnd.ledger.content import ContentStore
from burnd.paths import Home
from burnd.recording.candidate import Batch
from burnd.recording.retention import Pruned
from burnd.records import BlobRef, Session
from burnd.server import rpc
from burnd.server.methods import sessions
from burnd.server.methods.sessions import LARGEST_RECORD, _record_json
from burnd.server.rpc import Fault
from tests.conftest import Opened
from tests.harness.claude_code.transcript import Transcript, call
from tests.harness.claude_code.transcript import text as said
from tests.make import START_MS, append_content, at, text, tool_result, tool_use, turn
from tests.server.logs import contents, conversation, write
from tests.server.wire import Daemon, running


def pages(daemon: Daemon, **params: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    with daemon.wire() as wire:
        while True:
            page = wire.call("content.read", offset=len(found), **params)
            found += page["records"]
            if page["next"] is None:
                assert len(found) == page["total"]
                return found
            assert page["next"] == len(found)


def test_content_is_read_in_pages(home: Home) -> None:
    """Everything once and in its original text, whatever the size of the page."""
    long = "long " * 1000
    write(home, conversation("s1", "first", long, *(f"answer {n}" for n in range(20)), prompt="the question"), "s1")
    with running(home) as daemon, daemon.wire() as wire:
        wire.call("flush")
        everything = pages(daemon, session="s1")
        assert [record["text"] for record in everything][:3] == ["the question", "first", long]
        for size in (1, 5, 500):
            assert pages(daemon, session="s1", limit=size) == everything
        (one,) = pages(daemon, session="s1", message="s1-m1")
        assert one["text"] == long
        no_message = wire.error("content.read", session="s1", message="none")["data"]
        assert (no_message["name"], no_message.get("about")) == ("not_found", None)
        no_session = wire.error("content.read", session="none")["data"]
        assert (no_session["name"], no_session.get("about")) == ("not_found", "session")
        assert wire.error("content.read", session="s1", limit=501)["data"]["name"] == "bad_params"


def test_a_very_long_piece_is_cut_and_marked(home: Home) -> None:
    """F71: no answer grows beyond what a client takes; many long ones make short pages."""
    log = Transcript(session="s1")
    log.prompt("x" * (3 << 20))
    for n in range(8):
        log.says(f"m{n}", said("y" * (900 << 10)))
    log.calls("m9", call("c", "Bash", command="z" * (2 << 20)))
    write(home, log, "s1")
    with running(home) as daemon, daemon.wire() as wire:
        wire.call("flush")
        records = pages(daemon, session="s1", limit=500)
        assert len(records) == 10
        assert (records[0]["truncated"], len(records[0]["text"])) == (True, 1 << 20)
        assert records[0]["bytes"] > 3 << 20
        assert "truncated" not in records[1]
        assert isinstance(records[9]["toolUse"]["input"], str)
        assert (records[9]["truncated"], records[9]["bytes"] > 2 << 20) == (True, True)
        assert records[9]["toolUse"]["input"].startswith('{"command":"zzz')


def test_a_dry_run_shows_what_prune_deletes(home: Home) -> None:
    """A dry run gives the exact bytes; the command deletes them; usage stays."""
    shared, own = random.Random(1), random.Random(2)  # text that cannot be made smaller by much
    words = shared.randbytes(5000).hex()
    for session, day in (("old", b"2020-01-01T"), ("new", b"2099-01-01T")):
        log = conversation(session, own.randbytes(5000).hex(), words)
        log.lines = [line.replace(b"2026-11-16T", day) for line in log.lines]
        write(home, log, session)
    with running(home) as daemon, daemon.wire() as wire:
        wire.call("flush")
        before = wire.call("status")["ledger"]["turns"]
        told = wire.call("content.prune", olderThanDays=30, dryRun=True)
        assert (told["files"], told["dryRun"]) == (1, True)
        assert 5000 < told["bytes"] < 9000, "what another session needs stays"
        assert wire.call("content.read", session="old")["total"] == 3
        done = wire.call("content.prune", olderThanDays=30)
        assert (done["files"], done["bytes"]) == (1, told["bytes"])
        assert wire.call("content.read", session="old")["kept"] == "pruned"
        assert wire.call("content.read", session="new")["kept"] == "yes"
        assert wire.call("status")["ledger"]["turns"] == before
        assert "forever" in wire.error("content.prune")["message"]
        assert wire.error("content.prune", olderThanDays=-1)["data"]["name"] == "refused"


def test_what_is_forgotten_is_nowhere(home: Home) -> None:
    """By a text in it: shown first, then erased from every file, large content and write-ahead logs included."""
    canary, other = "sk-THE-CANARY-1234", "keep-me-5678"
    write(home, conversation("small", f"it is {canary} here", prompt=other), "small")
    write(home, conversation("large", "x" * 3000 + canary + "y" * 3000, prompt=other), "large")
    write(home, conversation("innocent", other), "innocent")
    with running(home) as daemon, daemon.wire() as wire:
        wire.call("flush")
        told = wire.call("content.forget", match=canary, dryRun=True)
        assert (told["count"], told["files"], told["dryRun"]) == (2, 2, True)
        assert [found["sessionId"] for found in told["sessions"]] == ["large", "small"]
        assert told["sessions"][0]["project"] == "/home/dev/app"
        assert wire.call("content.read", session="small")["total"] == 2
        forgotten = wire.call("content.forget", match=canary)
        assert (forgotten["count"], forgotten["clean"]) == (2, True)
        assert holding(home, canary) == []
        assert holding(home, other) != []
        assert wire.call("content.forget", match=canary)["count"] == 0
        wire.call("rebuild", index=True)
        wire.call("flush")
        assert holding(home, canary) == [], "reading the log again brought it back"
        assert wire.call("content.read", session="innocent")["kept"] == "yes"


def holding(home: Home, words: str) -> list[Path]:
    return [path for path, data in contents(home.root) if words.encode() in data]


def test_a_project_and_a_session_are_forgotten(home: Home) -> None:
    """With what is below the folder; a session with its children."""
    for session, folder in (("a", "/home/dev/app"), ("b", "/home/dev/app/sub"), ("c", "/home/dev/app2")):
        write(home, conversation(session, "fine", cwd=folder), session)
    with running(home) as daemon, daemon.wire() as wire:
        wire.call("flush")
        told = wire.call("content.forget", project="/home/dev/app/", dryRun=True)
        assert [found["sessionId"] for found in told["sessions"]] == ["a", "b"]
        assert wire.call("content.forget", project="/home/dev/app")["count"] == 2
        assert wire.call("content.read", session="c")["kept"] == "yes"
        assert wire.call("content.forget", session="c")["files"] == 1
        assert wire.error("content.forget", session="none")["data"]["name"] == "not_found"
        assert wire.error("content.forget", project="/none")["data"]["name"] == "not_found"
        assert wire.error("content.forget")["data"]["name"] == "refused"
        assert wire.error("content.forget", match="")["data"]["name"] == "refused"
        assert wire.error("content.forget", match="x", session="a")["data"]["name"] == "refused"


async def test_children_go_with_their_parent(opened: Opened) -> None:
    """A session's family is all that it or its children started; so goes a project with what its sessions started."""
    from burnd.queries.messages import family, of_project
    from burnd.queries.view import View

    pipeline = await opened()
    parents = {"child": "root", "grandchild": "child", "other": "elsewhere"}
    sessions = [Session(session_id=s, source="opencode", parent_session_id=p) for s, p in parents.items()]
    await pipeline.commit(Batch(entries=[turn(session_id="root", project="/a_b"), *sessions]))

    def ask(question: Any) -> Any:
        return pipeline.index.ask(lambda db: question(View(db, None, 0)))  # type: ignore[arg-type]

    assert await ask(lambda view: family(view, "root")) == {"root", "child", "grandchild"}
    assert await ask(lambda view: of_project(view, "/a_b")) == {"root", "child", "grandchild"}


@pytest.mark.parametrize(
    ("needle", "found"),
    [
        ("plain", {"text"}),
        ("caf\u00e9", {"escaped", "text"}),
        ('quo"te', {"escaped", "large"}),
        ("two\nlines", {"escaped"}),
        ("C:\\dir", {"escaped"}),
        ("in the result", {"result"}),
        ("large json", {"large"}),
        ("Grep", set()),
        ("Read", {"escaped", "large"}),  # the name of the tool
        ("sessionId", set()),
        ("assistant", set()),
        ("blob", set()),
        ("nobody said this", set()),
    ],
)
async def test_a_text_is_found_however_it_is_stored(opened: Opened, needle: str, found: set[str]) -> None:
    """Escaped or not, small or large, in arguments and results; never in ids and positions."""
    pipeline = await opened()
    escaped = {"path": "C:\\dir", "quote": 'quo"te', "lines": "two\nlines"}
    raw = json.dumps({**escaped, "accent": "caf\u00e9"})  # with \u00e9 written out, as a harness may
    import msgspec

    use = tool_use("m2", session_id="escaped").tool_use
    assert use is not None
    use = msgspec.structs.replace(use, input=msgspec.Raw(raw.encode()))
    await pipeline.commit(
        Batch(
            content=[
                text("m1", "plain caf\u00e9", session_id="text"),
                msgspec.structs.replace(tool_use("m2", session_id="escaped"), tool_use=use),
                tool_result("m3", [{"type": "text", "text": "in the result"}], session_id="result"),
                tool_use("m4", {"x": "large json " * 500 + 'quo"te'}, session_id="large"),
            ]
        )
    )
    told: list[tuple[int, int]] = []
    matching = TextScan(pipeline.home, needle, lambda done, total: told.append((done, total)))
    assert matching.run() == found
    assert told[-1][0] == told[-1][1] > 0


async def test_an_abandoned_search_ends(opened: Opened) -> None:
    """F70: at the next file."""
    pipeline = await opened()
    await pipeline.commit(Batch(content=[text("m", ts=at(0))]))
    matching = TextScan(pipeline.home, "x", lambda *_: None)
    matching.stop()
    with pytest.raises(ScanStopped):
        matching.run()


async def test_nothing_is_measured_before_a_secret_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sizes are computed on request only; erasing reports what it deleted, and begins at once."""
    pipeline = SimpleNamespace(forget=AsyncMock(return_value=Pruned(1, 7)))
    indexer = SimpleNamespace(problem="", caught_up=AsyncMock())
    ask = AsyncMock(side_effect=[{"s1"}, []])
    service: Any = SimpleNamespace(pipeline=pipeline, search_indexer=indexer, ask=ask, home=None)
    monkeypatch.setattr(sessions, "would_free", lambda *_: pytest.fail("measured"))
    caller: Any = None
    answer = await sessions.forget(service, ForgetParams(session="s1"), caller)
    assert (answer["bytes"], answer["clean"]) == (7, True)


def test_the_beginning_of_a_large_blob_is_read_without_the_rest(tmp_path: Path) -> None:
    """A result of many MB is unpacked only as far as shown; a JSON string gives its text, and lost text is marked."""
    store = ContentStore(tmp_path)
    large = 'zeile \u00e9 \\ "\n' * (1 << 18)
    records = [text("m1", large), tool_result("m2", large), tool_use("m3", {"a": large}), text("m4", "small")]
    placed = append_content(store, records, START_MS)
    places = [(one.position, one.length) for one in placed]
    recall = Recall(tmp_path)
    with recall.opened("s1") as sidecar:
        found = [sidecar.beginning(*place, LARGEST_RECORD) for place in places]
    shown = [msgspec.json.decode(_record_json(*one)) for one in found if one is not None]
    for one, value in ((shown[0], shown[0]["text"]), (shown[1], shown[1]["toolResult"]["content"])):
        assert one["truncated"]
        assert one["bytes"] >= len(large.encode())
        assert large.startswith(value)
        assert len(value.encode()) > LARGEST_RECORD // 2
    assert shown[2]["toolUse"]["input"].startswith('{"a":"zeile')
    assert (shown[3]["text"], "truncated" in shown[3]) == ("small", False)
    recall.close()
    store.close()
    (tmp_path / "blobs.db").unlink()
    with Recall(tmp_path).opened("s1") as sidecar:
        lost = sidecar.record(*places[0])
    assert lost is not None
    assert isinstance(lost.text, BlobRef)
    assert lost.text.lost == "missing"


def test_an_answer_that_is_too_large_is_not_made_whole() -> None:
    """F71: encoding stops where the frame ends, whether it is many rows, one long text or a nested list."""
    made = 0

    class Rows(list[str]):
        def __iter__(self) -> Iterator[str]:
            nonlocal made
            for _ in range(1_000_000):
                made += 1
                yield "x" * 1000

    with pytest.raises(Fault, match="8 MiB"):
        rpc.answer(msgspec.Raw(b"1"), {"rows": Rows(["x"] * 100), "more": 1})
    assert made < 10_000
    for large in ({"a": {"b": ["y" * (9 << 20)]}}, {"rows": [{"c": ["z" * 100] * 100_000}]}):
        with pytest.raises(Fault, match="8 MiB"):
            rpc.answer(msgspec.Raw(b"1"), large)
    odd = {"rows": [{"name": f"\udcff{n}", "n": n} for n in range(100)], "text": "a" * 100, "none": None, "few": [1]}
    found = msgspec.json.decode(rpc.answer(msgspec.Raw(b'"id"'), odd))
    assert found["id"] == "id"
    assert found["result"] == {
        "version": protocol.VERSION,
        **odd,
        "rows": [{"name": f"\\udcff{n}", "n": n} for n in range(100)],
    }
