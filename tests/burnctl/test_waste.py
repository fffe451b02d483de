"""The screen of `burnctl waste`, for answers that the demo does not give, and `burnctl explain`."""

from __future__ import annotations

from typing import Any, get_args

import pytest

from burnctl.commands import explain, waste
from burnctl.render.screen import Screen
from burnctl.render.text import width_of
from burnd.attribution.findings import FindingKind

EVIDENCE: dict[str, Any] = {
    "sessionId": "5e550001", "railId": "main", "turns": [3], "calls": ["c1"], "files": [], "tool": "Bash",
    "target": "make", "reason": None, "count": 1, "entered": 12_000, "rides": 20, "usual": 0, "others": 0,
}  # fmt: skip


def finding(kind: str, times: int = 1, project: str | None = "/code/a", **evidence: Any) -> dict[str, Any]:
    return {"kind": kind, "severity": "low", "project": project, "projectCount": int(project is not None),
            "sessions": ["5e550001"], "sessionCount": 1, "times": times, "evidence": EVIDENCE | evidence,
            "tokens": 10, "costUsd": 0.02, "advice": "Do less."}  # fmt: skip


def answer_of(*findings: dict[str, Any], **more: Any) -> dict[str, Any]:
    kinds: dict[str, dict[str, Any]] = {}
    for one in findings:
        kind = kinds.setdefault(one["kind"], {"kind": one["kind"], "findings": 0, "costUsd": 0.0, "advice": "Do less."})
        kind |= {"findings": kind["findings"] + 1, "costUsd": kind["costUsd"] + one["costUsd"]}
    answer: dict[str, Any] = {"totals": {"turns": 30, "costUsd": 1.0}, "findings": list(findings), "filters": {}}
    answer |= {"avoidable": {"costUsd": 0.02, "usage": {"input": 10}}, "kinds": list(kinds.values())}
    return answer | {"severities": {"high": 1.0, "medium": 0.1}, "moreFindings": 0, "cheaperFindings": 0} | more


def page(*findings: dict[str, Any], width: int = 200, period: str = "", **more: Any) -> str:
    screen, answer = Screen(width, with_notes=True), answer_of(*findings, **more)
    return screen.page(answer, waste.draw(answer, screen, period))


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (finding("rode-far"), "Bash make: 12.0k tokens, re-sent in 20 requests"),
        (finding("rode-far", 3), "Bash make: 3 calls, up to 12.0k tokens, re-sent in up to 20 requests"),
        (finding("oversized"), "Bash make: 12.0k tokens at once"),
        (finding("oversized", 3), "Bash make: 3 calls, up to 12.0k tokens at once"),
        (finding("oversized", quote="make world"), "Bash “make world”: 12.0k tokens at once"),
        (finding("oversized", quote="cd a && make"), "Bash make “cd a && make”: 12.0k tokens at once"),
        (finding("reread", 2, files=["a.py"]), "a.py: read again twice"),
        (finding("reread", 2, files=["a.py"], reason="same-size"), "a.py: read again twice, as large as before"),
        (finding("reread", 14, others=10), "10 small findings together"),
        (finding("edit-revert", 2, files=["a.py"]), "a.py: 2 edits undone"),
        (finding("prefix-bloat", usual=5_000), "12.0k tokens instead of about 5.0k"),
        (finding("prefix-bloat", 3, usual=5_000), "3 sessions: up to 12.0k tokens instead of about 5.0k"),
        (finding("retry-loop", 4), "Bash make failed 4 times"),
        (finding("retry-loop", 1, quote="make world", error="no rule"), "Bash “make world” failed once: “no rule”"),
        (finding("failure-run", 6, tool=None, error="no x"), "6 calls in a row failed: “no x”"),
        (finding("compaction-churn", 3, turns=[1, 5, 9]), "compacted 3 times, at requests 1, 5, 9"),
        (finding("delegation", reason="failed"), "Bash make failed"),
        (finding("delegation", 2), "Bash make (2 subagents)"),
        (finding("cache-miss", reason="pause"), "expired in a pause"),
    ],
)
def test_a_finding_in_a_line(found: dict[str, Any], words: str) -> None:
    """Of several calls it has their number and the largest size, nothing that was not looked at."""
    assert waste.what(found) == words
    assert words in page(found)


