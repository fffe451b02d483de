"""The logs of the harnesses on this machine: where they are, whether they can be watched, how long they are kept."""

from __future__ import annotations

import glob
import json
import os
import time

from burnctl.doctor.finding import Finding, ok, warn
from burnctl.render import number

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

_WALK_S = 3.0
_INOTIFY = "/proc/sys/fs/inotify"
_CLEANUP_DAYS = 30  # Claude Code's own default
_SHORT_DAYS = 2
_ROOM = 0.8  # of the watch limit: other programs need watches too


class Found:
    """Transcripts of a harness below one root: how many folders and files."""

    __slots__ = ("files", "folders", "harness", "root", "whole")

    def __init__(self, harness: str, root: str) -> None:
        self.harness, self.root, self.folders, self.files, self.whole = harness, root, 0, 0, True


def claude_folders(env: Mapping[str, str], user_home: str, extra: Sequence[str] = ()) -> list[str]:
    """Where Claude Code may keep its things, as burnd looks for them."""
    configured = env.get("CLAUDE_CONFIG_DIR", "")
    names = [configured, *(configured.split(",") if "," in configured else ()), "~/.claude", "~/.config/claude", *extra]
    full = [os.path.join(user_home, user_home + n[1:] if n[:1] == "~" else n) for n in map(str.strip, names) if n]
    return list(dict.fromkeys(full))


def codex_folders(env: Mapping[str, str], user_home: str, extra: Sequence[str] = ()) -> list[str]:
    """Where Codex may keep its things, as burnd looks for them."""
    names = [name for name in (env.get("CODEX_HOME", ""), "~/.codex", *extra) if name]
    return list(dict.fromkeys(os.path.join(user_home, user_home + n[1:] if n[:1] == "~" else n) for n in names))


def look(claude: Sequence[str], codex: Sequence[str] = ()) -> list[Found]:
    """What is below those folders that exist; gives up after a while where there is very much."""
    found = []
    until = time.monotonic() + _WALK_S
    roots = [("Claude Code", os.path.join(folder, "projects")) for folder in claude]
    roots += [("Codex", os.path.join(folder, name)) for folder in codex for name in ("sessions", "archived_sessions")]
    for harness, root in roots:
        if not os.path.isdir(root):
            continue
        here = Found(harness, root)
        for _, _, names in os.walk(root):
            here.folders += 1
            here.files += sum(name.endswith(".jsonl") for name in names)
            if time.monotonic() > until:
                here.whole = False
                break
        found.append(here)
    return found


def harnesses(found: Sequence[Found], databases: Sequence[str]) -> list[Finding]:
    """Which harnesses there are to read from."""
    findings = [
        ok(here.harness, f"{number(here.files)}{'' if here.whole else '+'} session logs below {here.root}")
        for here in found
    ]
    findings += [ok("opencode", f"database at {path}") for path in databases]
    if findings:
        return findings
    return [
        warn(
            "agent logs",
            "found neither logs of Claude Code or Codex nor an opencode database",
            "start an agent, name other folders with `burnctl config set claude.roots`, or try: burnctl demo",
        )
    ]


def opencode_databases(env: Mapping[str, str], user_home: str) -> list[str]:
    """Where opencode keeps its sessions: one file for each of its channels, or the one it was told."""
    data = os.path.join(env.get("XDG_DATA_HOME") or os.path.join(user_home, ".local", "share"), "opencode")
    named = env.get("OPENCODE_DB")
    paths = [os.path.join(data, named)] if named else []
    paths += sorted(glob.glob(os.path.join(glob.escape(data), "opencode*.db")))
    return [path for path in dict.fromkeys(paths) if os.path.isfile(path)]


def watches(found: Sequence[Found], limits: str = _INOTIFY) -> Finding:
    """Whether there are watches enough for every folder; without, burnd looks at the files every few seconds."""
    folders = sum(here.folders for here in found)
    allowed, instances = _number_in(limits, "max_user_watches"), _number_in(limits, "max_user_instances")
    if allowed is None:
        return ok("watch limit", "this system has none")
    says = f"{number(folders)} folders to watch, {number(allowed)} watches allowed"
    if folders > allowed * _ROOM:
        return warn(
            "watch limit",
            says,
            f"sudo sysctl fs.inotify.max_user_watches={max(524288, 4 * folders)} (and into /etc/sysctl.d to keep it)",
        )
    if instances is not None and instances < 16:
        return warn(
            "watch limit",
            f"only {instances} inotify instances allowed",
            "sudo sysctl fs.inotify.max_user_instances=128",
        )
    return ok("watch limit", says)


def _number_in(folder: str, name: str) -> int | None:
    try:
        with open(os.path.join(folder, name), encoding="ascii") as file:
            return int(file.read())
    except (OSError, ValueError):
        return None


def clean_up(folders: Sequence[str]) -> Finding | None:
    """How long Claude Code keeps its own logs; burnd keeps what it recorded however soon they go."""
    here = next((folder for folder in folders if os.path.isdir(os.path.join(folder, "projects"))), None)
    if here is None:
        return None
    path = os.path.join(here, "settings.json")
    days: Any = _settings(path).get("cleanupPeriodDays", _CLEANUP_DAYS)
    if not isinstance(days, int | float) or days <= 0:
        return ok("log clean-up", f"Claude Code deletes no logs: `cleanupPeriodDays` in {path} is {days}")
    says = f"Claude Code deletes its logs after {'a day' if days == 1 else f'{days:g} days'}"
    if days <= _SHORT_DAYS:
        remedy = f"what is logged while burnd is down may be gone unread; raise `cleanupPeriodDays` in {path}"
        return warn("log clean-up", says, remedy)
    return ok("log clean-up", f"{says}; burnd keeps what it recorded")


def _settings(path: str) -> dict[str, Any]:
    try:
        with open(path, encoding="utf-8") as file:
            said = json.load(file)
    except (OSError, ValueError, RecursionError):
        return {}
    return said if isinstance(said, dict) else {}
