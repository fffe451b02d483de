"""The spool: nothing left there is lost, taken twice, or in the way of anything else."""

from __future__ import annotations

import errno
import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from burnd.clients import spool as spooling
from burnd.clients.spool import Spool
from burnd.errors import NoSpace
from burnd.paths import Home
from burnd.recording.candidate import Batch
from burnd.recording.pipeline import Pipeline
from burnd.records import Session, Stamp
from burnd.records.times import to_iso
from tests.conftest import Opened
from tests.folded import Folded
from tests.harness.claude_code.transcript import Transcript
from tests.harness.claude_code.transcript import text as said
from tests.make import START_MS, at, read_content, text, turn
from tests.server.logs import conversation, write
from tests.server.spool import announce_record, put_in_spool, stamp_record
from tests.server.wire import running, until

SOURCES = ("claude-code", "opencode")


def claimed(begin: float = 0, **more: Any) -> dict[str, Any]:
    claim = {"v": 1, "kind": "claim", "project": "/p", "fromTs": at(begin), "enrichment": {"wf": "1"}}
    return claim | more


def spool_of(pipeline: Pipeline) -> Spool:
    return Spool(pipeline.home.spool, pipeline, SOURCES)


def entries(pipeline: Pipeline, kind: type) -> list[Any]:
    return [logged.entry for logged in pipeline.journal.read() if isinstance(logged.entry, kind)]


def files(pipeline: Pipeline) -> list[str]:
    return sorted(path.name for path in pipeline.home.spool.glob("[!.]*.json"))


async def test_stamps_are_recorded_and_their_files_removed(opened: Opened) -> None:
    """In the order they were left; a hidden file that is still being written is not touched."""
    pipeline = await opened()
    for n in range(1200):
        put_in_spool(pipeline.home.spool, stamp_record(n=str(n)))
    half = pipeline.home.spool / ".half.json"
    half.write_bytes(b'{"v":1')
    taken = await spool_of(pipeline).drain()
    assert (taken.stamps, taken.bad) == (1200, 0)
    assert [stamp.enrichment["n"] for stamp in entries(pipeline, Stamp)] == [str(n) for n in range(1200)]
    assert files(pipeline) == []
    assert half.exists()


async def test_taking_one_in_twice_changes_nothing(opened: Opened) -> None:
    """A crash between the ledger and the deleting: the file is there again, its stamp is not."""
    pipeline = await opened()
    kept = put_in_spool(pipeline.home.spool, stamp_record()).read_bytes()
    await spool_of(pipeline).drain()
    put_in_spool(pipeline.home.spool, kept)
    taken = await spool_of(pipeline).drain()
    assert taken.stamps == 1
    assert len(entries(pipeline, Stamp)) == 1
    assert files(pipeline) == []


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"[]",
        b"\xff\xfe",
        b"null",
        b"[" * 100_000,
        b'{"v":2,"kind":"stamp"}',
        b'{"v":1,"kind":"something"}',
        b'{"v":1,"kind":"stamp","ts":"soon","selector":{"sessionId":"s"},"enrichment":{"a":"b"}}',
        b'{"v":1,"kind":"stamp","ts":"2026-01-01","selector":{},"enrichment":{"a":"b"}}',
        b'{"v":1,"kind":"stamp","ts":"2026-01-01","selector":{"sessionId":"s"},"enrichment":{"a":1}}',
        b'{"v":1,"kind":"announce","sessionId":"s","source":"nobody"}',
        b'{"v":1,"kind":"announce","sessionId":"s","source":"claude-code","roots":["relative"]}',
        b'{"v":1,"kind":"announce","sessionId":"s","source":"claude-code","contentMode":"some"}',
        b'{"v":1,"kind":"claim","project":"relative","fromTs":"2026-01-01","enrichment":{"a":"b"}}',
        b'{"v":1,"kind":"claim","project":"/p","fromTs":"soon","enrichment":{"a":"b"}}',
        b'{"v":1,"kind":"claim","project":"/p","fromTs":"2026-01-01","enrichment":{"a":"b"},"typo":1}',
    ],
    ids=lambda data: repr(data)[:40],
)
async def test_unusable_files_are_moved_aside(opened: Opened, data: bytes) -> None:
    """Unusable files are counted and moved to a folder for inspection; the others are recorded."""
    pipeline = await opened()
    bad = put_in_spool(pipeline.home.spool, data)
    put_in_spool(pipeline.home.spool, stamp_record())
    spool = spool_of(pipeline)
    taken = await spool.drain()
    assert (taken.stamps, taken.bad, spool.bad) == (1, 1, 1)
    assert (pipeline.home.spool / "bad" / bad.name).read_bytes() == data
    assert files(pipeline) == []
    assert await spool_of(pipeline).drain() == spooling.SpoolResult()


