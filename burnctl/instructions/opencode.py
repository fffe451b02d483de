"""What opencode reads at its start: rules of the folder, one's own, and what its configuration names."""

from __future__ import annotations

import os

from burnctl.instructions.files import OPENCODE, read
from burnctl.instructions.folders import in_repository, upwards

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from burnctl.instructions.files import Found

_CONFIGURATIONS = ("opencode.json", "opencode.jsonc")
_MOST_NAMED = 1000
# An unclosed string or comment matches to the end of the file, which keeps the search linear.
_STRING = r'(?s)("(?:\\.|[^"\\])*+"?)'
_STRING_OR_COMMENT = rf"{_STRING}|//[^\n]*|/\*(?:[^*]|\*(?!/))*+(?:\*/)?"
_STRING_OR_LAST_COMMA = rf"{_STRING}|,(?=\s*[}}\]])"


def add(found: Found, folder: str, inner: Iterable[tuple[str, set[str]]], environ: Mapping[str, str]) -> None:
    """Of each kind the first name that is there at all; files of Claude Code where there are none of opencode's."""
    with_claude = not any(
        environ.get(name, "").lower() in ("1", "true")
        for name in ("OPENCODE_DISABLE_CLAUDE_CODE", "OPENCODE_DISABLE_CLAUDE_CODE_PROMPT")
    )
    names = ["AGENTS.md", *["CLAUDE.md"] * with_claude, "CONTEXT.md"]
    folders = (in_repository(folder) or upwards(folder))[::-1]
    homes = _homes(environ)
    own = [os.path.join(home, "AGENTS.md") for home in homes]
    _first(found, own + [os.path.expanduser("~/.claude/CLAUDE.md")] * with_claude, "global")
    for name in names:
        have = [found.add(os.path.join(above, name), OPENCODE, "project") for above in folders]
        if any(have):
            break
    for path in _named(folders, homes, environ):
        found.add(path, OPENCODE, "import")
    for where, there in inner:
        _first(found, [os.path.join(where, name) for name in names if name in there], "nested")


def _first(found: Found, paths: Iterable[str], how: str) -> None:
    for path in paths:
        if found.add(path, OPENCODE, how):
            return


def _homes(environ: Mapping[str, str]) -> list[str]:
    """Where one's own configuration is; what is said in the environment counts first."""
    config = environ.get("XDG_CONFIG_HOME") or os.path.join(os.path.expanduser("~"), ".config")
    chosen = environ.get("OPENCODE_CONFIG_DIR")
    return [*([chosen] if chosen else []), os.path.join(config, "opencode")]


def _named(folders: Sequence[str], homes: Sequence[str], environ: Mapping[str, str]) -> Iterator[str]:
    """The files that `instructions` of any configuration name. What is at an address on the net is left out."""
    places = [os.path.join(above, inner) for above in reversed(folders) for inner in ("", ".opencode")]
    own = [os.path.join(home, "config.json") for home in homes]
    paths = own + [os.path.join(place, name) for place in (*homes, *places) for name in _CONFIGURATIONS]
    for path in [*paths, *filter(None, [environ.get("OPENCODE_CONFIG")])]:
        named = _settings(path).get("instructions")
        for pattern in named if isinstance(named, list) else ():
            if isinstance(pattern, str) and not pattern.startswith(("http://", "https://")):
                yield from _matching(os.path.expanduser(pattern), folders)


def _matching(pattern: str, folders: Sequence[str]) -> Iterator[str]:
    """The files of a pattern: where it says, or in any of the folders that it may be meant from."""
    import glob
    from itertools import islice

    for folder in [""] if os.path.isabs(pattern) else folders:
        matches = glob.iglob(os.path.join(glob.escape(folder), pattern), recursive=True)
        yield from sorted(islice(matches, _MOST_NAMED))


def _settings(path: str) -> dict[str, object]:
    """A configuration, which may have comments, and commas behind the last of a list."""
    import json
    import re

    text = (read(path) or b"").decode("utf-8", "replace")
    plain = re.sub(_STRING_OR_COMMENT, lambda one: one[1] or " ", text)
    strict = re.sub(_STRING_OR_LAST_COMMA, lambda one: one[1] or "", plain)
    try:
        value = json.loads(strict) if strict.strip() else {}
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}
