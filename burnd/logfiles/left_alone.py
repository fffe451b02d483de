"""What a scan leaves alone below the folders it looks into: which, why, and what a person can do about it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from burnd.index.path_key import path_key
from burnd.logfiles.scanner import MAX_DEPTH
from burnd.recording.source import LeftAlone


class _Reason(NamedTuple):
    why: str
    remedy: str = ""
    is_normal: bool = False


_REASONS = {
    "unreadable folder": _Reason(
        "the folder cannot be read", "let yourself read it (chmod u+rx); it is looked at again by itself"
    ),
    "foreign owner": _Reason(
        "it belongs to another user", "if it is yours, make it so again (chown); logs of others are never read"
    ),
    "too deep": _Reason("the folder lies too deep", f"move it up: logs are looked for {MAX_DEPTH} folders deep"),
    "symlink": _Reason(
        "links are not followed",
        "if it leads to logs, put the folder itself there, or name what it leads to in claude.roots or codex.roots",
        is_normal=True,
    ),
    "not a regular file": _Reason("it is no file that holds lines", is_normal=True),
}


def left_alone(refused: Mapping[str, int], places: Mapping[str, Sequence[str]]) -> Iterator[LeftAlone]:
    """By reason, from how many were met and the paths of the first."""
    for reason, count in refused.items():
        why, remedy, is_normal = _REASONS[reason]
        yield LeftAlone(reason, why, count, tuple(map(path_key, places[reason])), remedy, is_normal)
