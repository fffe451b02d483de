"""`burnctl guard`: stops sessions that reach a limit, at their next tool call."""

from __future__ import annotations

import os
import sys

from burnctl import flags
from burnctl.client import Client
from burnctl.daemon import reach
from burnctl.errors import BurnctlError, NotRunning
from burnctl.output import as_json
from burnctl.render.names import short_id, tilde
from burnctl.render.numbers import clock, date, money, number
from burnctl.render.screen import Screen
from burnctl.render.tables import Column, table
from burnctl.render.text import clean
from burnctl.session_choice import whole_id
from burnd.contract import Params, param
from burnd.contract.daemon import AllowParams, GuardStatusParams

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse

    from burnd.contract.results.daemon import GuardLimit, GuardStatus
    from burnd.harness.product import Product

HELP = (
    "stops a session that reaches a limit of yours: dollars, tokens, subagents or repeated failing calls, by session, "
    "day or 5-hour window. A hook in the harness asks burnd before each tool call; a denied call comes back to the "
    "agent with the reason. Without burnd, or without an answer in half a second, every call is allowed"
)
EXAMPLES = (
    "burnctl config set guard.session_usd 5",
    "burnctl guard install",
    "burnctl guard status",
    "burnctl guard allow 0f9c1d2e --for 1h",
    "burnctl guard off",
)
_NO_LIMITS = "no limit is set; set one with: burnctl config set guard.session_usd 5"


class GuardFlags(Params):
    source: str | None = param(default=None, help="only this harness; by default all that are found", kind="source")


class AllowFlags(Params):
    seconds: int | None = param(
        default=None, help="for how long: 30m, 2h, 1d (for good)", kind="seconds", flag="--for", metavar="TIME"
    )


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    install = actions.add_parser("install", help="add the hook to the settings of your harnesses")
    install.description = "adds a hook that asks burnd before each tool call. Everything else in the settings stays"
    uninstall = actions.add_parser("uninstall", help="remove the hook")
    uninstall.description = "removes the hook that `guard install` added, and nothing else"
    for action in (install, uninstall):
        flags.add(action, GuardFlags)
    status = actions.add_parser("status", help="show the limits, what is used of them, and which sessions were stopped")
    status.description = "shows the limits and what is used of them, where the hook is installed, and stopped sessions"
    flags.add(status, GuardStatusParams)
    flags.reading(status)
    allow = actions.add_parser("allow", help="let a session continue whatever the limits are")
    allow.description = "lets a session continue, with all that it started, whatever the limits are"
    flags.place(allow, AllowParams, "session")
    flags.add(allow, AllowFlags)
    flags.add(allow, flags.Output, only=("json", "no_start"))
    for name, text in (("off", "stop nothing until `guard on`"), ("on", "stop sessions again")):
        action = actions.add_parser(name, help=text)
        action.description = text
        flags.add(action, flags.Output, only=("json", "no_start"))


def run(options: argparse.Namespace) -> int:
    if options.action in ("install", "uninstall"):
        return _install(options) if options.action == "install" else _uninstall(options)
    client = reach(options)
    if options.action == "status":
        filters = flags.given(options, GuardStatusParams)
        status = client.guard_status(**filters | {"session": whole_id(client, options.session)})
        if options.json:
            return as_json(status)
        screen = Screen.of(options)
        screen.show("\n".join(_lines(status, screen)))
        return 0
    if options.action == "allow":
        allowed = client.guard_allow(options.session, seconds=options.seconds)
        until = f" until {_date(allowed['until'])}" if allowed["until"] else ""
        return as_json(allowed) if options.json else _print(f"{allowed['sessionId'][:8]} may continue{until}")
    switched = client.guard_switch(on=options.action == "on")
    text = "the guard is on" if switched["on"] else "the guard is off: nothing is stopped until `burnctl guard on`"
    return as_json(switched) if options.json else _print(text)


