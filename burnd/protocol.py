"""The wire contract of burnd's socket, shared with its clients: version, limits, codes. Imports nothing, to start fast.

One JSON-RPC 2.0 object a line, over a unix socket. Every answer's result carries `version`, the number below;
a client that speaks another one says so instead of guessing.
"""

from __future__ import annotations

VERSION = 1

REQUEST_BYTES = 1 << 20
APPEND_BYTES = 16 << 20  # for `sessions.append`, when its name stands in the first KiB
ANSWER_BYTES = 8 << 20
CONNECTIONS = 128

# JSON-RPC's own codes.
NOT_JSON = -32700
NOT_A_REQUEST = -32600
NO_SUCH_METHOD = -32601
BAD_PARAMS = -32602
FAILED = -32603
# Ours. Each error object has `code`, `message` (a sentence) and `data: {"name": ..., "hint": ...}`.
BUSY = -32001  # too many connections or questions at once
TOO_LARGE = -32002  # the request, or the answer without paging
TOO_LONG = -32003  # it took longer than its deadline
NOT_FOUND = -32004  # no such session, message, model
NOT_NOW = -32005  # no room on the disk, or the index is being rebuilt: try again
REFUSED = -32006  # well formed, but must not be done

NAMES = {
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

USAGE_FIELDS = ("input", "output", "reasoning", "cacheRead", "cacheCreate5m", "cacheCreate1h")

# In the rows of hotspots: the kind of those that are none of what was asked for, and what some of these are called.
OTHER = "other"
NOT_COUNTED = "not yet explained"
NOT_MISSED = "everything else"
UNKNOWN_AGENT = "subagent"  # the type of one whose type is not known
