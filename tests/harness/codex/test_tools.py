"""The outcome of a call in a Codex rollout, from the text of its result."""

from __future__ import annotations

import msgspec
import pytest

from burnd.harness.codex.lines import Item
from burnd.harness.codex.tools import result_of


def outcome(text: str) -> tuple[bool, bool]:
    output = msgspec.Raw(msgspec.json.encode(text))
    result = result_of(Item(type="function_call_output", call_id="c", output=output))
    return result.failed, result.is_refusal


@pytest.mark.parametrize(
    "text",
    [
        "exec command rejected by user",
        "patch rejected by user",
        "rejected by user",
        "aborted by user after 5.0s",
        "Wall time: 5.0 seconds\naborted by user",
        "user rejected MCP tool call",
        "exec_command failed for `/bin/bash -lc 'rm x\ny'`: Rejected(\"rejected by user\")",
        'exec_command failed for `rm`: CreateProcess { message: "Rejected(\\"rejected by user\\")" }',
    ],
)
def test_a_call_that_the_user_refused_failed(text: str) -> None:
    assert outcome(text) == (True, True)


@pytest.mark.parametrize(
    "text",
    [
        "exec_command failed for `rm`: No such file or directory",
        "Wall time: 0.4 seconds\nProcess exited with code 1\nOutput:\naborted by user",
        "failed in sandbox: not permitted",
    ],
)
def test_another_failure_is_not_refused(text: str) -> None:
    assert outcome(text) == (True, False)


@pytest.mark.parametrize(
    "text", ["", "done", "Wall time: 0.4 seconds\nProcess exited with code 0\nOutput:\nrejected by user"]
)
def test_a_call_that_worked_did_not_fail(text: str) -> None:
    assert outcome(text) == (False, False)
