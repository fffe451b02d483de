"""Folders of generated or installed files, such as node_modules."""

from __future__ import annotations

from typing import Final

_GENERATED: Final = frozenset(
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


def generated_folder(path: str) -> str | None:
    """The outermost one."""
    parts = path.split("/")
    at = next((n for n, part in enumerate(parts[:-1]) if part in _GENERATED), None)
    return "/".join(parts[: at + 1]) if at is not None else None