def _install(options: argparse.Namespace) -> int:
    from burnctl import guard_hooks

    for product in _chosen(options):
        path = guard_hooks.file_of(product, os.environ, _user_home())
        guard_hooks.install(product, path, _socket())
        print(f"{product.title} asks burnd before each tool call, from its next session on: {path}")
        if product.hooks_note:
            print(product.hooks_note)
    try:
        with Client() as client:
            if not client.guard_status()["limits"]:
                print(_NO_LIMITS)
    except NotRunning:
        print("burnd is not running: until it runs, every call is allowed (burnctl up)")
    except BurnctlError as error:
        print(f"the limits are unknown: {error}")
    return 0


def _uninstall(options: argparse.Namespace) -> int:
    from burnctl import guard_hooks

    for product in _chosen(options):
        path = guard_hooks.file_of(product, os.environ, _user_home())
        if guard_hooks.uninstall(product, path):
            print(f"removed the hook of {product.title} from {path}")
        else:
            print(f"{product.title} has no hook of burnd in {path}")
    return 0


def _chosen(options: argparse.Namespace) -> list[Product]:
    """The harness of the flag, else all on this machine."""
    from burnctl import guard_hooks

    able = guard_hooks.products()
    if options.source is not None:
        products = [product for product in able if product.source == options.source]
        if not products:
            names = ", ".join(product.source for product in able)
            raise BurnctlError(f"{options.source} has no hooks before tool calls", f"choose one of: {names}")
        return products
    products = [product for product in able if guard_hooks.is_present(product, os.environ, _user_home())]
    if not products:
        titles = ", ".join(product.title for product in able)
        raise BurnctlError(f"none of {titles} was found", "name one with --source")
    return products


def _lines(answer: GuardStatus, screen: Screen) -> list[str]:
    from burnctl import guard_hooks

    switch = "on" if answer["on"] else screen.paint("off: nothing is stopped until `burnctl guard on`", "yellow")
    lines = [f"The guard is {switch}."]
    for product in guard_hooks.products():
        path = guard_hooks.file_of(product, os.environ, _user_home())
        if state := guard_hooks.state(product, path, _socket()):
            lines.append(f"{product.title} {_HOOK_STATES[state]} ({tilde(path)}).")
    if len(lines) == 1:
        lines.append("No harness asks it yet; add the hook with: burnctl guard install")
    lines.append("")
    if not answer["limits"]:
        return [*lines, _NO_LIMITS[0].upper() + _NO_LIMITS[1:]]
    rows = [(_NAMES[one["scope"]], _amount(one, one["limit"]), _amount(one, one["used"])) for one in answer["limits"]]
    columns = (Column("limit"), Column("stops at", "right"), Column("used", "right"))
    lines.append(table(columns, rows, screen))
    if answer["denials"]:
        lines += ["", "Stopped since burnd started:"]
    for denial in reversed(answer["denials"]):
        lines.append(f"  {_date(denial['ts'])}  {short_id(denial['session'])}  {clean(denial['reason'])}")
    if answer["allowed"]:
        lines += ["", "Allowed whatever the limits are:"]
    for one in answer["allowed"]:
        lines.append(
            f"  {short_id(one['session'])}  " + (f"until {_date(one['until'])}" if one["until"] else "for good")
        )
    return lines


_HOOK_STATES = {
    "on": "asks before each tool call",
    "off": "has the hook, but `disableAllHooks` turns it off",
    "other": "has a hook that asks another burnd or is of an older release; renew it with: burnctl guard install",
}
_NAMES = {"session": "a session", "day": "today", "window": "the 5-hour window"}


def _amount(one: GuardLimit, value: float | None) -> str:
    if value is None:
        return "-"
    if one["unit"] == "usd":
        return money(value)
    return f"{number(value)} tokens" if one["unit"] == "tokens" else f"{value:.0f} {_UNITS[one['unit']]}"


_UNITS = {"subagents": "subagents", "failures": "equal failures"}


def _date(iso: str) -> str:
    return f"{date(iso)} {clock(iso)}"


def _socket() -> str:
    from burnd.paths import home_folder, socket_file

    return str(socket_file(home_folder()))


def _user_home() -> str:
    from burnd.paths import user_home

    return str(user_home())


def _print(text: str) -> int:
    sys.stdout.write(text + "\n")
    return 0
