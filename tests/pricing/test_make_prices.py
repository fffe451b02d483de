"""The script that renews the shipped snapshot."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from burnd.pricing.table import SNAPSHOT

SCRIPT = Path(__file__).parents[2] / "packaging" / "make_prices.py"


def load_script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("make_prices", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


make_prices = load_script()


def api(**models: dict[str, Any]) -> dict[str, Any]:
    return {"anthropic": {"models": {model.replace("_", "-"): {"cost": cost} for model, cost in models.items()}}}


@pytest.fixture
def run(tmp_path: Path) -> Any:
    def run(content: Any, as_of: str | None) -> tuple[int, Any]:
        source, output = tmp_path / "api.json", tmp_path / "prices.json"
        source.write_text(json.dumps(content))
        day = ["--as-of", as_of] if as_of else []
        code = make_prices.main([str(source), "--output", str(output), *day])
        return code, json.loads(output.read_text()) if output.exists() else None

    return run


def test_a_model_that_left_the_list_is_kept_and_marked(run: Any) -> None:
    run(api(old={"input": 1, "output": 2}, new={"input": 3, "output": 4}), "2026-01-01")
    code, snapshot = run(api(new={"input": 5, "output": 6}), "2026-02-01")
    assert code == 0
    assert snapshot["asOf"] == "2026-02-01"
    assert snapshot["providers"]["anthropic"] == {
        "new": {"input": "5", "output": "6"},
        "old": {"input": "1", "output": "2", "retired_after": "2026-01-01"},
    }
    _, later = run(api(new={"input": 5, "output": 6}), "2026-03-01")
    assert later["providers"]["anthropic"]["old"]["retired_after"] == "2026-01-01"


def test_a_model_that_returns_is_no_longer_retired(run: Any) -> None:
    run(api(old={"input": 1, "output": 2}), "2026-01-01")
    run(api(new={"input": 1, "output": 2}), "2026-02-01")
    _, snapshot = run(api(old={"input": 3, "output": 4}), "2026-03-01")
    assert snapshot["providers"]["anthropic"]["old"] == {"input": "3", "output": "4"}


def test_only_what_prices_need_is_kept(run: Any) -> None:
    cost = {"input": 0.5, "output": 2, "input_audio": 9, "context_over_200k": {"input": 1, "output": 3}}
    content = api(model=cost) | {"somebody-else": {"models": {"m": {"cost": {"input": 1, "output": 1}}}}}
    _, snapshot = run(content, "2026-01-01")
    tiers = [{"over": 200_000, "input": "1", "output": "3"}]
    assert snapshot["providers"] == {"anthropic": {"model": {"input": "0.5", "output": "2", "tiers": tiers}}}


@pytest.mark.parametrize(
    "cost", [{"input": -1, "output": 1}, {"input": float("nan"), "output": 1}, {"output": 1}, {"input": 1}]
)
def test_a_broken_price_stops_the_run(run: Any, capsys: pytest.CaptureFixture[str], cost: dict[str, Any]) -> None:
    run(api(good={"input": 1, "output": 1}), "2026-01-01")
    code, snapshot = run(api(good={"input": 2, "output": 2}, broken_model=cost), "2026-02-01")
    assert code == 1
    assert snapshot["asOf"] == "2026-01-01"
    message = capsys.readouterr().err
    assert "NaN" in message or "anthropic/broken-model: cost." in message


def test_a_list_without_a_day_is_refused(run: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(api(model={"input": 1, "output": 1}), None) == (2, None)
    assert "--as-of" in capsys.readouterr().err


def test_the_shipped_snapshot_is_as_the_script_writes_it() -> None:
    """Made again from itself, the snapshot does not change by a byte."""
    text = Path(SNAPSHOT).read_text()
    snapshot = json.loads(text)
    assert make_prices.render(snapshot["providers"], snapshot["asOf"]) == text
    assert set(snapshot["providers"]) <= set(make_prices.PROVIDERS)
