"""`burnctl pricing`: shows a price or the reason for its absence, and imports another list."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from burnd.contract.reports import PricingParams
from burnd.paths import Home
from burnd.pricing import PriceTable
from burnd.pricing.pricefile import read_user_lists
from burnd.queries.spending import price_of_model
from burnd.queries.view import View
from tests.burnctl.fake_daemon import FakeConnection, fake_daemon
from tests.burnctl.invoke import run, seen

OWN = b'{"anthropic": {"models": {"claude-opus-5": {"cost": {"input": 4, "output": 20}, "fetched": "2026-11-01"}}}}'
SHIPPED = PriceTable.load()


def answer(params: dict[str, Any], _talk: FakeConnection) -> dict[str, Any]:
    prices = SHIPPED.under(read_user_lists(OWN, "own"))
    return price_of_model(View(None, prices, 0), PricingParams(**params))  # type: ignore[arg-type]


def shown(home: Home, *words: str, **variables: str) -> str:
    used = {"rows": [{"key": "claude-sonnet-4-5"}, {"key": None}]}
    with fake_daemon(home.root / "burnd.sock", pricing__show=answer, summary=used):
        done = run(home, "pricing", "show", *words, **variables)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_a_price(home: Home) -> None:
    day = SHIPPED.as_of
    assert shown(home, "claude-sonnet-4-5").splitlines() == [
        f"claude-sonnet-4-5 is priced as anthropic claude-sonnet-4-5, by the list shipped with burnd of {day}.",
        "",
        "USD per million tokens:",
        "  context   input  output  reasoning  cache read  5-min write  1-hour write",
        "  any size     $3     $15        $15       $0.30        $3.75            $6",
        "",
        "Fast mode costs twice that. A web search costs $0.01.",
    ]


def test_a_model_is_found_by_the_name_that_reports_show(home: Home) -> None:
    assert shown(home, "sonnet-4-5") == shown(home, "claude-sonnet-4-5")


def test_tiers_and_retirement(home: Home) -> None:
    tiers = [line.split()[0:3] for line in shown(home, "gemini-2.5-pro").splitlines() if line.startswith("  ")]
    assert tiers[1:] == [["up", "to", "200,000"], ["over", "200,000", "$2.50"]]
    assert "not sold any more; its last price, seen on 2026-06-09" in shown(home, "claude-3-opus-20240229")


def test_a_fetched_list(home: Home) -> None:
    assert "by the fetched list of 2026-11-01." in shown(home, "claude-opus-5").replace("\n", " ")


def test_a_missing_price_is_explained(home: Home) -> None:
    """Why, where it was looked for, what is near, and what to do."""
    said = shown(home, "claude-haiku-5-5").replace("\n", " ")
    assert said.startswith("claude-haiku-5-5 is unpriced: no list has a model of this name.")
    assert "Looked for at: anthropic." in said
    assert "Near names, which are other models: " in said
    assert "$0" not in said
    sold = shown(home, "gpt-oss-120b").replace("\n", " ")
    assert "Listed by: " in sold
    assert "add --provider" in sold


def test_a_provider_is_passed_on(home: Home) -> None:
    assert "priced as opencode claude-sonnet-4-5" in shown(home, "claude-sonnet-4-5", "--provider", "opencode")


def test_json_is_the_answer_of_the_socket(home: Home) -> None:
    assert json.loads(shown(home, "claude-opus-5", "--json"))["found"]["list"] == "fetched"


def test_a_name_cannot_steer_the_terminal(home: Home) -> None:
    with fake_daemon(home.root / "burnd.sock", pricing__show=answer, summary={"rows": []}):
        text = seen(home, "pricing", "show", "\x1b]0;evil\x07claude").text
    assert "\x1b]0" not in text
    assert "\x07" not in text


def test_update_from_a_file_needs_no_daemon(home: Home, folder: Path) -> None:
    listing = folder / "list.json"
    listing.write_bytes(OWN)
    done = run(home, "pricing", "update", "--from", str(listing))
    assert (done.returncode, done.stderr) == (0, "")
    assert "1 with another price" in done.stdout
    assert PriceTable.load(str(home.prices)).find("claude-opus-5") is not None


def test_a_bad_list_is_refused_and_nothing_changed(home: Home, folder: Path) -> None:
    listing = folder / "list.json"
    listing.write_text("<html>")
    done = run(home, "pricing", "update", "--from", str(listing))
    assert (done.returncode, done.stdout) == (1, "")
    assert "is not JSON" in done.stderr
    assert not home.prices.exists()


def test_a_list_that_is_not_there(home: Home) -> None:
    done = run(home, "pricing", "update", "--from", "no-such-file.json")
    assert (done.returncode, done.stderr) == (
        1,
        "burnctl: no-such-file.json: cannot be read: No such file or directory\n",
    )


def test_no_action_is_a_mistake_of_usage(home: Home) -> None:
    assert run(home, "pricing").returncode == 2
    assert run(home, "pricing", "show").returncode == 2


def test_a_broken_file_is_noted_beside_the_price(home: Home) -> None:
    """A price from a list that was removed is marked as such."""

    def broken(params: dict[str, Any], talk: FakeConnection) -> dict[str, Any]:
        return answer(params, talk) | {"pricesProblem": "models.dev.json: is not JSON"}

    with fake_daemon(home.root / "burnd.sock", pricing__show=broken):
        assert run(home, "pricing", "show", "claude-opus-5").stdout.endswith(
            "\nPrices: models.dev.json: is not JSON.\n"
        )


def test_a_price_fits_a_narrow_screen(home: Home) -> None:
    """Columns that do not fit are named."""
    narrow = shown(home, "claude-sonnet-4-5", COLUMNS="40")
    assert max(map(len, narrow.splitlines())) <= 40
    assert "No room for: cache read" in " ".join(narrow.split())
