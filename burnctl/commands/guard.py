"""`burnctl guard`: stops sessions that reach a limit, at their next tool call; and the hooks in the harnesses."""

from __future__ import annotations

import json
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
from burnctl.service.managers import write
from burnctl.session_choice import whole_id
from burnd.contract import Params, param
from burnd.contract.daemon import AllowParams, GuardStatusParams
from burnd.harness.registry import PRODUCTS

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping
    from typing import Any

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
    if options.action == "install":
        return _install(options)
    if options.action == "uninstall":
        for product in _chosen(options):
            path = hook_file(product, os.environ, _user_home())
            was_there = remove_hook(product, path)
            print(
                f"removed the hook of {product.title} from {path}"
                if was_there
                else f"{product.title} has no hook of burnd in {path}"
            )
        return 0
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
    for product in _chosen(options):
        path = hook_file(product, os.environ, _user_home())
        install_hook(product, path, _socket())
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


def _chosen(options: argparse.Namespace) -> list[Product]:
    """The harness of the flag, else all on this machine."""
    able = products_with_hooks()
    if options.source is not None:
        products = [product for product in able if product.source == options.source]
        if not products:
            names = ", ".join(product.source for product in able)
            raise BurnctlError(f"{options.source} has no hooks before tool calls", f"choose one of: {names}")
        return products
    products = [product for product in able if is_present(product, os.environ, _user_home())]
    if not products:
        titles = ", ".join(product.title for product in able)
        raise BurnctlError(f"none of {titles} was found", "name one with --source")
    return products


def _lines(answer: GuardStatus, screen: Screen) -> list[str]:
    switch = "on" if answer["on"] else screen.paint("off: nothing is stopped until `burnctl guard on`", "yellow")
    lines = [f"The guard is {switch}."]
    for product in products_with_hooks():
        path = hook_file(product, os.environ, _user_home())
        if state := hook_state(product, path, _socket()):
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


_SCRIPT = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "guard_hook.py")
_MARK = "guard_hook.py"  # in every command of ours
_EVENT = "PreToolUse"
_TIMEOUT_S = 5
_CORRECT = "correct it, then try again"
_PLUGIN = """\
// Asks burnd whether a tool call may run. Written by `burnctl guard install`, removed by `burnctl guard uninstall`.
import net from "node:net"

const SOCKET = %(socket)s
const SOURCE = %(source)s

// The answer of burnd, or null: without an answer in time every call is allowed.
function ask(params) {
  return new Promise((resolve) => {
    let text = ""
    const connection = net.connect(SOCKET)
    const end = (answer) => { connection.destroy(); resolve(answer) }
    connection.setTimeout(500, () => end(null))
    connection.on("error", () => end(null))
    connection.on("close", () => resolve(null))
    connection.on("connect", () => {
      connection.write(JSON.stringify({ jsonrpc: "2.0", id: 1, method: "guard.check", params }) + "\\n")
    })
    connection.on("data", (piece) => {
      text += piece
      if (!text.endsWith("\\n")) return
      try { end(JSON.parse(text).result ?? null) } catch { end(null) }
    })
  })
}

export const BurndGuard = async () => ({
  "tool.execute.before": async (input, output) => {
    const subject = output?.args?.command ?? output?.args?.filePath
    const call = { session: input.sessionID, tool: input.tool, source: SOURCE }
    const answer = await ask(typeof subject === "string" ? { ...call, subject: subject.slice(0, 4096) } : call)
    if (answer?.decision === "deny") throw new Error(answer.reason)
  },
})
"""


def products_with_hooks() -> list[Product]:
    """The harnesses that can ask before a tool call."""
    return [product for product in PRODUCTS if product.hooks_file or product.plugin_file]


def hook_file(product: Product, env: Mapping[str, str], user_home: str) -> str:
    """The settings file: in the first of its folders that exists, else in the first."""
    homes = product.config_homes(env, user_home)
    home = next((folder for folder in homes if os.path.isdir(folder)), homes[0])
    return os.path.join(home, product.hooks_file or product.plugin_file)


def is_present(product: Product, env: Mapping[str, str], user_home: str) -> bool:
    """Whether the harness was used on this machine."""
    return any(os.path.isdir(folder) for folder in product.config_homes(env, user_home))


