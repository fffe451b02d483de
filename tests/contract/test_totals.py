"""Declarations of methods."""

from __future__ import annotations

from burnd.contract import methods
from burnd.contract.reports import SummaryParams


def test_totals_answer_only_what_is_listed() -> None:
    """A parameter or dimension that is added later is not answered from totals unless it is listed."""
    for method in methods().values():
        assert set(method.of_totals) <= method.params.keys(), method
    for name in SummaryParams.params.keys() - {*SummaryParams.of_totals}:
        assert not SummaryParams(**{name: True}).is_of_totals, name  # type: ignore[arg-type]
    assert SummaryParams(by="day,model", project="x", tags={"team": "a"}).is_of_totals
    for by in ("activity", "model,version", "tag:team", "pr"):
        assert not SummaryParams(by=by).is_of_totals
