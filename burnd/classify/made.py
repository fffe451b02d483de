"""Folders whose files nobody writes by hand: tools make them, or install them."""

from __future__ import annotations

from typing import Final

_MADE: Final = frozenset(
    (
        ".cache",
        ".git",
        ".next",
        ".nuxt",
        ".tox",
        ".venv",
        "__pycache__",
        "build",
        "coverage",
        "dist",
        "node_modules",
        "site-packages",
        "venv",
    )
)


def made_folder(path: str) -> str | None:
    """The outermost such folder that a file is in."""
    parts = path.split("/")
    found = next((n for n, part in enumerate(parts[:-1]) if part in _MADE), None)
    return "/".join(parts[: found + 1]) if found is not None else None
