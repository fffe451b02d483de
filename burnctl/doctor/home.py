"""Checks of the home: its owner, permissions, file system, free disk and spool."""

from __future__ import annotations

import os
import stat

from burnctl.doctor import CheckResult, fail, ok, warn
from burnctl.render.numbers import duration, size

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from burnd.paths import Home

_LITTLE = 1_000_000_000  # bytes of free disk
_NETWORK = {"nfs", "nfs4", "cifs", "smb3", "smbfs", "afpfs", "9p", "fuse.sshfs", "webdav"}
_MOST_FILES = 5000  # as many sidecars as after years
_STALE_S = 60  # the daemon reads the spool every 5 s


def folder(home: Home) -> CheckResult:
    """The home is ours and private."""
    name = "home"
    try:
        facts = os.stat(home.root)
    except FileNotFoundError:
        return ok(name, f"{home.root} does not exist yet; burnd creates it at its first start")
    except OSError as error:
        return fail(name, f"{home.root}: {error.strerror}", "set RELAYBURN_HOME to a folder of yours")
    if not stat.S_ISDIR(facts.st_mode):
        return fail(name, f"{home.root} is not a folder", "move it away, or set RELAYBURN_HOME to another place")
    if facts.st_uid != os.geteuid():
        return fail(
            name, f"{home.root} belongs to uid {facts.st_uid}, not to you", "set RELAYBURN_HOME to a folder of yours"
        )
    if facts.st_mode & 0o077:
        return fail(
            name, f"{home.root} is open to others ({stat.S_IMODE(facts.st_mode):04o})", f"chmod 700 {home.root}"
        )
    if not os.access(home.root, os.W_OK | os.X_OK):
        return fail(name, f"{home.root} cannot be written", f"chmod 700 {home.root}")
    return ok(name, f"{home.root} is yours alone")


def files(home: Home) -> CheckResult:
    """Only its owner can read the files in it."""
    open_ones = [path for path, mode in _entries(home) if mode & 0o077]
    if not open_ones:
        return ok("files", "everything in it is readable by you alone")
    names = os.path.relpath(open_ones[0], home.root)
    more = f" and {len(open_ones) - 1} more" if len(open_ones) > 1 else ""
    return warn("files", f"others may read {names}{more}", f"chmod -R go-rwx {home.root}")


def _entries(home: Home) -> Iterator[tuple[str, int]]:
    paths = 0
    for folder_path, folders, names in os.walk(home.root):
        for name in (*folders, *names):
            path = os.path.join(folder_path, name)
            try:
                facts = os.lstat(path)
            except OSError:
                continue
            if not stat.S_ISLNK(facts.st_mode):
                yield path, stat.S_IMODE(facts.st_mode)
            paths += 1
            if paths >= _MOST_FILES:
                return


def file_system(home: Home, mounts: str = "/proc/mounts") -> CheckResult:
    """Locks and SQLite are unreliable on a network file system."""
    kind = _kind_of(os.path.realpath(home.root), mounts)
    if kind in _NETWORK:
        return warn(
            "file system",
            f"the home is on {kind}, where locks and SQLite may not hold",
            "set RELAYBURN_HOME to a folder on a local disk",
        )
    return ok("file system", f"the home is on a local disk{f' ({kind})' if kind else ''}")


def _kind_of(path: str, mounts: str) -> str:
    best, kind = "", ""
    try:
        with open(mounts, encoding="utf-8", errors="replace") as lines:
            for line in lines:
                where, its_kind = line.split()[1:3]
                inside = path == where or path.startswith(where.rstrip("/") + "/")
                if inside and len(where) >= len(best):
                    best, kind = where, its_kind
    except (OSError, ValueError):
        return ""
    return kind


def disk(home: Home, reserve: int) -> CheckResult:
    """Free disk beyond the reserve."""
    place = home.root
    while not place.exists() and place != place.parent:
        place = place.parent
    try:
        facts = os.statvfs(place)
    except OSError as error:
        return warn("disk", f"{place}: {error.strerror}")
    free = facts.f_bavail * facts.f_frsize
    if free < reserve:
        return fail(
            "disk",
            f"{size(free)} free and {size(reserve)} reserved: nothing can be recorded",
            "free some space; burnd then continues",
        )
    if free < _LITTLE:
        return warn(
            "disk", f"only {size(free)} free", "free some space, for example: burnctl content prune --older-than 30d"
        )
    return ok("disk", f"{size(free)} free")


def spool(home: Home, now: float, *, running: bool) -> CheckResult:
    """Spooled stamps are recorded."""
    try:
        waiting = [entry for entry in os.scandir(home.spool) if entry.name.endswith(".json")]
        oldest = min((entry.stat().st_mtime for entry in waiting), default=now)
    except FileNotFoundError:
        return ok("spool", "nothing waits for burnd")
    except OSError as error:
        return fail("spool", f"{home.spool}: {error.strerror}", f"chmod 700 {home.spool}")
    bad = _count(home.spool / "bad")
    if bad:
        return warn(
            "spool", f"{bad} that burnd could not use are in {home.spool / 'bad'}", "look at them, then delete them"
        )
    if not waiting:
        return ok("spool", "nothing waits for burnd")
    says = f"{len(waiting)} {'record waits' if len(waiting) == 1 else 'records wait'}, for {duration(now - oldest)}"
    if not running:
        return warn("spool", says, "they are recorded when burnd starts: burnctl up")
    if now - oldest > _STALE_S:
        return warn("spool", says, "burnd has not recorded them; see: burnctl status")
    return ok("spool", says)


def _count(folder_path: Path) -> int:
    try:
        return len(os.listdir(folder_path))
    except OSError:
        return 0


def leftovers(home: Home) -> CheckResult:
    """Damaged parts that burnd moved away."""
    try:
        names = os.listdir(home.root)
    except OSError:
        names = []
    torn = [name for name in names if name.startswith("ledger.torn-")]
    damaged = home.blobs.with_name(home.blobs.name + ".damaged")
    if damaged.exists():
        return warn(
            "leftovers",
            f"{damaged} was malformed and moved away",
            "restore it from a backup while burnd is stopped, or delete it",
        )
    if torn:
        return ok(
            "leftovers",
            f"{len(torn)} unfinished last lines of the ledger were moved away after crashes; they may be deleted",
        )
    return ok("leftovers", "no damaged parts")
