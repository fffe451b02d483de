"""burnctl/push/engine: what a target gets from the change feed, with failures in between."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from burnctl.errors import BurnctlError, Failed, NotRunning, UsageError
from burnctl.push import engine
from burnctl.push.engine import Labels, Push, check_url, read_credentials, target_of, watch
from burnctl.push.segments import SegmentTarget
from burnctl.push.state import behind, locked, states, write_state
from burnctl.push.target import Batch, Refused, Totals, Unreachable
from burnd import protocol
from burnd.contract.reports import ExportParams

LABELS = Labels("desk", "you")


def page(n: int, *, more: bool = False, reset: bool = False, **rows: Any) -> dict[str, Any]:
    """An answer of the feed."""
    whole = {"turns": [], "sessions": [], "causes": [], "findings": [], "gone": []} | rows
    facts = {"machine": "m1", "cursor": f"c{n}", "complete": not more, "more": more, "reset": reset}
    return {**facts, "seq": n, "firstSeq": 1, "priceDate": "2026-11-01", "left": 0, **whole}


def turn(message: str, **facts: Any) -> dict[str, Any]:
    return {"source": "s", "messageId": message, "sessionId": "x", "ts": "2026-11-10T00:00:00.000Z", "rev": 1} | facts


class Feed:
    """A client with prepared answers."""

    def __init__(self, *answers: dict[str, Any]) -> None:
        self.answers = [*answers]
        self.asked: list[dict[str, Any]] = []

    def ask(self, method: Any, params: dict[str, Any]) -> dict[str, Any]:
        if method is ExportParams:
            if params["project"] == "typo":
                raise Failed(protocol.NOT_FOUND, "no usage recorded for project 'typo'", "did you mean: type")
            return {"turns": [turn("a")] if params["project"] != "/empty" else []}
        if params.get("limit") == 0:
            return page(0)
        self.asked.append(params)
        return self.answers.pop(0)


class Memory:
    """A target in memory, whose next calls fail as in `failures`."""

    def __init__(self, cursor: str | None = None) -> None:
        self.cursor = cursor
        self.batches: list[Batch] = []
        self.calls: list[str] = []
        self.failures: list[Exception] = []

    def _call(self, name: str) -> None:
        if self.failures:
            raise self.failures.pop(0)
        self.calls.append(name)

    def open(self, _machine_id: str) -> str | None:
        self._call("open")
        return self.cursor

    def send(self, batch: Batch) -> None:
        self._call(f"send {batch.size} {json.loads(batch.cursor).get('feed')}")
        self.batches.append(batch)
        self.cursor = batch.cursor

    def finish_reset(self, _machine_id: str, first_seq: int) -> None:
        self._call(f"finish {first_seq}")

    def totals(self, _machine_id: str) -> dict[tuple[str, str], Totals]:
        return {}

    def close(self) -> None: ...


def pushing(feed: Feed, target: Memory, labels: Labels = LABELS, **options: Any) -> Push:
    pauses: list[float] = []
    push = Push(feed, target, labels, pause=pauses.append, **options)  # type: ignore[arg-type]
    push.open()
    return push


def test_old_rows_are_deleted_before_the_cursor_leaves_the_reset() -> None:
    """A crash in between comes back to the last page of the reset."""
    feed = Feed(page(1, more=True, reset=True, turns=[turn("a")]), page(2, reset=True, turns=[turn("b")]))
    target = Memory()
    assert pushing(feed, target).once() == 2
    assert target.calls == ["open", "send 2 None", "finish 1", "send 0 c2"]


def test_a_reset_of_one_page_starts_over_after_a_crash() -> None:
    target = Memory()
    pushing(Feed(page(1, reset=True, turns=[turn("a")])), target).once()
    assert target.calls == ["open", "send 1 None", "finish 1", "send 0 c1"]


def test_a_crash_before_old_rows_are_deleted_starts_over() -> None:
    """Also if the reason, another label, is gone: the cursor from before must not pass for one of now."""
    before = json.dumps({"feed": "c1", "labels": LABELS.digest})
    other = Labels("other", "you")
    target = Memory(before)
    push = pushing(Feed(page(2, reset=True, turns=[turn("a")])), target, other, tries=1)
    target.finish_reset = lambda *_: (_ for _ in ()).throw(Unreachable("crash"))  # type: ignore[method-assign]
    with pytest.raises(Unreachable):
        push.once()
    for labels in (other, LABELS):
        feed = Feed(page(3, reset=True))
        pushing(feed, Memory(target.cursor), labels).once()
        assert (feed.asked[0]["restart"], feed.asked[0]["cursor"]) == (True, "c1")


def test_a_reset_is_noted_before_its_first_rows_and_continues_after_a_crash(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "BATCH_ROWS", 1)
    target = Memory(json.dumps({"feed": "c1", "labels": LABELS.digest}))
    answers = [page(n, more=n < 4, reset=True, turns=[turn(f"{n}")]) for n in (2, 3, 4)]
    target.failures = []
    push = pushing(Feed(*answers[:2], page(9, machine="other")), target)
    with pytest.raises(BurnctlError, match="another id"):
        push.once()
    assert target.calls == ["open", "send 0 None", "send 1 c2", "send 1 c3"]
    feed = Feed(answers[2])
    pushing(feed, target).once()
    assert (feed.asked[0]["restart"], feed.asked[0]["cursor"]) == (False, "c3")
    assert target.calls[4:] == ["open", "send 1 c3", "finish 1", "send 0 c4"]


def test_every_batch_of_a_reset_is_in_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All of them may have one number, and the last one repeats the cursor of the one before it."""
    monkeypatch.setattr(engine, "BATCH_ROWS", 2)
    pages = [page(5, more=n < 6, reset=True, turns=[turn(f"{n}-{i}", model="m") for i in range(3)]) for n in range(7)]
    for n, one in enumerate(pages):
        one["cursor"] = f"c{n}"
    target = SegmentTarget(str(tmp_path))
    pushing(Feed(*pages), target).once()  # type: ignore[arg-type]
    assert sum(one.turns for one in target.totals("m1").values()) == 21


