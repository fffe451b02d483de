"""Codex rollouts case by case: folders of logs with their expected records and reasons."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from burnd.harness.codex.reader import CodexReader, place_of
from burnd.harness.codex.rollout import RolloutName, load_state
from burnd.logfiles.log_reader import LogReading
from burnd.recording.ownership import Decision, decide
from burnd.records import ToolCall, Turn, Usage
from tests.harness.codex.rollout import CASES, Rollout, call


def case(path: Path) -> Any:
    return pytest.param(path, id=path.name)


ALL = [case(path) for path in sorted(CASES.iterdir())]


def read(path: Path, *, cut_every: int = 0, settle: bool = False) -> list[LogReading]:
    """A log in pieces of so many lines, the state stored and loaded between them."""
    place = place_of(path.name)
    assert isinstance(place, RolloutName)
    reader, offset, readings = CodexReader(place), 0, []
    for n, line in enumerate(path.read_bytes().splitlines(keepends=True), 1):
        reader.feed(line, offset)
        offset += len(line)
        if cut_every and n % cut_every == 0:
            if settle:
                reader.flush()
            readings.append(reader.take())
            reader = CodexReader(place, load_state(readings[-1].state))
    reader.flush()
    return [*readings, reader.take()]


def joined(readings: Iterable[LogReading]) -> dict[str, Decision]:
    """Merged result of the files, as in the pipeline: the newest state of a candidate."""
    messages: dict[str, Decision] = {}
    for reading in readings:
        for candidate in reading.candidates:
            if candidate.settled:
                messages[candidate.message_id] = decide(messages.get(candidate.message_id), candidate)
    return messages


def told(readings: list[LogReading]) -> dict[str, Any]:
    """All that a case is judged by, in a form that a person can check."""
    messages = joined(readings)
    turns = sorted((one.turn for one in messages.values()), key=lambda turn: (turn.ts, turn.session_id))
    number = {turn.message_id: n for n, turn in enumerate(turns)}
    found: dict[str, Any] = {
        "turns": [shown(turn, number) for turn in turns],
        "copies": sorted(
            f"{number[copy.message_id]} in {copy.session_id[-2:]}" for one in messages.values() for copy in one.copies
        ),
        "sessions": [
            " ".join(
                filter(None, (one.session_id[-2:], one.agent, one.parent_session_id and one.parent_session_id[-2:]))
            )
            for reading in readings
            for one in reading.sessions
        ],
        "events": [event.name for reading in readings for event in reading.events],
        "compactions": [one.before_tokens for reading in readings for one in reading.compactions],
        "windows": [f"{one.window} {one.used_percent}" for reading in readings for one in reading.quotas],
        "agents": sorted({f"{a.session_id[-2:]} by {a.tool_use_id}" for r in readings for a in r.agents}),
        "prompts": sorted(
            {c.text for r in readings for c in r.content if c.role == "user" and isinstance(c.text, str)}
        ),
        "titles": [c.text for r in readings for c in r.content if c.kind == "title"],
    }
    return {name: value for name, value in found.items() if value}


def shown(turn: Turn, number: dict[str, int]) -> str:
    usage = turn.usage
    counts = (usage.input, usage.cache_read, usage.output, usage.reasoning)
    words = [turn.session_id[-2:], turn.model or "?", "+".join(map(str, counts)), turn.quality, turn.speed or ""]
    words += [turn.activity or ""]
    words += [named(call) for call in turn.tool_calls]
    words += [f"after {number[turn.parent]}" if turn.parent in number else "first"]
    return " ".join(filter(None, words))


def named(call: ToolCall) -> str:
    outcome = {None: "?", True: "!", False: ""}[call.is_error]
    return f"[{call.name}{outcome}{' ' + call.target if call.target else ''}]"


def logs(path: Path) -> list[Path]:
    return sorted((path / "input").iterdir())


@pytest.mark.parametrize("path", ALL)
def test_a_case_comes_to_what_it_should(path: Path) -> None:
    """Each folder's logs come to the turns, copies and facts that its README explains."""
    found = told([reading for log in logs(path) for reading in read(log)])
    assert found == json.loads((path / "expected.json").read_bytes())


