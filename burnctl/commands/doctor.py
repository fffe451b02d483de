"""`burnctl doctor`: checks everything burnd depends on, with advice."""

from __future__ import annotations

import os
import time

from burnctl import flags
from burnctl.client import Client
from burnctl.errors import BurnctlError
from burnctl.output import as_json
from burnctl.progress import waiting
from burnctl.render.screen import Screen
from burnctl.render.text import clean, pad, wrap

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping
    from typing import Any

    from burnctl.doctor import CheckResult
    from burnd.paths import Home

HELP = (
    "checks the home and its permissions, the settings, the socket, the daemon, the agents' logs and how long they are "
    "kept, watch limits, prices, disk, clock, service and spool, and says what to do. Changes nothing and starts "
    "nothing; exit code 1 when something is broken"
)

_USUAL_RESERVE = 20 << 20


def add_arguments(parser: argparse.ArgumentParser) -> None:
    flags.add(parser, flags.Output, only=("json", "no_color"))


def run(options: argparse.Namespace) -> int:
    from burnctl.doctor import FAIL

    with waiting.during("checking"):
        findings = examine()
    failed = any(finding.level == FAIL for finding in findings)
    if options.json:
        from burnd import protocol

        as_json({"version": protocol.VERSION, "ok": not failed, "checks": [f.as_dict() for f in findings]})
    else:
        screen = Screen.of(options)
        screen.show(report(findings, screen))
    return 1 if failed else 0


def examine() -> list[CheckResult]:
    from burnctl import doctor
    from burnd.paths import find_home, user_home

    try:
        home = find_home()
    except ValueError as error:
        raise BurnctlError(str(error)) from None
    now = time.time()
    settings = _settings()
    client = Client(timeout=5)
    status, answers = doctor.ask(client)
    findings = [
        doctor.folder(home),
        doctor.files(home),
        doctor.file_system(home),
        doctor.disk(home, _reserve(status, settings)),
        doctor.settings(settings),
        doctor.socket(client.socket_path),
        answers,
        doctor.versions(status),
    ]
    if status is not None:
        findings += [*doctor.degraded(status), *doctor.left_alone(status), doctor.prices(client)]
        findings += doctor.pushes(client)
    findings += doctor.logs(os.environ, str(user_home()), _values(settings))
    findings += [
        doctor.service(),
        doctor.spool(home, now, running=status is not None),
        doctor.leftovers(home),
        doctor.clock(now, _written(home)),
    ]
    return findings


def _settings() -> dict[str, Any] | BurnctlError:
    from burnctl.daemon_process import ask_burnd

    try:
        return ask_burnd("show")
    except BurnctlError as error:
        return error


def _values(settings: Any) -> dict[str, Any]:
    """Each setting's value by its key; empty if the settings cannot be read."""
    return {s["key"]: s["value"] for s in settings["settings"]} if isinstance(settings, dict) else {}


def _reserve(status: Mapping[str, Any] | None, settings: Any) -> int:
    """The disk space that burnd leaves free."""
    reserve = (status or {}).get("disk", {}).get("reserve")
    if reserve is None:
        reserve = _values(settings).get("disk.reserve")
    return reserve if isinstance(reserve, int) else _USUAL_RESERVE


def _written(home: Home) -> float | None:
    try:
        return os.stat(home.ledger).st_mtime
    except OSError:
        return None


_MARKS = {"ok": ("ok", "green"), "warn": ("warn", "yellow"), "fail": ("FAIL", "bold red")}


def report(findings: list[CheckResult], screen: Screen) -> str:
    wide = max(len(finding.name) for finding in findings)
    margin = " " * (wide + 8)
    lines = []
    for finding in findings:
        mark, style = _MARKS[finding.level]
        head = f"{screen.paint(pad(mark, 4), style)}  {pad(clean(finding.name), wide)}  "
        room = max(screen.width - len(margin), 20)
        first, *rest = wrap(clean(finding.says), room)
        lines += [head + first, *(margin + line for line in rest)]
        if finding.remedy:
            remedy = wrap(clean(finding.remedy), room - 2)
            lines += [margin + screen.paint(("→ " if n == 0 else "  ") + line, "cyan") for n, line in enumerate(remedy)]
    failed, warned = (sum(finding.level == level for finding in findings) for level in ("fail", "warn"))
    parts = [f"{failed} broken" if failed else "", f"{warned} worth a look" if warned else ""]
    return "\n".join([*lines, "", ", ".join(filter(None, parts)) or "all is well"])