async def test_odd_files_in_the_spool_are_harmless(opened: Opened) -> None:
    """A folder, a link, a pipe or a file of a gigabyte is moved aside without following or blocking."""
    pipeline = await opened()
    folder = pipeline.home.spool
    put_in_spool(folder, stamp_record())
    (folder / "1-folder.json").mkdir()
    (folder / "2-link.json").symlink_to("/etc/passwd")
    os.mkfifo(folder / "3-pipe.json")
    with (folder / "4-large.json").open("wb") as large:
        large.truncate(1 << 30)
    (folder / "notes.txt").write_text("mine")
    taken = await spool_of(pipeline).drain()
    assert (taken.stamps, taken.bad) == (1, 4)
    assert (folder / "notes.txt").read_text() == "mine"
    assert Path("/etc/passwd").exists()


@pytest.mark.parametrize("call", ["open", "read"])
@pytest.mark.parametrize("error", [errno.EIO, errno.EMFILE, errno.EACCES])
async def test_what_cannot_be_read_now_stays(
    opened: Opened, monkeypatch: pytest.MonkeyPatch, call: str, error: int
) -> None:
    """P1: an error of disk, permissions or descriptors proves nothing about a file: it stays, and is reported."""
    pipeline = await opened()
    put_in_spool(pipeline.home.spool, stamp_record(n="1"))
    put_in_spool(pipeline.home.spool, stamp_record(n="2"))
    spool = spool_of(pipeline)
    with monkeypatch.context() as patched:
        patched.setattr(os, call, _failing_once(getattr(os, call), error))
        assert await spool.try_drain()
    assert os.strerror(error) in spool.blocked
    assert [stamp.enrichment["n"] for stamp in entries(pipeline, Stamp)] == ["2"]
    assert len(files(pipeline)) == 1
    assert spool.bad == 0
    assert await spool.try_drain()
    assert spool.blocked == ""
    assert [stamp.enrichment["n"] for stamp in entries(pipeline, Stamp)] == ["2", "1"]


def _failing_once(call: Callable[..., Any], error: int) -> Callable[..., Any]:
    """Fails in the spool's own module, the first time it is called there."""
    errors = [OSError(error, os.strerror(error))]

    def either(*args: Any, **more: Any) -> Any:
        if errors and sys._getframe(1).f_code.co_filename == spooling.__file__:
            raise errors.pop()
        return call(*args, **more)

    return either


