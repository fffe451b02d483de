"""Makes burnd/pricing/prices.json, the shipped price snapshot, from a models.dev `api.json`.

    python packaging/make_prices.py api.json --as-of 2026-09-28

A model that the previous snapshot has and the new list lacks keeps its last price and is marked with the
day it was last seen: people still ask what last year's sessions cost. A broken price stops the run and
names the model.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from typing import Any

from burnd.pricing.cost import Card
from burnd.pricing.pricefile import Listing, PriceFileError, read_listing
from burnd.pricing.table import SNAPSHOT

# Makers, and the resellers that coding agents are used with; a user's models.dev.json may hold any other.
PROVIDERS = (
    "alibaba",
    "amazon-bedrock",
    "anthropic",
    "azure",
    "cerebras",
    "cohere",
    "deepseek",
    "fireworks-ai",
    "github-copilot",
    "google",
    "google-vertex",
    "google-vertex-anthropic",
    "groq",
    "llama",
    "minimax",
    "mistral",
    "moonshotai",
    "openai",
    "opencode",
    "openrouter",
    "togetherai",
    "xai",
    "zai",
)


def merge(new: Listing, previous: Listing, last_seen: str) -> Listing:
    """The new list, and from the previous one what is no longer in it."""
    merged: Listing = {}
    for provider in PROVIDERS:
        models = dict(new.get(provider, {}))
        for model, card in previous.get(provider, {}).items():
            if model not in models:
                models[model] = _retired(card, last_seen)
        if models:
            merged[provider] = models
    return merged


def _retired(card: Card, last_seen: str) -> Card:
    retired = card.copy()
    retired.setdefault("retired_after", last_seen)
    return retired


def render(listing: Listing, as_of: str) -> str:
    """One line a model, in order, so that a change of price reads as one line of a diff."""
    groups = []
    for provider in sorted(listing):
        lines = [f"{json.dumps(model)}:{_compact(card)}" for model, card in sorted(listing[provider].items())]
        groups.append(f"{json.dumps(provider)}:{{\n" + ",\n".join(lines) + "\n}")
    return f'{{"asOf":{json.dumps(as_of)},"providers":{{\n' + ",\n".join(groups) + "\n}}\n"


def _compact(card: Card) -> str:
    return json.dumps(card, separators=(",", ":"))


def main(arguments: list[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    with open(options.list, "rb") as file:
        text = file.read()
    try:
        new = read_listing(text, options.list)
    except PriceFileError as error:
        print(error, file=sys.stderr)  # noqa: T201 - a script for developers
        return 1
    as_of = options.as_of or json.loads(text).get("_about", {}).get("as_of")
    if not as_of:
        print("the list does not say its day: give --as-of YYYY-MM-DD", file=sys.stderr)  # noqa: T201
        return 2
    previous = _read_snapshot(options.output)
    listing = merge(new, previous.get("providers", {}), previous.get("asOf", as_of))
    with open(options.output, "w", encoding="utf-8") as file:
        file.write(render(listing, as_of))
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="Make the shipped price snapshot from a models.dev api.json.")
    parser.add_argument("list", help="the api.json to read")
    parser.add_argument("--as-of", help="the day the list was published, YYYY-MM-DD")
    parser.add_argument("--output", default=SNAPSHOT, help="the snapshot to renew")
    return parser


def _read_snapshot(path: str) -> dict[str, Any]:
    if not os.path.exists(path):
        return {}
    with open(path, "rb") as file:
        snapshot: dict[str, Any] = json.loads(file.read())
    return snapshot


if __name__ == "__main__":
    sys.exit(main())