def hook_state(product: Product, path: str, socket: str) -> str:
    """The state of the hook: "", "on", "off" if hooks are disabled, "other" if of another home or release."""
    if product.plugin_file:
        text = _read(path)
        return "" if text is None else "on" if text == _plugin(product, socket) else "other"
    try:
        settings = _load(path)
    except BurnctlError:
        return ""
    commands = [hook["command"] for hook in _ours(settings)]
    if not commands:
        return ""
    if settings.get("disableAllHooks") is True:
        return "off"
    return "on" if hook_command(socket, product.source) in commands else "other"


def install_hook(product: Product, path: str, socket: str) -> None:
    """Writes the hook, replacing an older one."""
    if product.plugin_file:
        _write(path, _plugin(product, socket))
        return
    settings = _without_ours(_load(path))
    hook = {"type": "command", "command": hook_command(socket, product.source), "timeout": _TIMEOUT_S}
    settings.setdefault("hooks", {}).setdefault(_EVENT, []).append({"matcher": "*", "hooks": [hook]})
    _write(path, _json(settings))


def remove_hook(product: Product, path: str) -> bool:
    """Removes the hook; returns whether there was one."""
    if product.plugin_file:
        is_there = os.path.lexists(path)
        if is_there:
            os.unlink(path)
        return is_there
    settings = _load(path)
    is_there = bool(_ours(settings))
    if is_there:
        _write(path, _json(_without_ours(settings)))
    return is_there


def hook_command(socket: str, source: str) -> str:
    """The shell command. It succeeds even if Python or the script is missing: code 2 would stop the agent."""
    words = (sys.executable, "-IS", _SCRIPT, socket, source)
    return f"{' '.join(map(_quoted, words))} 2>/dev/null || true"


def _quoted(word: str) -> str:
    return "'" + word.replace("'", "'\\''") + "'"


def _plugin(product: Product, socket: str) -> str:
    return _PLUGIN % {"socket": json.dumps(socket), "source": json.dumps(product.source)}


def _read(path: str) -> str | None:
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise BurnctlError(f"{path} cannot be read: {error}", _CORRECT) from None


def _load(path: str) -> dict[str, Any]:
    text = _read(path)
    try:
        settings = json.loads(text) if text and not text.isspace() else {}
    except ValueError as error:
        raise BurnctlError(f"{path} is not valid JSON: {error}", _CORRECT) from None
    hooks = settings.get("hooks", {}) if isinstance(settings, dict) else None
    if not isinstance(hooks, dict) or not isinstance(hooks.get(_EVENT, []), list):
        raise BurnctlError(f"{path} is not a settings file", _CORRECT)
    return settings


def _json(settings: Mapping[str, Any]) -> str:
    text = json.dumps(settings, indent=2, ensure_ascii=False)
    is_unicode = text.isascii() or not any("\ud800" <= character <= "\udfff" for character in text)
    return (text if is_unicode else json.dumps(settings, indent=2)) + "\n"


def _is_ours(hook: object) -> bool:
    return isinstance(hook, dict) and _MARK in str(hook.get("command"))


def _hooks_of(group: object) -> list[Any]:
    hooks = group.get("hooks") if isinstance(group, dict) else None
    return hooks if isinstance(hooks, list) else []


def _ours(settings: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [hook for group in settings.get("hooks", {}).get(_EVENT, []) for hook in _hooks_of(group) if _is_ours(hook)]


def _without_ours(settings: dict[str, Any]) -> dict[str, Any]:
    """The settings without our hooks, and without parts that become empty."""
    if not _ours(settings):
        return settings
    groups = []
    for group in settings["hooks"][_EVENT]:
        others = [hook for hook in _hooks_of(group) if not _is_ours(hook)]
        if len(others) == len(_hooks_of(group)):
            groups.append(group)
        elif others:
            groups.append({**group, "hooks": others})
    hooks_by_event = {**settings["hooks"], _EVENT: groups}
    if not groups:
        del hooks_by_event[_EVENT]
    settings = {**settings, "hooks": hooks_by_event}
    if not hooks_by_event:
        del settings["hooks"]
    return settings


def _write(path: str, text: str) -> None:
    """Replaces a file atomically, with its mode; a link is followed. A new one is private."""
    path = os.path.realpath(path)
    try:
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        mode = os.stat(path).st_mode & 0o777 if os.path.exists(path) else 0o600
    except OSError as error:
        raise BurnctlError(f"{path} cannot be written: {error.strerror}") from None
    write(path, text, mode)
