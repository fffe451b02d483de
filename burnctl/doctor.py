"""The checks of `burnctl doctor`: home, daemon and logs. Each has a level, a sentence and a remedy."""

from __future__ import annotations

import os
import stat
import time

from burnctl.errors import BurnctlError, NotRunning, VersionMismatch
from burnctl.render.notes import NO_NAME
from burnctl.render.numbers import counted, duration, number, size
from burnd import __version__
from burnd.harness.registry import PRODUCTS, all_titles

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path
    from typing import Any

    from burnctl.client import Client
    from burnd.contract.results.daemon import Status
    from burnd.paths import Home

OK, WARN, FAIL = "ok", "warn", "fail"


class CheckResult:
    """A line of the report. `remedy` is empty if there is nothing to do."""

    __slots__ = ("level", "name", "remedy", "says")

    def __init__(self, name: str, level: str, says: str, remedy: str = "") -> None:
        self.name, self.level, self.says, self.remedy = name, level, says, remedy

    def as_dict(self) -> dict[str, str]:
        return {"name": self.name, "level": self.level, "says": self.says, "remedy": self.remedy}


def ok(name: str, says: str, remedy: str = "") -> CheckResult:
    return CheckResult(name, OK, says, remedy)


def warn(name: str, says: str, remedy: str = "") -> CheckResult:
    return CheckResult(name, WARN, says, remedy)


def fail(name: str, says: str, remedy: str = "") -> CheckResult:
    return CheckResult(name, FAIL, says, remedy)


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


_DAY_S = 86400
_NEVER_SET_S = 1_735_689_600  # 2025: an earlier clock was never set


def socket(path: str) -> CheckResult:
    """The socket exists, is ours and is private."""
    try:
        facts = os.lstat(path)
    except FileNotFoundError:
        return ok("socket", f"{path} is free")
    except OSError as error:
        return fail("socket", f"{path}: {error.strerror}", "set BURND_SOCKET to a path in a folder of yours")
    if not stat.S_ISSOCK(facts.st_mode):
        return fail("socket", f"{path} exists and is not a socket, so burnd cannot listen", "move it away")
    if facts.st_uid != os.geteuid():
        return fail("socket", f"{path} belongs to uid {facts.st_uid}, not to you", "set BURND_SOCKET to another path")
    if facts.st_mode & 0o077:
        return warn("socket", f"{path} is open to others ({stat.S_IMODE(facts.st_mode):04o})", f"chmod 600 {path}")
    return ok("socket", f"{path} is yours alone")


def ask(client: Client) -> tuple[Status | None, CheckResult]:
    """The status of burnd, and whether it answered."""
    try:
        status = client.status()
    except NotRunning as error:
        return None, fail("burnd", error.message, error.hint)
    except VersionMismatch as error:
        return None, fail("burnd", error.message, error.hint)
    except BurnctlError as error:
        return None, fail("burnd", error.message, error.hint or "look at its log, or: burnctl restart")
    daemon: Mapping[str, Any] = status.get("daemon") or {}
    since = daemon.get("uptimeMs")
    for_how_long = f", for {duration(since / 1000)}" if since is not None else ""
    return status, ok("burnd", f"answers (pid {daemon.get('pid', '?')}{for_how_long})")


def versions(status: Mapping[str, Any] | None) -> CheckResult:
    theirs = ((status or {}).get("daemon") or {}).get("version")
    if theirs is None or theirs == __version__:
        return ok("version", f"burnctl {__version__}" + (f", burnd {theirs}" if theirs else ""))
    return warn("version", f"burnctl is {__version__}, the running burnd {theirs}", "burnctl restart")


def degraded(status: Mapping[str, Any]) -> list[CheckResult]:
    return [
        warn("degraded", str(item.get("what") or ""), str(item.get("remedy") or ""))
        for item in status.get("degraded") or []
    ]


def left_alone(status: Mapping[str, Any]) -> list[CheckResult]:
    """Files that burnd skips on purpose."""
    return [
        ok("left alone", f"{source.get('name')}: {item['paths'][0]}: {item.get('why')}", str(item["remedy"]))
        for source in status.get("sources") or []
        for item in source.get("leftAlone") or []
        if item.get("isNormal") and item.get("remedy") and item.get("paths")
    ]


def prices(client: Client) -> CheckResult:
    try:
        answer = client.summary()
    except BurnctlError as error:
        return warn("prices", f"are unknown: {error.message}", error.hint)
    models, stated = answer.get("unpricedModels") or [], answer.get("harnessModels") or []
    if day := answer.get("stalePrices"):
        names = _named([*models, *stated])
        return warn("prices", f"the list of {day} is more than 60 days old and lacks {names}", "burnctl pricing update")
    if not models:
        by_harness = f"; the harness's own figure is used for {_named(stated)}" if stated else ""
        return ok("prices", f"every model that was used has a price{by_harness}")
    return warn(
        "prices",
        f"no price is known for {_named(models)}",
        "burnctl pricing update, or put a price into models.dev.json in the home",
    )


