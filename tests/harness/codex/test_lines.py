"""Payloads of Codex's lines."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from burnd.harness.codex.lines import summary_in

SUMMARY = "Another language model started to solve this problem and produced a summary of its work:\nthe bug is fixed"


def message(text: Any, role: str = "user") -> dict[str, Any]:
    return {"type": "message", "role": role, "content": [{"type": "input_text", "text": text}]}


@pytest.mark.parametrize(
    ("history", "expected"),
    [
        ([message("fix the bug"), message(SUMMARY)], SUMMARY),
        ([message(SUMMARY), message("what does that mean: Another language model?")], SUMMARY),
        ([message("fix the bug"), {"type": "compaction", "encrypted_content": "gAAAA"}], ""),
        ([message("fix the bug")], ""),
        ([], ""),
        ([SUMMARY, {"content": SUMMARY}, {"content": [SUMMARY, {"text": [SUMMARY]}]}], ""),
        ({"text": SUMMARY}, ""),
    ],
)
def test_a_summary_is_found_in_the_history_that_replaced_the_context(history: Any, expected: str) -> None:
    assert summary_in(msgspec.Raw(msgspec.json.encode(history))) == expected
    assert summary_in(msgspec.Raw(b"")) == ""
