"""The guard's decisions: warnings before an agent is ended, and sessions that are allowed with all they started."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import pytest

from burnd import limits
from burnd.limits import Guard
from burnd.queries.guard import NextCall, Use

OVER = [Use("session_usd", 1.0, 2.0)]


class Time:
    """A clock in the test's hand."""

    ms = 1_000_000

    def __call__(self) -> int:
        return self.ms


@pytest.fixture
def time() -> Time:
    return Time()


async def check(checked: Guard, found: list[Use], session: str = "s1") -> dict[str, Any]:
    async def look(_: Any) -> list[Use]:
        return found

    return await checked.check(look, {"session_usd": 1.0}, session, "claude-code", NextCall("Bash", "ls"))


async def test_an_agent_that_goes_on_is_ended_at_its_third_response(tmp_path: Path, time: Time) -> None:
    """Several denied calls of one response are one warning; an allowed call or `allow` starts again."""
    checked = Guard(tmp_path / "guard.json", time)
    stops = []
    for _ in range(3):
        time.ms += 5_000
        stops.append([(await check(checked, OVER))["stop"] for _ in range(4)])
    assert stops == [[False] * 4, [False] * 4, [True] * 4]
    await check(checked, [])
    time.ms += 5_000
    answer = await check(checked, OVER)
    assert not answer["stop"]
    assert answer["reason"].startswith("burnd guard: this session cost $2.00 at API prices (limit $1.00). Stop here")
    assert len(checked.denials) == 13


async def test_choices_made_at_once_are_all_stored(tmp_path: Path, time: Time) -> None:
    checked = Guard(tmp_path / "guard.json", time)
    async with anyio.create_task_group() as group:
        for number in range(20):
            group.start_soon(checked.allow, f"s{number}", 0)
        group.start_soon(lambda: checked.switch(is_off=True))
    again = Guard(tmp_path / "guard.json", time)
    assert again.is_off
    assert len(again.allowed) == 20


async def test_an_allowed_session_counts_with_all_it_started(
    tmp_path: Path, time: Time, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also those of a session that was itself started by another; until the time that was given."""
    monkeypatch.setattr(limits, "line_of", lambda _, session: [session, "middle", "root"])
    monkeypatch.setattr(limits, "uses", lambda *_: OVER)
    checked = Guard(tmp_path / "guard.json", time)

    async def look(question: Any) -> list[Use]:
        return question(None)  # type: ignore[no-any-return]

    async def decision() -> str:
        answer = await checked.check(look, {"session_usd": 1.0}, "leaf", "claude-code", None)
        return str(answer["decision"])

    assert await decision() == "deny"
    await checked.allow("middle", time.ms + 1000)
    assert await decision() == "allow"
    time.ms += 1000
    assert await decision() == "deny"
    assert checked.allowed == {}


@pytest.mark.parametrize("text", ["", "{", "[]", '{"allowed": 7}'])
def test_a_damaged_file_of_choices_is_as_none(tmp_path: Path, time: Time, text: str) -> None:
    path = tmp_path / "guard.json"
    path.write_text(text)
    assert (Guard(path, time).is_off, Guard(path, time).allowed) == (False, {})
