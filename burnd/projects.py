"""Which project a folder belongs to: its git remote in canonical form, so that clones and worktrees add up."""

from __future__ import annotations

import configparser
import os
import re
from pathlib import Path

_MOST_REMEMBERED = 10_000
_LARGEST_CONFIG = 1 << 20
_SCP = re.compile(r"(?:[^@/]+@)?([^:/\s]+):(?!//)(.+)")
_URL = re.compile(r"[a-z+]+://(?:[^@/]*@)?([^/:]+)(?::\d+)?/(.+)", re.IGNORECASE)


class ProjectKeys:
    """Looks folders up once. Only `.git` is ever read, and only its config."""

    def __init__(self) -> None:
        self._known: dict[str, str | None] = {}

    def key(self, folder: str) -> str | None:
        """`host/path` of the repository's origin, or None where there is none to be found."""
        if folder not in self._known:
            if len(self._known) >= _MOST_REMEMBERED:
                self._known.clear()
            self._known[folder] = _remote_of(folder)
        return self._known[folder]


def canonical_remote(url: str) -> str | None:
    """`git@github.com:me/it.git` and `https://github.com/me/it` are both `github.com/me/it`."""
    match = _URL.fullmatch(url.strip()) or _SCP.fullmatch(url.strip())
    if match is None:
        return None
    path = match[2].strip("/").removesuffix(".git").strip("/")
    return f"{match[1].lower()}/{path}" if path else None


def _remote_of(folder: str) -> str | None:
    if not os.path.isabs(folder):
        return None
    try:
        config = _config_of(Path(folder))
        return _origin(config) if config is not None else None
    except (OSError, ValueError, configparser.Error):
        return None


def _config_of(folder: Path) -> Path | None:
    """The config of the repository around a folder; a worktree's `.git` is a file that names it."""
    for place in (folder, *folder.parents):
        git = place / ".git"
        if git.is_dir():
            return git / "config"
        if git.is_file():
            target = git.read_text("utf-8").strip().removeprefix("gitdir:").strip()
            return _common_dir(place / target) / "config"
    return None


def _common_dir(git_dir: Path) -> Path:
    common = git_dir / "commondir"
    return git_dir / common.read_text("utf-8").strip() if common.is_file() else git_dir


def _origin(config: Path) -> str | None:
    if config.stat().st_size > _LARGEST_CONFIG:
        return None
    parser = configparser.RawConfigParser(strict=False, allow_no_value=True)
    parser.read_string(config.read_text("utf-8", "replace"))
    remotes = {s: parser.get(s, "url", fallback=None) for s in parser.sections() if s.startswith("remote ")}
    chosen = remotes.get('remote "origin"') or next((url for url in remotes.values() if url), None)
    return canonical_remote(chosen) if chosen else None
