"""The hook of the guard: asks burnd whether a tool call may run.

A harness starts it before each tool call as `python -IS guard_hook.py SOCKET SOURCE`, with the call as JSON on stdin.
It imports nothing of burnd, to start in milliseconds. On a timeout or error it prints nothing, which allows the call.
"""

from __future__ import annotations

import json
import sys
import time
from _socket import AF_UNIX, SOCK_STREAM, socket

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

TIMEOUT_S = 0.5
_CHUNK = 1 << 16
_SUBJECTS = ("command", "file_path", "path")  # arguments that a call works on
_LONGEST_SUBJECT = 4096


def main() -> int:
    """Prints a denial in the form of Claude Code and Codex if burnd denies the call."""
    try:
        event = json.loads(sys.stdin.buffer.read())
        answer = ask(sys.argv[1], {"source": sys.argv[2], **call_of(event)})
        is_denied, reason = answer["decision"] == "deny", answer["reason"]
    except Exception:  # noqa: BLE001 - whatever goes wrong, the agent goes on
        return 0
    if is_denied:
        denial = {"hookEventName": "PreToolUse", "permissionDecision": "deny", "permissionDecisionReason": reason}
        stop = {"continue": False, "stopReason": reason} if answer.get("stop") else {}
        print(json.dumps({**stop, "hookSpecificOutput": denial}))
    return 0


def call_of(event: dict[str, Any]) -> dict[str, Any]:
    """The session, tool, and command or path in a hook's event."""
    arguments = event.get("tool_input")
    values = [arguments.get(name) for name in _SUBJECTS] if isinstance(arguments, dict) else []
    subject = next((value[:_LONGEST_SUBJECT] for value in values if isinstance(value, str)), None)
    return {"session": event["session_id"], "tool": event.get("tool_name"), "subject": subject}


def ask(path: str, params: dict[str, Any]) -> dict[str, Any]:
    deadline = time.monotonic() + TIMEOUT_S
    request = {"jsonrpc": "2.0", "id": 1, "method": "guard.check", "params": params}
    connection = socket(AF_UNIX, SOCK_STREAM)
    connection.settimeout(TIMEOUT_S)
    connection.connect(path)
    connection.sendall(json.dumps(request).encode() + b"\n")
    line = b""
    while not line.endswith(b"\n"):
        connection.settimeout(max(deadline - time.monotonic(), 0.001))
        piece = connection.recv(_CHUNK)
        if not piece:
            break
        line += piece
    result: dict[str, Any] = json.loads(line)["result"]
    return result


if __name__ == "__main__":
    raise SystemExit(main())
