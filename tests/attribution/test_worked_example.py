"""The example of docs/attribution.md, to the token and to the dollar."""

from __future__ import annotations

from decimal import Decimal

from burnd.pricing.cost import cost, price_of, usd
from tests.attribution.scenes import only, paid, worked_example

PRICE = price_of(
    "anthropic", "m", {"input": "3", "output": "15", "cache_read": "0.30", "cache_write": "3.75"}, is_anthropic=True
)


def dollars(tokens: tuple[int, ...]) -> Decimal:
    return usd(cost(tokens[:6], PRICE.rates()))  # type: ignore[arg-type]


def test_a_result_costs_its_entry_and_its_rides() -> None:
    """8,000 tokens that enter at $3 a million and ride 20 turns at $0.30 cost 2.4 + 4.8 cents, exactly."""
    explained = worked_example().explained()
    read = only(explained, "call")
    assert (read.tool, read.target, read.rides, read.reentries) == ("Read", "/p/a.py", 20, 0)
    assert read.entered == 60 + 8_000
    arguments = (60, 60, 0, 20 * 60, 0, 0)
    the_result = tuple(whole - part for whole, part in zip(paid(read)[:6], arguments, strict=True))
    assert the_result == (8_000, 0, 0, 160_000, 0, 0)
    assert dollars(the_result) == Decimal("0.024") + Decimal("0.048")


def test_the_causes_are_the_bill() -> None:
    """Prefix, prompts, answers and the call share the whole bill, and nothing is left unexplained."""
    scene = worked_example()
    explained = scene.explained()
    assert {cause.kind for cause in explained.causes} == {"prefix", "prompt", "answer", "call"}
    billed = [(t.usage.input, t.usage.output, 0, t.usage.cache_read, 0, 0) for t in scene.turns]
    total = sum(dollars(one) for one in billed)
    assert sum(dollars(paid(cause)) for cause in explained.causes) == total
    assert only(explained, "prefix").entered == 20_000


def test_one_turn_opened() -> None:
    """The anatomy of a turn lists its context in order, and what each block paid there."""
    scene = worked_example()
    parts = scene.opened("main-2")
    assert [(part.cause.kind, part.tokens) for part in parts] == [
        ("prefix", 20_000),
        ("prompt", 108),
        ("call", 8_060),
        ("answer", 100),
        ("prompt", 50),
        ("answer", 0),
    ]
    assert [part.spent.cache_read for part in parts[:3]] == [20_000, 108, 8_060]
    assert [part.spent.input for part in parts[3:5]] == [100, 50]
    assert parts[5].spent.output == 100
