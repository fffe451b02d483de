"""The hook of the guard: asks burnd whether a tool call may run.

A harness starts it before each tool call as `python -IS guard_hook.py SOCKET SOURCE`, with the call as JSON on stdin.
It imports nothing of burnd, so that it starts in a few milliseconds. Without an answer in time, or on any error, it
prints nothing, which allows the call.
"""

from __future__ import annotations

import json
import sys
from _socket import AF_UNIX, SOCK_STREAM, socket

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

TIMEOUT_S = 0.5
_CHUNK = 1 << 16


def main() -> int:
    """Prints a denial in the form of Claude Code and Codex if burnd denies the call."""
    try:
        event = json.loads(sys.stdin.buffer.read())
        answer = ask(sys.argv[1], sys.argv[2], event["session_id"], event.get("tool_name"))
        is_denied, reason = answer["decision"] == "deny", answer["reason"]
    except Exception:  # noqa: BLE001 - whatever goes wrong, the agent goes on
        return 0
    if is_denied:
        denial = {"hookEventName": "PreToolUse", "permissionDecision": "deny", "permissionDecisionReason": reason}
        stop = {"continue": False, "stopReason": reason} if answer.get("stop") else {}
        print(json.dumps({**stop, "hookSpecificOutput": denial}))
    return 0


def ask(path: str, source: str, session: str, tool: str | None) -> dict[str, Any]:
    """The answer of burnd; raises whatever goes wrong."""
    params = {"session": session, "tool": tool, "source": source}
    request = {"jsonrpc": "2.0", "id": 1, "method": "guard.check", "params": params}
    connection = socket(AF_UNIX, SOCK_STREAM)
    connection.settimeout(TIMEOUT_S)
    connection.connect(path)
    connection.sendall(json.dumps(request).encode() + b"\n")
    line = b""
    while not line.endswith(b"\n") and (piece := connection.recv(_CHUNK)):
        line += piece
    result: dict[str, Any] = json.loads(line)["result"]
    return result


if __name__ == "__main__":
    raise SystemExit(main())
