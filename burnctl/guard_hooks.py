"""Adds the guard's hook to the settings of a harness, and removes it, without changing anything else."""

from __future__ import annotations

import json
import os
import sys

from burnctl.errors import BurnctlError
from burnctl.service.managers import write
from burnd.harness.registry import PRODUCTS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from burnd.harness.product import Product

_SCRIPT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "guard_hook.py")
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


def products() -> list[Product]:
    """The harnesses that can ask before a tool call."""
    return [product for product in PRODUCTS if product.hooks_file or product.plugin_file]


def file_of(product: Product, env: Mapping[str, str], user_home: str) -> str:
    """The settings file: in the first of its folders that exists, else in the first."""
    homes = product.config_homes(env, user_home)
    home = next((folder for folder in homes if os.path.isdir(folder)), homes[0])
    return os.path.join(home, product.hooks_file or product.plugin_file)


def is_present(product: Product, env: Mapping[str, str], user_home: str) -> bool:
    """Whether the harness was used on this machine."""
    return any(os.path.isdir(folder) for folder in product.config_homes(env, user_home))


def state(product: Product, path: str, socket: str) -> str:
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
    return "on" if command(socket, product.source) in commands else "other"


def install(product: Product, path: str, socket: str) -> None:
    """Writes the hook, replacing an older one."""
    if product.plugin_file:
        _write(path, _plugin(product, socket))
        return
    settings = _without_ours(_load(path))
    hook = {"type": "command", "command": command(socket, product.source), "timeout": _TIMEOUT_S}
    settings.setdefault("hooks", {}).setdefault(_EVENT, []).append({"matcher": "*", "hooks": [hook]})
    _write(path, _json(settings))


def uninstall(product: Product, path: str) -> bool:
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


def command(socket: str, source: str) -> str:
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
