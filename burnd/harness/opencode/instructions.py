"""The instruction files that a session of opencode in a folder begins with."""

from __future__ import annotations

import glob
import os
from itertools import islice

from burnd.harness.instructions import commented_json, in_repository, read, upwards
from burnd.harness.opencode.product import CONFIGURATIONS, config_folders

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from burnd.harness.instructions import InstructionFiles

_MOST_NAMED = 1000


def add(
    files: InstructionFiles, folder: str, inner: Iterable[tuple[str, set[str]]], environ: Mapping[str, str]
) -> None:
    """Adds the global file, those of the project, of its settings and of inner folders.

    Without such a file, opencode reads that of Claude Code.
    """
    with_claude = not any(
        environ.get(name, "").lower() in ("1", "true")
        for name in ("OPENCODE_DISABLE_CLAUDE_CODE", "OPENCODE_DISABLE_CLAUDE_CODE_PROMPT")
    )
    names = ["AGENTS.md", *["CLAUDE.md"] * with_claude, "CONTEXT.md"]
    folders = (in_repository(folder) or upwards(folder))[::-1]
    homes = config_folders(environ, os.path.expanduser("~"))
    own = [os.path.join(home, "AGENTS.md") for home in homes]
    files.add_first(own + [os.path.expanduser("~/.claude/CLAUDE.md")] * with_claude, "global")
    for name in names:
        have = [files.add(os.path.join(above, name), "project") for above in folders]
        if any(have):
            break
    for path in _configured(folders, homes, environ):
        files.add(path, "import")
    for where, there in inner:
        files.add_first([os.path.join(where, name) for name in names if name in there], "nested")


def _configured(folders: Sequence[str], homes: Sequence[str], environ: Mapping[str, str]) -> Iterator[str]:
    """The files that `instructions` of any configuration names, without URLs."""
    places = [os.path.join(above, inner) for above in reversed(folders) for inner in ("", ".opencode")]
    own = [os.path.join(home, "config.json") for home in homes]
    paths = own + [os.path.join(place, name) for place in (*homes, *places) for name in CONFIGURATIONS]
    for path in [*paths, *filter(None, [environ.get("OPENCODE_CONFIG")])]:
        patterns = commented_json((read(path) or b"").decode("utf-8", "replace")).get("instructions")
        for pattern in patterns if isinstance(patterns, list) else ():
            if isinstance(pattern, str) and not pattern.startswith(("http://", "https://")):
                yield from _matching(os.path.expanduser(pattern), folders)


def _matching(pattern: str, folders: Sequence[str]) -> Iterator[str]:
    for folder in [""] if os.path.isabs(pattern) else folders:
        matches = glob.iglob(os.path.join(glob.escape(folder), pattern), recursive=True)
        yield from sorted(islice(matches, _MOST_NAMED))