def pushes(client: Client) -> list[CheckResult]:
    """Each push target: its last error, and changes that wait for more than a day."""
    from burnctl.push.state import behind, seconds_since

    results = []
    for one in behind(client):
        target, left, age = one["target"], one["sessionsBehind"], seconds_since(one["at"])
        last = "never done" if age is None else f"{duration(age)} ago"
        says = f"to {target}: {last}" + (f", {left:,} changed sessions are not there yet" if left else "")
        if one["error"]:
            results.append(warn("push", f"{says}; failed: {one['error']}", f"try it: burnctl push {target}"))
        elif left and (age is None or age > _DAY_S):
            remedy = f"run it: burnctl push {target}, or as a service: burnctl service install --push {target}"
            results.append(warn("push", says, remedy))
        else:
            results.append(ok("push", says))
    return results


def _named(models: list[Any]) -> str:
    names = ", ".join(
        str(model.get("model", model) if isinstance(model, dict) else model) or NO_NAME for model in models[:5]
    )
    return names + (f" and {len(models) - 5} more" if len(models) > 5 else "")


def settings(answer: dict[str, Any] | BurnctlError) -> CheckResult:
    """Whether the settings are valid, and the content mode."""
    if isinstance(answer, BurnctlError):
        return fail("settings", answer.message, "correct it: burnd does not start with it")
    values = {setting["key"]: setting["value"] for setting in answer["settings"]}
    mode, days = values["content.store"], values["content.retention_days"]
    if mode == "full":
        period = "never deleted" if days == "forever" else f"deleted {days} days after a session's last message"
        return ok("settings", f"valid; conversations are {period}")
    return ok("settings", f"valid; content.store is {mode}, so no text of conversations is stored")


def service() -> CheckResult:
    """Whether burnd starts again after a reboot."""
    from burnctl.service.managers import of_this_system

    try:
        state = of_this_system().state()
    except BurnctlError as error:
        return ok("service", f"{error.message}, so nothing starts burnd at login", error.hint)
    if not state["installed"]:
        says = "not installed: after a reboot nothing is recorded until burnd is started"
        return warn("service", says, "burnctl service install")
    if not state["running"]:
        return warn(
            "service", f"installed, but {state['manager']} does not run it", "burnctl up, or see: burnctl service logs"
        )
    return ok("service", f"{state['manager']} runs it (pid {state['pid']})")


def clock(now: float, newest: float | None) -> CheckResult:
    """Checks the clock, by which content is pruned."""
    if now < _NEVER_SET_S:
        return fail("clock", "is not set: it shows a time before 2025", "set the clock; content is pruned by it")
    if newest is not None and newest > now + _DAY_S:
        return warn(
            "clock",
            f"the ledger was written {duration(newest - now)} from now",
            "set the clock, unless it was wrong then",
        )
    return ok("clock", "plausible")


_WALK_S = 3.0
_INOTIFY = "/proc/sys/fs/inotify"
_ROOM = 0.8  # of the watch limit: other programs need watches too


class Logs:
    __slots__ = ("files", "folders", "is_whole", "root")

    def __init__(self, root: str) -> None:
        self.root, self.folders, self.files, self.is_whole = root, 0, 0, True

    def says(self) -> str:
        files = counted(self.files, "session log") if self.is_whole else f"{self.files:,}+ session logs"
        return f"{files} below {self.root}"


def logs(env: Mapping[str, str], user_home: str, extra: Mapping[str, Sequence[str]]) -> list[CheckResult]:
    """The logs of every product, their watches, and the product's own checks.

    `extra` are the folders or databases that the settings add, by key.
    """
    findings, folders, checks = [], [], []
    until = time.monotonic() + _WALK_S
    for product in PRODUCTS:
        more = extra.get(product.roots_key, ())
        paths = product.logs(env, user_home, more)
        if product.has_databases:
            findings += [ok(product.title, f"database at {path}") for path in paths if os.path.isfile(path)]
        else:
            results = [count(path, product.suffix, until) for path in paths if os.path.isdir(path)]
            findings += [ok(product.title, here.says()) for here in results]
            folders += results
        checks += [
            CheckResult(c.name, c.level, c.says, c.remedy) for c in product.checks(product.homes(env, user_home, more))
        ]
    if not findings:
        setting = f"`burnctl config set {PRODUCTS[0].roots_key}`"
        advice = f"start an agent, name other folders with {setting}, or try: burnctl demo"
        findings = [warn("agent logs", f"found no logs of {all_titles('or')}", advice)]
    return [*findings, watches(folders), *checks]


def count(root: str, suffix: str, until: float) -> Logs:
    """The folders and log files below a folder; gives up at `until`."""
    logs = Logs(root)
    for _, _, names in os.walk(root):
        logs.folders += 1
        logs.files += sum(name.endswith(suffix) for name in names)
        if time.monotonic() > until:
            logs.is_whole = False
            break
    return logs


def watches(found: Sequence[Logs], limits: str = _INOTIFY) -> CheckResult:
    """Whether every folder can have a watch; without, burnd scans every few seconds."""
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