def test_a_repeat_sends_nothing() -> None:
    target = Memory(json.dumps({"feed": "c1", "labels": LABELS.digest}))
    feed = Feed(page(1))
    assert pushing(feed, target).once() == 0
    assert feed.asked[0]["cursor"] == "c1"
    assert target.calls == ["open"]


def test_other_labels_send_everything_again() -> None:
    """With higher numbers than before, which only the daemon can give."""
    target = Memory(json.dumps({"feed": "c1", "labels": LABELS.digest}))
    feed = Feed(page(2, reset=True, turns=[turn("a")]))
    pushing(feed, target, Labels("other", "you")).once()
    assert (feed.asked[0]["cursor"], feed.asked[0]["restart"]) == ("c1", True)


@pytest.mark.parametrize("stored", ["", "{", "[]", "null"])
def test_a_damaged_cursor_sends_everything_again(stored: str) -> None:
    feed = Feed(page(2, reset=True))
    pushing(feed, Memory(stored)).once()
    assert feed.asked[0]["cursor"] is None


def test_the_newest_row_of_a_key_is_sent_once_in_a_batch() -> None:
    session = {"sessionId": "x", "source": "s", "causesSeq": 1}
    cause = {"sessionId": "x", "source": "s", "n": 0}
    feed = Feed(
        page(1, more=True, turns=[turn("a")], sessions=[session], causes=[cause, {**cause, "n": 1}]),
        page(2, more=True, turns=[turn("a", model="m")], sessions=[{**session, "causesSeq": 2}], causes=[cause]),
        page(3, gone=[{"source": "s", "messageId": "b"}]),
    )
    target = Memory()
    pushing(feed, target).once()
    (batch,) = target.batches
    assert [(row["message_id"], row["seq"], row["deleted"]) for row in batch.tables["turns"]] == [
        ("a", 2, False),
        ("b", 3, True),
    ]
    assert [(row["n"], row["seq"]) for row in batch.tables["causes"]] == [(0, 2)]
    assert [row["causes_seq"] for row in batch.tables["sessions"]] == [2]
    assert batch.seq == 3


def test_a_target_that_is_away_is_tried_again(capsys: pytest.CaptureFixture[str]) -> None:
    target = Memory()
    target.failures = [Unreachable("no route", "is it running?"), Unreachable("no route", "is it running?")]
    assert pushing(Feed(page(1, turns=[turn("a")])), target).once() == 1
    assert capsys.readouterr().err.count("no route; is it running?; trying again") == 2


def test_it_gives_up_after_some_tries_and_at_once_if_it_is_refused() -> None:
    target = Memory()
    target.failures = [Unreachable("no route")] * 3
    with pytest.raises(Unreachable):
        pushing(Feed(), target, tries=3)
    target.failures = [Refused("wrong password"), Unreachable("never asked")]
    with pytest.raises(Refused):
        pushing(Feed(), target)
    assert len(target.failures) == 1


@pytest.mark.parametrize("name", ["/code/a", "/code/a/", "a", "host.example/me/a", "me/a"])
def test_a_project_is_left_out_by_folder_remote_or_the_end_of_one(name: str) -> None:
    labels = Labels("desk", "you", [name])
    assert labels.leaves_out({"project": "/code/a", "projectKey": "host.example/me/a"})
    assert not labels.leaves_out({"project": "/code/ab", "projectKey": "host.example/me/ab"})
    assert not labels.leaves_out({"project": None, "projectKey": None})
    assert Labels("desk", "you", ["/code/a"]).leaves_out({"project": "/code/a/sub"})


