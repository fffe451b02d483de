"""Checks of the daemon: its answer, version, problems, settings, prices and service."""

from __future__ import annotations

import os
import stat
import sys

from burnctl.doctor import CheckResult, fail, ok, warn
from burnctl.errors import BurnctlError, NotRunning, VersionMismatch
from burnctl.render.notes import NO_NAME
from burnctl.render.numbers import duration
from burnd import __version__

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from burnctl.client import Client
    from burnctl.service.launchd import Launchd
    from burnctl.service.systemd import Systemd
    from burnd.contract.results.daemon import Status

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


def settings(said: dict[str, Any] | BurnctlError) -> CheckResult:
    """Whether the settings are valid, and the content mode."""
    if isinstance(said, BurnctlError):
        return fail("settings", said.message, "correct it: burnd does not start with it")
    values = {setting["key"]: setting["value"] for setting in said["settings"]}
    mode, days = values["content.store"], values["content.retention_days"]
    if mode == "full":
        period = "never deleted" if days == "forever" else f"deleted {days} days after a session's last message"
        return ok("settings", f"valid; conversations are {period}")
    return ok("settings", f"valid; content.store is {mode}, so no text of conversations is stored")


def service() -> CheckResult:
    """Whether burnd starts again after a reboot."""
    try:
        state = _manager().state()
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


def _manager() -> Systemd | Launchd:
    if sys.platform == "darwin":
        from burnctl.service.launchd import Launchd

        return Launchd(os.environ)
    from burnctl.service.systemd import Systemd

    return Systemd(os.environ)


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