async def test_without_room_everything_stays(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    """F41: files wait while the disk is full, the state reports it, and they are recorded when there is space."""
    pipeline = await opened()
    put_in_spool(pipeline.home.spool, stamp_record())
    spool = spool_of(pipeline)

    async def full(_batch: Any) -> int:
        raise NoSpace("the disk is full", "disk")

    with monkeypatch.context() as patched:
        patched.setattr(pipeline, "commit", full)
        assert not await spool.try_drain()
    assert spool.blocked == "the disk is full"
    assert len(files(pipeline)) == 1
    assert await spool.try_drain()
    assert spool.blocked == ""
    assert len(entries(pipeline, Stamp)) == 1


async def test_leftovers_of_killed_clients_go_after_an_hour(opened: Opened) -> None:
    """A hidden file that was never given its name."""
    pipeline = await opened()
    folder = pipeline.home.spool
    folder.mkdir(mode=0o700)
    for name, age in ((".old.json", 7200), (".new.json", 10)):
        (folder / name).write_bytes(b"x")
        os.utime(folder / name, (time.time() - age, time.time() - age))
    await spool_of(pipeline).drain()
    assert [path.name for path in folder.iterdir()] == [".new.json"]


async def test_an_announcement_holds_for_what_comes_and_for_what_came(opened: Opened) -> None:
    """A session in a private mode: text captured meanwhile is erased, and no more is stored."""
    pipeline = await opened()
    await pipeline.commit(batch(text("m1", session_id="s1", ts=at(5))))
    put_in_spool(pipeline.home.spool, announce_record("s1", ts=at(0), contentMode="off"))
    taken = await spool_of(pipeline).drain()
    assert taken.announcements == 1
    assert not pipeline.content.sidecars.size("s1")
    await pipeline.commit(batch(text("m2", session_id="s1", ts=at(6))))
    assert not pipeline.content.sidecars.size("s1")
    (session, *_) = [s for s in entries(pipeline, Session) if s.content_mode]
    assert (session.session_id, session.content_mode) == ("s1", "off")
    await opened.close()
    again = await opened()
    assert again.modes.mode_of("s1") == "off"


async def test_an_announcement_leaves_older_content_alone(opened: Opened) -> None:
    """A session that is taken up again without keeping its text keeps what it had from before."""
    pipeline = await opened()
    await pipeline.commit(batch(text("m1", session_id="s1", ts=at(0))))
    put_in_spool(pipeline.home.spool, announce_record("s1", ts=at(60), contentMode="off"))
    await spool_of(pipeline).drain()
    assert pipeline.content.sidecars.size("s1")


async def test_text_that_was_not_to_be_kept_stays_away_when_the_mode_changes(opened: Opened) -> None:
    """Full again from now on, not from the beginning, however often the log is read."""
    pipeline = await opened()
    put_in_spool(pipeline.home.spool, announce_record("s1", ts=at(0), contentMode="off"))
    await spool_of(pipeline).drain()
    put_in_spool(pipeline.home.spool, announce_record("s1", ts=at(60), contentMode="full"))
    await spool_of(pipeline).drain()
    await pipeline.commit(batch(text("m1", ts=at(30)), text("m2", ts=at(90))))
    assert [record.message_id for record in read_content(pipeline.content, "s1")] == ["m2"]


def batch(*content: Any, turns: Any = ()) -> Any:
    from burnd.recording.candidate import Batch

    return Batch(entries=list(turns), content=list(content))


async def commit_session(pipeline: Pipeline, session: str, begin: float, project: str = "/p", **more: Any) -> None:
    facts = {"session_id": session, "ts": at(begin + 1), "project": project, **more}
    await pipeline.commit(batch(text(f"p-{session}", session_id=session, ts=at(begin)), turns=[turn(session, **facts)]))


def tags(pipeline: Pipeline) -> dict[str, dict[str, str]]:
    folded = Folded(pipeline.journal.read())
    return {found.session_id: folded.tags(found) for found in folded.turns.values()}


async def test_a_claim_waits_for_its_session(opened: Opened) -> None:
    """It stays in the spool until a session of its folder begins, then becomes its stamp."""
    pipeline = await opened()
    path = put_in_spool(pipeline.home.spool, claimed(10))
    spool = spool_of(pipeline)
    taken = await spool.drain()
    assert (taken.pending, spool.pending) == ([path.stem], 1)
    await commit_session(pipeline, "old", 0)
    await commit_session(pipeline, "elsewhere", 20, project="/q")
    assert (await spool.drain()).pending == [path.stem]
    await commit_session(pipeline, "mine", 30)
    await commit_session(pipeline, "later", 40)
    taken = await spool.drain()
    assert taken.claimed == {path.stem: "mine"}
    assert not path.exists()
    assert tags(pipeline) == {"old": {}, "elsewhere": {}, "mine": {"wf": "1"}, "later": {}}


async def test_a_claim_never_takes_an_older_session(opened: Opened) -> None:
    """Not a session whose prompt came before, although its first turn came after; not one that was resumed."""
    pipeline = await opened()
    await commit_session(pipeline, "prompted before", 9.5)
    await commit_session(pipeline, "goes on", 0)
    await pipeline.commit(batch(turns=[turn("x", session_id="goes on", ts=at(20), project="/p", turn_index=1)]))
    path = put_in_spool(pipeline.home.spool, claimed(10))
    assert (await spool_of(pipeline).drain()).pending == [path.stem]


async def test_a_claim_with_an_end_takes_nothing_that_began_later(opened: Opened) -> None:
    pipeline = await opened()
    path = put_in_spool(pipeline.home.spool, claimed(10, toTs=at(20)))
    await commit_session(pipeline, "later", 20)
    assert (await spool_of(pipeline).drain()).pending == [path.stem]
    await commit_session(pipeline, "within", 15)
    assert (await spool_of(pipeline).drain()).claimed == {path.stem: "within"}


async def test_a_claim_of_a_source_takes_only_its_sessions(opened: Opened) -> None:
    pipeline = await opened()
    path = put_in_spool(pipeline.home.spool, claimed(0, source="opencode"))
    await commit_session(pipeline, "a", 10)
    await commit_session(pipeline, "b", 20, source="opencode")
    assert (await spool_of(pipeline).drain()).claimed == {path.stem: "b"}


async def test_sessions_with_an_owner_are_not_claimed(opened: Opened) -> None:
    """Neither announce_record ones, nor claimed ones, nor children; claims made first choose first."""
    pipeline = await opened()
    await spool_of(pipeline).drain()
    put_in_spool(pipeline.home.spool, announce_record("announced", ts=at(0)))
    second = put_in_spool(pipeline.home.spool, claimed(2, enrichment={"wf": "second"}), name="1-second")
    first = put_in_spool(pipeline.home.spool, claimed(1, enrichment={"wf": "first"}), name="2-first")
    for n, name in enumerate(("announced", "child", "one", "two")):
        await commit_session(pipeline, name, 10 + n)
    await pipeline.commit(batch(turns=[Session(session_id="child", source="opencode", parent_session_id="one")]))
    assert (await spool_of(pipeline).drain()).claimed == {first.stem: "one", second.stem: "two"}
    assert tags(pipeline)["announced"] == {}
    third = put_in_spool(pipeline.home.spool, claimed(1))
    assert (await spool_of(pipeline).drain()).pending == [third.stem]


async def test_a_claim_keeps_text_away(opened: Opened) -> None:
    """Text captured before the session was known is erased, result hashes excepted, and no more follows."""
    pipeline = await opened()
    put_in_spool(pipeline.home.spool, claimed(0, contentMode="off", enrichment={}))
    await commit_session(pipeline, "s", 5)
    assert pipeline.content.sidecars.size("s")
    await spool_of(pipeline).drain()
    assert not pipeline.content.sidecars.size("s")
    await pipeline.commit(batch(text("later", session_id="s", ts=at(50))))
    assert not pipeline.content.sidecars.size("s")
    assert entries(pipeline, Stamp) == []


async def test_a_claim_that_was_settled_is_settled_for_good(opened: Opened) -> None:
    """After a crash before its file was gone, or when its client writes it again, it takes no second session."""
    pipeline = await opened()
    path = put_in_spool(pipeline.home.spool, claimed(0))
    await commit_session(pipeline, "mine", 5)
    await spool_of(pipeline).drain()
    await commit_session(pipeline, "another", 10)
    put_in_spool(pipeline.home.spool, claimed(0, toTs=at(60)), name=path.stem)
    assert (await spool_of(pipeline).drain()).claimed == {path.stem: "mine"}
    assert not path.exists()
    assert tags(pipeline) == {"mine": {"wf": "1"}, "another": {}}
    assert len(entries(pipeline, Stamp)) == 1


@pytest.mark.parametrize(
    ("claim", "age_s", "gone"),
    [
        (claimed(0), 6 * 86400, False),
        (claimed(0), 8 * 86400, True),
        (claimed(0, toTs=at(100)), 23 * 3600, False),
        (claimed(0, toTs=at(100)), 25 * 3600, True),
    ],
)
async def test_a_claim_does_not_wait_for_ever(opened: Opened, claim: dict[str, Any], age_s: int, gone: bool) -> None:
    """A day after its end, or a week after its beginning, it is given up."""
    pipeline = await opened(now=lambda: START_MS + age_s * 1000)
    path = put_in_spool(pipeline.home.spool, claim)
    await spool_of(pipeline).drain()
    assert path.exists() != gone


async def _crash_before(pipeline: Pipeline, patched: pytest.MonkeyPatch, step: str) -> None:
    async def crash(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    target: Any = {"remove": Spool, "erase": pipeline, "commit": pipeline}[step]
    patched.setattr(target, {"remove": "_remove", "erase": "_erase"}.get(step, step), crash)
    with pytest.raises(KeyboardInterrupt):
        await spool_of(pipeline).drain()


@pytest.mark.parametrize("step", ["commit", "erase", "remove"])
@pytest.mark.parametrize("kind", ["stamp", "announce", "claim"])
async def test_a_crash_anywhere_ends_the_same(
    opened: Opened, monkeypatch: pytest.MonkeyPatch, kind: str, step: str
) -> None:
    """Before a commit, between the ledger and erasing, before the file is gone: nothing is lost or doubled."""
    pipeline = await opened()
    await commit_session(pipeline, "s", 5)
    record = {
        "stamp": stamp_record("s", wf="1"),
        "announce": announce_record("s", ts=at(0), contentMode="off"),
        "claim": claimed(0, contentMode="off"),
    }[kind]
    put_in_spool(pipeline.home.spool, record)
    if (kind, step) != ("stamp", "erase"):
        with monkeypatch.context() as patched:
            await _crash_before(pipeline, patched, step)
    pipeline = await opened()
    await commit_session(pipeline, "other", 10)
    await spool_of(pipeline).drain()
    assert files(pipeline) == []
    expected = {} if kind == "announce" else {"wf": "1"}
    assert tags(pipeline) == {"s": expected, "other": {}}
    assert len(entries(pipeline, Stamp)) == (kind != "announce")
    assert bool(pipeline.content.sidecars.size("s")) == (kind == "stamp")


def test_the_spool_is_read_before_any_log(home: Home) -> None:
    """Spool files left while the daemon was down apply to the logs it finds: no text of that session is ever stored."""
    secret = "the-canary-in-the-coal-mine"
    write(home, conversation("s1", "fine", prompt=secret), "s1")
    write(home, conversation("s2", "fine", prompt="hello"), "s2")
    put_in_spool(home.spool, announce_record("s1", contentMode="off"))
    put_in_spool(home.spool, stamp_record("s1", wf="7"))
    with running(home) as daemon, daemon.wire() as wire:
        wire.call("flush")
        assert wire.call("content.read", session="s2")["total"] > 0
        assert wire.call("content.read", session="s1")["kept"] == "no"
        assert wire.call("stamps.list")["stamps"][0]["enrichment"] == {"wf": "7"}
        daemon.terminate()
    for path in home.root.rglob("*"):
        assert path.is_dir() or secret.encode() not in path.read_bytes(), path


def test_the_spool_is_looked_at_every_few_seconds_and_when_asked(home: Home) -> None:
    """A spool file left because the daemon was busy is recorded within seconds."""
    with running(home) as daemon, daemon.wire() as wire:
        put_in_spool(home.spool, stamp_record(n="1"))
        assert wire.call("spool")["stamps"] == 1
        put_in_spool(home.spool, stamp_record(n="2"))
        put_in_spool(home.spool, b"nonsense")
        until(lambda: len(wire.call("stamps.list")["stamps"]) == 2)
        until(lambda: wire.call("status")["spool"]["bad"] == 1)
        status = wire.call("status")
        assert any("spool" in notice["what"] for notice in status["degraded"])


def test_a_claim_gets_its_session(home: Home) -> None:
    """After its harness has ended, a wrapper gets the session that belongs to its claim."""
    now = int(time.time() * 1000)  # a claim is given up when it is a week old
    with running(home) as daemon, daemon.wire() as wire:
        path = put_in_spool(home.spool, claimed(project="/home/dev/app", fromTs=to_iso(now - 60_000)))
        assert wire.call("spool", claim=path.stem)["claims"] == [{"claim": path.stem, "sessionId": None}]
        log = Transcript(session="s1")
        log.prompt("hello", ts=to_iso(now))
        log.says("m1", said("fine"), ts=to_iso(now))
        write(home, log, "s1")
        wire.call("flush")
        until(lambda: wire.call("spool", claim=path.stem)["claims"][0]["sessionId"] == "s1")
        assert wire.call("stamps.list", session="s1")["stamps"][0]["enrichment"] == {"wf": "1"}


FIRST, SECOND = "a1b2c3d4-0000-4000-8000-000000000001", "b1b2c3d4-0000-4000-8000-000000000002"


async def known(pipeline: Pipeline, *session_ids: str) -> None:
    turns = [turn(f"m{n}", session_id=session_id) for n, session_id in enumerate(session_ids)]
    await pipeline.commit(Batch(entries=list(turns)))


async def test_a_stamp_on_a_short_id_gets_its_session(opened: Opened) -> None:
    """A `shortId` of one character is resolved when the stamp is recorded, and so is a range."""
    pipeline = await opened()
    await known(pipeline, FIRST, SECOND)
    span = {"fromTs": at(0), "toTs": at(9)}
    put_in_spool(pipeline.home.spool, stamp_record("a"))
    put_in_spool(pipeline.home.spool, stamp_record("b1b2") | {"selector": {"sessionId": "b1b2", "range": span}})
    put_in_spool(pipeline.home.spool, stamp_record(FIRST, c="d"))
    put_in_spool(pipeline.home.spool, stamp_record("c1b2c3d4-0000-4000-8000-000000000003"))  # of a session to come
    spool = spool_of(pipeline)
    spool.is_growing = lambda: False
    taken = await spool.drain()
    assert (taken.stamps, taken.bad, taken.waiting) == (4, 0, 0)
    stamps = entries(pipeline, Stamp)
    assert [one.selector.session_id[:1] for one in stamps] == ["a", "b", "a", "c"]
    assert all(len(one.selector.session_id) == 36 for one in stamps)
    assert stamps[1].selector.range is not None


async def test_a_short_id_waits_for_old_logs_and_is_then_refused(opened: Opened) -> None:
    """A log that is not read yet may have the session; afterwards the file is refused with a reason."""
    pipeline = await opened()
    put_in_spool(pipeline.home.spool, stamp_record("a"))
    put_in_spool(pipeline.home.spool, stamp_record("ses_7"))
    spool = spool_of(pipeline)
    assert (await spool.drain()).waiting == spool.waiting == 2
    assert len(files(pipeline)) == 2
    await known(pipeline, FIRST)
    assert (await spool.drain()).waiting == 2  # a log that is not read yet may have another that begins so
    spool.is_growing = lambda: False
    assert (await spool.drain()).stamps == 1
    spool.is_reading = lambda: False
    assert (await spool.drain()).bad == 1
    assert files(pipeline) == []
    assert [one.selector.session_id for one in entries(pipeline, Stamp)] == [FIRST]
    reason = "no session begins with 'ses_7', and it is too short for the id of a session to come"
    assert (spool.bad, spool.refusals, spool.waiting) == (1, [reason], 0)
    again = spool_of(pipeline)
    await again.drain()
    assert again.refusals == [reason]  # also after a restart
    (aside,) = (pipeline.home.spool / "bad").iterdir()
    assert json.loads(aside.read_bytes()) == stamp_record("ses_7") | {"refused": reason}


async def test_a_short_id_of_several_sessions_is_refused(opened: Opened) -> None:
    pipeline = await opened()
    await known(pipeline, FIRST, "a1b2ffff-0000-4000-8000-000000000001")
    put_in_spool(pipeline.home.spool, stamp_record("a1"))
    spool = spool_of(pipeline)
    assert (await spool.drain()).bad == 1
    assert spool.refusals[0].startswith(f"more than one session begins with 'a1': give a longer prefix: {FIRST}, ")
    assert entries(pipeline, Stamp) == []


def test_a_stamp_made_while_the_daemon_was_down(home: Home) -> None:
    """With the short id of a session that is in a log which the daemon has not seen: it applies once that is read."""
    put_in_spool(home.spool, stamp_record("a1b2"))
    put_in_spool(home.spool, stamp_record("dead"))
    write(home, conversation(FIRST, "one"), FIRST)
    with running(home) as daemon, daemon.wire() as wire:
        wire.call("flush")
        assert wire.call("stamps.list")["stamps"][0]["selector"] == {"sessionId": FIRST}
        assert wire.call("summary", tags={"a": "b"})["totals"]["turns"] == 1
        status = wire.call("status")
        assert status["spool"] == {"claims": 0, "stamps": 0, "bad": 1, "blocked": None}
        (trouble,) = status["degraded"]
        assert trouble["what"].startswith("a stamp was refused: no session begins with 'dead'")
        assert "stamp the session again by its whole id" in trouble["remedy"]
