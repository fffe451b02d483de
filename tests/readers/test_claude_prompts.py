"""A prompt is what a person asked; what the harness says in their place is not."""

from __future__ import annotations

from typing import Any

import pytest

from tests.readers.collect import read
from tests.readers.transcript import Transcript, call, image, text

_HARNESS_TEXTS = [
    "<task-notification>\n<task-id>a</task-id>",
    "<command-name>/compact</command-name>",
    "<command-message>init</command-message>",
    "<local-command-stdout>ok</local-command-stdout>",
    "<bash-input>ls</bash-input>",
    "<bash-stdout>x</bash-stdout>",
    "[Request interrupted by user for tool use]",
]


@pytest.mark.parametrize(
    "fields",
    [{"content": harness} for harness in _HARNESS_TEXTS]
    + [{"content": [text(harness)]} for harness in _HARNESS_TEXTS]
    + [
        {"content": "Continue from where you left off.", "isMeta": True},
        {"content": "So far: ...", "isCompactSummary": True},
        {"content": "done", "turnOrigin": "task_notification"},
    ],
)
def test_what_the_harness_says_is_no_prompt(fields: dict[str, Any]) -> None:
    t = Transcript()
    prompt = t.prompt("rename it")
    t.says("m1")
    t.prompt(**fields)
    t.says("m2")
    turn = read(t.lines).turn("m2")
    assert (turn.prompt_id, turn.prompt_words) == (prompt, ("refactoring",))
    assert [block.kind for block in turn.entered] in (["reminder"], ["summary"])


@pytest.mark.parametrize("content", ["add a test", [text("add a test"), image()], [text("<ide>"), text("add a test")]])
def test_what_a_person_asks_is_a_prompt(content: Any) -> None:
    t = Transcript()
    t.prompt("rename it")
    t.says("m1")
    prompt = t.prompt(content, turnOrigin="sdk")
    t.says("m2")
    turn = read(t.lines).turn("m2")
    assert (turn.prompt_id, turn.prompt_words) == (prompt, ("feature",))


@pytest.mark.parametrize(
    ("fields", "is_prompt"),
    [
        ({"origin": {"kind": "human"}, "commandMode": "prompt"}, True),
        ({"commandMode": "prompt"}, True),
        ({}, True),
        ({"origin": {"kind": "task-notification"}, "commandMode": "prompt"}, False),
        ({"commandMode": "task-notification"}, False),
    ],
)
def test_what_a_person_typed_while_the_agent_was_busy_is_a_prompt(fields: dict[str, Any], is_prompt: bool) -> None:
    t = Transcript()
    t.prompt("rename it")
    t.calls("m1", call("c1", "Read"))
    t.result("c1", "1")
    queued = t.attach("queued_command", prompt="and fix the bug", rendered="The user says: and fix the bug", **fields)
    t.says("m2")
    rows = read(t.lines)
    turn = rows.turn("m2")
    assert (turn.prompt_id == queued) == is_prompt
    assert [(block.kind, block.bytes) for block in turn.entered] == [
        ("result", 1),
        ("prompt" if is_prompt else "reminder", 30),
    ]
    assert (("user", "text", "and fix the bug") in rows.texts()) == is_prompt


def test_a_queued_notification_is_heeded_like_any_other() -> None:
    t = Transcript()
    note = "<task-notification>\n<task-id>a17</task-id>\n<tool-use-id>c1</tool-use-id>"
    t.attach("queued_command", prompt=note, commandMode="task-notification")
    (link,) = read(t.lines).agents
    assert (link.agent_id, link.tool_use_id, link.told_by) == ("a17", "c1", "notification")


def test_retries_are_walked_over_a_whole_prompt() -> None:
    """Within a turn and over all turns of the prompt; a new prompt begins anew."""
    t = Transcript()
    t.prompt("fix the bug")
    for n in range(3):
        t.calls(f"e{n}", call(f"ce{n}", "Edit", file_path="/a"))
        t.result(f"ce{n}")
        t.calls(f"s{n}", call(f"cs{n}", "Bash", command="pytest"))
        t.result(f"cs{n}")
    t.prompt("now this")
    t.calls("e3", call("ce3", "Edit", file_path="/a"))
    rows = read(t.lines, cuts=range(0, 20, 3))
    assert [rows.turn(f"e{n}").prompt_retries for n in range(4)] == [0, 1, 2, 0]
    assert rows.turn("s2").prompt_retries == 2
    assert rows.turn("e1").retries == 0


def test_a_prompt_written_twice_goes_on_where_it_was() -> None:
    t = Transcript()
    t.prompt("fix the bug")
    prompt = t.lines[-1]
    for n, name in enumerate(("Edit", "Bash")):
        t.calls(f"m{n}", call(f"c{n}", name))
    t.lines.append(prompt)
    t.calls("m2", call("c2", "Edit"))
    assert read(t.lines, cuts=[4]).turn("m2").prompt_retries == 1
