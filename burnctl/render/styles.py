"""Colours with a meaning, always beside a text: money by its weight, cache hit rates, changes, models."""

from __future__ import annotations


def weight(cost: float | None, most: float | None) -> str:
    """Bold for an amount that matters beside the largest one, dim for one that does not."""
    if not cost or not most:
        return "dim"
    share = cost / most
    return "bold" if share >= 0.5 else "dim" if share < 0.02 else ""


def hit_rate(share: float | None) -> str:
    """Green from 80%, yellow from 50%, red below."""
    if share is None:
        return "dim"
    return "green" if share >= 0.8 else "yellow" if share >= 0.5 else "red"


def change(share: float | None) -> str:
    """Red for a growth of 25% or more, green for such a fall."""
    if share is None or abs(share) < 0.25:
        return "dim" if share is None else ""
    return "red" if share > 0 else "green"


def used(percent: float | None) -> str:
    if percent is None:
        return "dim"
    return "red" if percent >= 90 else "yellow" if percent >= 70 else "green"


_MODELS = (
    ("opus", "magenta"),
    ("fable", "magenta"),
    ("sonnet", "cyan"),
    ("haiku", "green"),
    ("gpt", "yellow"),
    ("gemini", "blue"),
)


def model(name: object) -> str:
    """The colour of a model's family."""
    text = str(name or "").lower()
    return next((color for family, color in _MODELS if family in text), "")
