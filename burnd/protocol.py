"""Constants of the socket's protocol: version, limits and error codes.

A line is a JSON-RPC 2.0 object. Every result has `version`; a client of another version raises an error. Imports
nothing, so that burnctl starts quickly.
"""

from __future__ import annotations

VERSION = 1

REQUEST_BYTES = 1 << 20
APPEND_BYTES = 16 << 20  # for `sessions.append`, if its name is in the first KiB
ANSWER_BYTES = 8 << 20
CONNECTIONS = 128

# JSON-RPC's own codes; then those of burnd
NOT_JSON = -32700
NOT_A_REQUEST = -32600
NO_SUCH_METHOD = -32601
BAD_PARAMS = -32602
FAILED = -32603
# Each error object has `code`, `message` (a sentence) and `data: {"name": ..., "hint": ...}`.
BUSY = -32001  # too many connections or requests at once
TOO_LARGE = -32002  # the request, or the answer without paging
TOO_LONG = -32003  # it took longer than its deadline
NOT_FOUND = -32004  # no such session, message, model
NOT_NOW = -32005  # the disk is full, or the index is being rebuilt: retry later
REFUSED = -32006  # valid, but not allowed

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

# Rows of hotspots beside those of the dimension.
OTHER = "other"
NOT_COUNTED = "not yet explained"
NOT_MISSED = "everything else"
UNKNOWN_AGENT = "subagent"  # the type of a subagent without one
