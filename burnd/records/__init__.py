"""The records of the ledger and of sidecars, and their JSON lines."""

from burnd.records.content import BlobRef, Content, File, ToolResult, ToolUse
from burnd.records.session import (
    Compaction,
    Event,
    Occurrence,
    Origin,
    Overhead,
    Prune,
    Quota,
    Request,
    Session,
    Withheld,
)
from burnd.records.stamp import Selector, Stamp, TimeRange
from burnd.records.turn import Basis, Block, Copy, ServerTools, Subagent, ToolCall, Turn, Usage

__all__ = [
    "Basis",
    "BlobRef",
    "Block",
    "Compaction",
    "Content",
    "Copy",
    "Event",
    "File",
    "Occurrence",
    "Origin",
    "Overhead",
    "Prune",
    "Quota",
    "Request",
    "Selector",
    "ServerTools",
    "Session",
    "Stamp",
    "Subagent",
    "TimeRange",
    "ToolCall",
    "ToolResult",
    "ToolUse",
    "Turn",
    "Usage",
    "Withheld",
]
