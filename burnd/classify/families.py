"""Owns the names of the shell families, and the form in which words are listed by family."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

TESTING: Final = "testing"
REVIEW: Final = "review"
GIT: Final = "git"
DEPS: Final = "deps"
FORMAT: Final = "format"
VERIFICATION: Final = "verification"
BUILD_DEPLOY: Final = "build-deploy"


def by_word(listed: Mapping[str | None, str]) -> dict[str, str | None]:
    """Turn `{family: "word word"}` into `{word: family}` in the same order; None lists words of no family."""
    return {word: family for family, words in listed.items() for word in words.split()}


def word_set(listed: str) -> frozenset[str]:
    return frozenset(listed.split())