@pytest.mark.parametrize("path", ALL)
def test_the_order_of_logs_does_not_matter(path: Path) -> None:
    """A fork that is read before its parent ends where it ends when it is read after it."""
    expected = None
    for order in itertools.permutations(logs(path)):
        messages = joined(reading for log in order for reading in read(log))
        found = {name: (one.turn, one.copies) for name, one in messages.items()}
        assert expected in (None, found)
        expected = found


@pytest.mark.parametrize("settle", [False, True], ids=["growing", "settled"])
@pytest.mark.parametrize("path", ALL)
def test_cuts_do_not_matter(path: Path, settle: bool) -> None:
    """However a log is cut into pieces, and if all is settled at every cut, the pieces add up to the same."""
    for log in logs(path):
        whole = read(log)
        for cut_every in (1, 3):
            pieces = read(log, cut_every=cut_every, settle=settle)
            assert {m: one.turn for m, one in joined(pieces).items()} == {m: o.turn for m, o in joined(whole).items()}
            for name in ("content", "events", "compactions", "quotas", "sessions"):
                assert [one for r in pieces for one in getattr(r, name)] == getattr(whole[0], name)


@pytest.mark.parametrize("path", ALL)
def test_no_words_in_the_state(path: Path) -> None:
    """I6: the stored state of a reader has no conversation text."""
    for log in logs(path):
        for reading in read(log, cut_every=1):
            said = [c.text for c in reading.content if isinstance(c.text, str) and len(c.text) > 8]
            assert not [text for text in said if text.encode() in reading.state]


def test_the_bill_is_what_the_meters_grew_by() -> None:
    """Over a family of forks the turns add up to what each log's meter grew by since its fork."""
    readings = [reading for log in logs(CASES / "fork-of-a-fork") for reading in read(log)]
    total = sum((one.turn.usage for one in joined(readings).values()), Usage())
    assert (total.context, total.output + total.reasoning) == (1000 + 1100 + 1150 + 1200 + 1200, 50 + 40 + 30 + 30 + 30)


@pytest.mark.parametrize(
    "made",
    [
        call("c1", "exec_command", cmd="cd app && git push && gh pr create --fill"),
        call("c1", "shell", command=["bash", "-lc", "cd app && gh pr create --fill"]),
        call("c1", "exec_command", cmd="bash -lc 'gh pr create --fill'"),
    ],
)
def test_a_pull_request_is_found_wherever_the_command_makes_it(made: dict[str, Any]) -> None:
    """Also if the reader is stored between the call and its result."""
    rollout = Rollout()
    rollout.task()
    rollout.prompt("make it")
    rollout.item(made)
    rollout.meter(100, 0, 10, 0)
    place, offset = RolloutName(rollout.thread), 0
    found: dict[str, str | None] = {}
    rollout.answer("c1", "Creating pull request\nhttps://github.com/acme/shop/pull/7\n")
    rollout.event("task_complete")
    state = None
    for line in rollout.lines:
        reader = CodexReader(place, state)
        reader.feed(line, offset)
        offset += len(line) + 1
        reading = reader.take()
        state = load_state(reading.state)
        found |= {one.message_id: one.pull_request for one in reading.candidates}
    assert [*found.values()] == ["https://github.com/acme/shop/pull/7"]


def test_an_empty_folder_is_no_project() -> None:
    reader = CodexReader(RolloutName("s"))
    log = Rollout(cwd="")
    log.meter(100, 0, 20, 0)
    for n, line in enumerate(log.lines):
        reader.feed(line, n)
    assert [one.project for one in reader.take().sessions] == [None]
