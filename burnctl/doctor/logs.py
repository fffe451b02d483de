"""Checks of the harnesses' logs: where they are, whether they can be watched, how long they are kept."""

from __future__ import annotations

import os
import time

from burnctl.doctor import CheckResult, ok, warn
from burnctl.render.numbers import number
from burnd.harness.registry import PRODUCTS, all_titles

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_WALK_S = 3.0
_INOTIFY = "/proc/sys/fs/inotify"
_ROOM = 0.8  # of the watch limit: other programs need watches too


class Logs:
    __slots__ = ("files", "folders", "is_whole", "root")

    def __init__(self, root: str) -> None:
        self.root, self.folders, self.files, self.is_whole = root, 0, 0, True

    def says(self) -> str:
        return f"{number(self.files)}{'' if self.is_whole else '+'} session logs below {self.root}"


def examine(env: Mapping[str, str], user_home: str, extra: Mapping[str, Sequence[str]]) -> list[CheckResult]:
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
