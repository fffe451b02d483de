"""Adds the guard's hook to the settings of a harness, and removes it; everything else in these files stays."""

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
_PLUGIN = """\
// Asks burnd whether a tool call may run. Written by `burnctl guard install`, removed by `burnctl guard uninstall`.
import net from "node:net"

const SOCKET = %(socket)s
const SOURCE = %(source)s

// The answer of burnd, or null: without an answer in time every call is allowed.
function ask(session, tool) {
  return new Promise((resolve) => {
    let text = ""
    const connection = net.connect(SOCKET)
    const end = (answer) => { connection.destroy(); resolve(answer) }
    connection.setTimeout(500, () => end(null))
    connection.on("error", () => end(null))
    connection.on("close", () => resolve(null))
    connection.on("connect", () => {
      const params = { session, tool, source: SOURCE }
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
  "tool.execute.before": async (input) => {
    const answer = await ask(input.sessionID, input.tool)
    if (answer?.decision === "deny") throw new Error(answer.reason)
  },
})
"""


def products() -> list[Product]:
    """The harnesses that can ask before a tool call."""
    return [product for product in PRODUCTS if product.hooks_file or product.plugin_file]


def file_of(product: Product, env: Mapping[str, str], user_home: str) -> str:
    """The file that has the hook: in the first of its folders that exists, else in the first."""
    homes = product.config_homes(env, user_home)
    home = next((folder for folder in homes if os.path.isdir(folder)), homes[0])
    return os.path.join(home, product.hooks_file or product.plugin_file)


def is_present(product: Product, env: Mapping[str, str], user_home: str) -> bool:
    """Whether the harness has been used on this machine."""
    return any(os.path.isdir(folder) for folder in product.config_homes(env, user_home))


def is_installed(product: Product, path: str) -> bool:
    if product.plugin_file:
        return os.path.isfile(path)
    try:
        return bool(_ours(_load(path)))
    except BurnctlError:
        return False


def install(product: Product, path: str, socket: str) -> None:
    """Writes the hook, in the place of an older one of ours."""
    if product.plugin_file:
        texts = {"socket": json.dumps(socket), "source": json.dumps(product.source)}
        _write(path, _PLUGIN % texts)
        return
    settings = _without_ours(_load(path))
    hook = {"type": "command", "command": command(socket, product.source), "timeout": _TIMEOUT_S}
    settings.setdefault("hooks", {}).setdefault(_EVENT, []).append({"matcher": "*", "hooks": [hook]})
    _write(path, json.dumps(settings, indent=2, ensure_ascii=False) + "\n")


def uninstall(product: Product, path: str) -> bool:
    """Removes the hook; returns whether there was one."""
    if not is_installed(product, path):
        return False
    if product.plugin_file:
        os.unlink(path)
    else:
        _write(path, json.dumps(_without_ours(_load(path)), indent=2, ensure_ascii=False) + "\n")
    return True


def command(socket: str, source: str) -> str:
    """The shell command of the hook. It succeeds even if Python or the script is gone: code 2 would stop the agent."""
    words = (sys.executable, "-IS", _SCRIPT, socket, source)
    return f"{' '.join(map(_quoted, words))} 2>/dev/null || true"


def _quoted(word: str) -> str:
    return "'" + word.replace("'", "'\\''") + "'"


def _load(path: str) -> dict[str, Any]:
    try:
        with open(path, encoding="utf-8") as file:
            settings = json.load(file)
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise BurnctlError(f"{path} cannot be read: {error}", "correct it, then install the hook again") from None
    if not isinstance(settings, dict) or not isinstance(settings.get("hooks", {}), dict):
        raise BurnctlError(f"{path} is not a settings file", "correct it, then install the hook again")
    return settings


def _ours(settings: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The hooks of ours among all."""
    groups = settings.get("hooks", {}).get(_EVENT, [])
    hooks = [hook for group in groups if isinstance(group, dict) for hook in group.get("hooks", [])]
    return [hook for hook in hooks if isinstance(hook, dict) and _MARK in str(hook.get("command"))]


def _without_ours(settings: dict[str, Any]) -> dict[str, Any]:
    """The settings without our hooks, and without what is empty because of that."""
    ours = _ours(settings)
    if not ours:
        return settings
    groups = []
    for group in settings["hooks"][_EVENT]:
        hooks = [hook for hook in group.get("hooks", []) if hook not in ours]
        if hooks:
            groups.append({**group, "hooks": hooks})
    hooks_by_event = {**settings["hooks"], _EVENT: groups}
    if not groups:
        del hooks_by_event[_EVENT]
    settings = {**settings, "hooks": hooks_by_event}
    if not hooks_by_event:
        del settings["hooks"]
    return settings


def _write(path: str, text: str) -> None:
    """Replaces a file at once, with the mode it had; a link is followed. A new one is private."""
    path = os.path.realpath(path)
    try:
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        mode = os.stat(path).st_mode & 0o777 if os.path.exists(path) else 0o600
    except OSError as error:
        raise BurnctlError(f"{path} cannot be written: {error.strerror}") from None
    write(path, text, mode)