def test_nothing_of_a_project_that_is_left_out_is_sent() -> None:
    """Not even the ids of its requests and sessions, unless the target has them, of a project that is sent."""
    away, here = {"project": "/secret"}, {"project": "/open"}
    moved = {**away, "formerProjects": [here]}
    session = {"sessionId": "x", "source": "s", "causesSeq": 1}
    rows: dict[str, Any] = {
        "turns": [turn("a", **away), turn("b", **here), turn("c", rev=2, **away), turn("d", rev=2, **moved)],
        "gone": [
            {"source": "s", "messageId": "e", "formerProjects": [away]},
            {"source": "s", "messageId": "f", "formerProjects": [away, here]},
        ],
        "sessions": [
            {**session, **away},
            {**session, "sessionId": "y", **away},
            {**session, "sessionId": "z", **moved},
        ],
        "causes": [{"sessionId": "x", "source": "s", "n": n, **one} for n, one in enumerate((away, here))],
    }
    target = Memory()
    pushing(Feed(page(1, **rows)), target, Labels("desk", "you", ["/secret"])).once()
    (batch,) = target.batches
    turns = {row["message_id"]: row["deleted"] for row in batch.tables["turns"]}
    assert turns == {"b": False, "d": True, "f": True}
    assert [(row["session_id"], row["deleted"]) for row in batch.tables["sessions"]] == [("x", False), ("z", True)]
    assert [row["n"] for row in batch.tables["causes"]] == [1]
    assert "secret" not in repr(batch.tables)


def test_a_name_that_no_project_has_is_reported_before_anything_is_sent(capsys: pytest.CaptureFixture[str]) -> None:
    target = Memory()
    pushing(Feed(page(1, reset=True)), target, Labels("desk", "you", ["typo", "/empty", "/code/a"]))
    lines = capsys.readouterr().err.splitlines()
    assert [line.partition(": nothing")[0] for line in lines] == [
        "burnctl: no project is /empty",
        "burnctl: no project is typo",
    ]
    assert lines[1].endswith("did you mean: type")
    assert target.batches == []


def test_watching_continues_after_failures_and_ends_when_refused(home_folder: Path) -> None:
    class Stop(Exception): ...

    class Away(Feed):
        def ask(self, method: Any, params: dict[str, Any]) -> dict[str, Any]:
            if params.get("limit") != 0 and not self.asked:
                self.asked.append(params)
                raise NotRunning
            return super().ask(method, params)

    feed, target = Away(page(1, turns=[turn("a")])), Memory()
    pauses: list[float] = []

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        if len(target.batches) == 1 and len(pauses) > 1:
            raise Stop

    push = Push(feed, target, LABELS, pause=pause)  # type: ignore[arg-type]
    with pytest.raises(Stop):
        watch(push, str(home_folder / "there"), 5, pause=pause)
    assert target.calls == ["open", "open", "send 1 c1"]
    assert pauses[-1] == 5
    (state,) = states()
    assert (state["cursor"], state["error"]) == ("c1", "")
    target.failures = [Refused("wrong password")]
    with pytest.raises(Refused):
        watch(push, str(home_folder / "there"), 5, pause=pause)
    assert states()[0]["error"] == "wrong password"


@pytest.fixture
def home_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("RELAYBURN_HOME", str(tmp_path / "home"))
    return tmp_path


def test_an_error_leaves_the_last_success_on_the_note(home_folder: Path) -> None:
    url = str(home_folder / "there")
    write_state(url, "c1")
    write_state(url, None, error="no route")
    (state,) = states()
    assert (state["target"], state["cursor"], state["error"]) == (url, "c1", "no route")
    assert state["at"] is not None


def test_how_far_a_push_is_behind(home_folder: Path) -> None:
    write_state(str(home_folder / "there"), "c1")
    feed = Feed()
    feed.ask = lambda method, params: {"left": 3 if params == {"cursor": "c1", "limit": 0} else 0}  # type: ignore[method-assign]
    (one,) = behind(feed)  # type: ignore[arg-type]
    assert (one["target"], one["sessionsBehind"], one["error"]) == (str(home_folder / "there"), 3, None)


def test_two_pushes_to_one_target_exclude_each_other(home_folder: Path) -> None:
    url = str(home_folder / "there")
    with locked(url), pytest.raises(BurnctlError, match="another push"), locked(url):
        pass
    with locked(url):
        pass


def test_credentials_come_from_the_environment_or_a_private_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BURND_PUSH_USER", "u")
    monkeypatch.delenv("BURND_PUSH_PASSWORD", raising=False)
    assert read_credentials(None) == ("u", None)
    file = tmp_path / "push"
    file.write_text("# mine\npassword = p = 1\n")
    file.chmod(0o644)
    with pytest.raises(BurnctlError, match="other users can read"):
        read_credentials(str(file))
    file.chmod(0o600)
    assert read_credentials(str(file)) == ("u", "p = 1")


def test_a_password_in_a_url_is_refused() -> None:
    with pytest.raises(UsageError, match="has a password"):
        check_url("clickhouse://u:p@host/db")
    check_url("clickhouse://u@host/db")
    with pytest.raises(UsageError, match="is no URL"):
        check_url("clickhouse://host:none/db")
    with pytest.raises(UsageError, match="no target of the kind ftp"):
        target_of("ftp://host")


def test_pauses_grow_and_stay_below_two_minutes() -> None:
    assert engine.pause_s(0) < 2
    assert 45 <= engine.pause_s(50) < 120