def test_an_advice_is_there_once() -> None:
    shown = page(*[finding("oversized")] * 3, finding("reread", files=["a.py"]))
    for kind in ("oversized", "reread"):
        assert shown.count(explain.KINDS[kind].advice) == 1
        assert shown.count(explain.KINDS[kind].line) == 1


def test_the_headline_comes_first() -> None:
    shown = page(finding("oversized"), finding("reread", files=["a.py"]), avoidable={"costUsd": 0.03, "usage": {}})
    assert shown.startswith("Avoidable: about $0.03 of $1.00 (3%, no token counted twice)")
    assert "high: $1.00 or more, medium: $0.10 or more" in shown
    days = [{"key": "2026-11-01"}, {"key": "2026-11-12"}]
    assert waste.period_of(days) == " in 12 days"
    since = page(finding("oversized"), period=waste.period_of(days[:1]))
    assert since.startswith("Avoidable: about $0.02 of $1.00 on Nov 1 (2%,")
    unpriced = page(
        finding("oversized") | {"costUsd": 0.0},
        avoidable={"costUsd": None, "usage": {"input": 1_500}},
        totals={"turns": 3, "costUsd": None, "usage": {"input": 6_000}},
    )
    assert unpriced.startswith("Avoidable: about 1.5k of 6.0k tokens")


def test_small_kinds_share_a_line() -> None:
    big, small = finding("oversized") | {"costUsd": 50.0}, finding("reread", files=["a.py"])
    shown = page(big, small, avoidable={"costUsd": 50.0, "usage": {}})
    assert "Below 1% each: reread $0.02 (1 finding). See one: burnctl waste --kind KIND" in shown
    assert explain.KINDS["reread"].advice not in shown
    answer = answer_of(big, small, avoidable={"costUsd": 50.0, "usage": {}})
    assert explain.KINDS["reread"].advice in waste.draw(answer, Screen(200), with_small=True)


def test_reasons_of_cache_misses_have_their_advice() -> None:
    """A line each, which continues the reason."""
    miss = finding("cache-miss", reason="rewind", proof="inferred")
    miss |= {"advice": "Going back to an earlier point paid for it again."}
    shown = waste.draw(answer_of(miss), Screen(200), with_small=True)
    assert "  · went back: going back to an earlier point paid for it again." in shown.splitlines()


def test_more_findings_are_counted() -> None:
    answer = answer_of(finding("oversized"))
    answer["kinds"][0]["findings"] = 9
    assert "and 8 more: burnctl waste --kind oversized" in waste.draw(answer, Screen(200))


def test_a_finding_of_several_projects() -> None:
    spread = finding("cache-miss", project=None, reason="pause") | {"projectCount": 3, "sessionCount": 5}
    assert "3 projects  5e550001 +4" in page(spread)


def test_without_findings() -> None:
    assert page().startswith("Nothing avoidable was found in 30 requests for $1.00.")
    assert page(cheaperFindings=200).startswith("Only 200 findings below --min-cost in 30 requests for $1.00.")


def test_a_broken_price_file_is_a_footnote() -> None:
    for found in ([], [finding("oversized")]):
        assert "Prices: models.dev.json: is not JSON." in page(*found, pricesProblem="models.dev.json: is not JSON")


@pytest.mark.parametrize("width", [40, 80, 160])
def test_every_kind_is_explained(width: int) -> None:
    """Each has its proof, its advice and a line to paste, within the width of the screen."""
    assert set(explain.KINDS) == {*get_args(FindingKind), "release"}
    for kind in explain.KINDS:
        shown = explain.draw(kind, Screen(width))
        assert "how it is proved" in shown
        assert all(width_of(line) <= max(width, 100) for line in shown.splitlines())
        shown = page(finding(kind, files=["a.py"], reason="pause"), width=width)
        assert all(width_of(line) <= width for line in shown.splitlines())


def test_a_release_that_cost_more() -> None:
    use = {"requests": 200, "sessions": 5, "costPerRequest": 0.02, "missRate": 0.01}
    after = use | {"version": "2.1.237", "costPerRequest": 0.03, "missRate": 0.05}
    change = {"source": "claude-code", "model": "claude-opus-5", "what": ["cost", "misses"], "extraUsd": 2.0}
    shown = page(releases=[change | {"before": use | {"version": "2.1.236"}, "after": after}], width=160)
    assert "releases that cost more" in shown
    assert "Claude Code 2.1.237, opus-5: 50% more a request than 2.1.236" in shown
    assert "cache misses in 5% of requests, not 1%" in shown
