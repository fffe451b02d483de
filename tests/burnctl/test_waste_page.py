"""The page of `burnctl waste`, sentence by sentence, for answers that a demo does not give."""

from __future__ import annotations

from typing import Any

import pytest

from burnctl.render import waste
from burnctl.render.screen import Screen

EVIDENCE: dict[str, Any] = {
    "sessionId": "5e550001", "railId": "main", "turns": [3], "calls": ["c1"], "files": [], "tool": "Bash",
    "target": "make", "reason": None, "count": 1, "entered": 12_000, "rides": 20, "usual": 0, "others": 0,
}  # fmt: skip


def finding(kind: str, times: int = 1, project: str | None = "/code/a", **evidence: Any) -> dict[str, Any]:
    return {"kind": kind, "severity": "low", "project": project, "projectCount": int(project is not None),
            "sessions": ["5e550001"], "sessionCount": 1, "times": times, "evidence": EVIDENCE | evidence,
            "tokens": 10, "costUsd": 0.02, "advice": "Do less."}  # fmt: skip


def page(*findings: dict[str, Any], **more: Any) -> str:
    answer: dict[str, Any] = {"totals": {"turns": 30, "costUsd": 1.0}, "findings": list(findings)}
    shown = waste.shown(answer | {"moreFindings": 0, "cheaperFindings": 0} | more, Screen(200))
    return " ".join(shown.split())


@pytest.mark.parametrize(
    ("found", "told"),
    [
        (finding("rode-far"), "Bash make: 12.0k tokens rode along in 20 turns"),
        (finding("rode-far", 3), "Bash make: 3 calls of up to 12.0k tokens rode along in up to 20 turns"),
        (finding("oversized"), "Bash make brought in 12.0k tokens at once ("),
        (finding("oversized", 3), "Bash make brought in up to 12.0k tokens at once, 3 times"),
        (finding("reread", 2, files=["a.py"]), "a.py was read twice again, unchanged"),
        (finding("reread", 2, files=["a.py"], reason="same-size"), "a.py was read twice again, as large as before"),
        (finding("edit-revert", 2, files=["a.py"]), "2 edits of a.py came to nothing"),
        (finding("reread", 14, others=10), "10 more findings of the kind reread, each of them small, together ("),
        (
            finding("prefix-bloat", target="/code/a", usual=5_000),
            "1 session of a began with 12.0k tokens where 5.0k are",
        ),
        (finding("prefix-bloat", 3, target="/code/a", usual=5_000), "3 sessions of a began with up to 12.0k tokens"),
        (finding("retry-loop", 4), "Bash make failed 4 times ("),
        (finding("retry-loop", 4, quote="make world"), "Bash make failed 4 times: “make world” ("),
        (finding("oversized", quote="make world"), "Bash “make world” brought in 12.0k tokens at once ("),
        (finding("oversized", quote="cd a && make"), "Bash make “cd a && make” brought in 12.0k tokens at once ("),
        (finding("oversized", 2, quote="make world"), "tokens at once, twice, such as “make world” ("),
        (finding("failure-run", 6, tool=None, quote="ls x"), "6 calls in a row failed, the first “ls x” ("),
    ],
)
def test_a_sentence_claims_what_was_found(found: dict[str, Any], told: str) -> None:
    """Of several calls it says how many and how large at most; nothing is told that was not looked at."""
    assert told in page(found)


def test_a_finding_of_several_projects_names_none() -> None:
    assert "low · a · in 5e550001 turn 3" in page(finding("cache-miss", reason="pause"))
    spread = finding("cache-miss", project=None, reason="pause") | {"projectCount": 3}
    assert "low · 3 projects · in 5e550001 turn 3" in page(spread)


def test_a_broken_price_file_is_said_below_it() -> None:
    for found in ([], [finding("oversized")]):
        assert "Prices: models.dev.json: is not JSON." in page(*found, pricesProblem="models.dev.json: is not JSON")


def test_what_is_too_cheap_to_be_told_is_counted() -> None:
    assert page() == "Nothing to be found in 30 turns."
    assert page(cheaperFindings=200) == "Only 200 findings below --min-cost in 30 turns."
    assert "1 finding below --min-cost is not shown." in page(finding("oversized"), cheaperFindings=1)


def test_the_harness_s_own_figure_is_marked() -> None:
    """The answer does not name the models."""
    shown = page(totals={"turns": 30, "costUsd": 1.0, "harnessTurns": 2, "harnessCostUsd": 0.25})
    assert "$0.25 is the harness's own figure: no price list has its models." in shown
