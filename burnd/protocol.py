"""The wire contract of burnd's socket, shared with its clients: version, limits, codes. Standard library only.

One JSON-RPC 2.0 object a line, over a unix socket. Every answer's result carries `version`, the number below;
a client that speaks another one says so instead of guessing.
"""

from __future__ import annotations

from typing import Final

VERSION: Final = 1

REQUEST_BYTES: Final = 1 << 20
APPEND_BYTES: Final = 16 << 20  # for `sessions.append`, when its name stands in the first KiB
ANSWER_BYTES: Final = 8 << 20
CONNECTIONS: Final = 128

# JSON-RPC's own codes.
NOT_JSON: Final = -32700
NOT_A_REQUEST: Final = -32600
NO_SUCH_METHOD: Final = -32601
BAD_PARAMS: Final = -32602
FAILED: Final = -32603
# Ours. Each error object has `code`, `message` (a sentence) and `data: {"name": ..., "hint": ...}`.
BUSY: Final = -32001  # too many connections or questions at once
TOO_LARGE: Final = -32002  # the request, or the answer without paging
TOO_LONG: Final = -32003  # it took longer than its deadline
NOT_FOUND: Final = -32004  # no such session, message, model
NOT_NOW: Final = -32005  # no room on the disk, or the index is being rebuilt: try again
REFUSED: Final = -32006  # well formed, but must not be done

NAMES: Final = {
    NOT_JSON: "not_json",
    NOT_A_REQUEST: "not_a_request",
    NO_SUCH_METHOD: "no_such_method",
    BAD_PARAMS: "bad_params",
    FAILED: "failed",
    BUSY: "busy",
    TOO_LARGE: "too_large",
    TOO_LONG: "too_long",
    NOT_FOUND: "not_found",
    NOT_NOW: "not_now",
    REFUSED: "refused",
}

USAGE_FIELDS: Final = ("input", "output", "reasoning", "cacheRead", "cacheCreate5m", "cacheCreate1h")
