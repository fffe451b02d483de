"""Shapes of Claude Code's files: transcript paths, meta files of agents, and transcript lines.

Every field has a default, so that a line of any release decodes.
"""

from __future__ import annotations

import re
from typing import Final

import msgspec

from burnd.harness.anthropic import NOTHING, ContentBlock, UsageObject
from burnd.harness.claude_code.product import PRODUCT
from burnd.records.foreign_json import SafeDecoder
from burnd.records.names import Name, PathName

SOURCE: Final = PRODUCT.source
SYNTHETIC: Final = "<synthetic>"
NO_BRANCH: Final = ("", "HEAD")  # outside a repository, or a detached head


class _Camel(msgspec.Struct, gc=False, rename="camel"):
    """An object of the client, with keys in camel case; the API's objects inside it have snake case."""


class MessageHead(msgspec.Struct, gc=False):
    """A message without its content; of `stop_details` only the presence matters."""

    id: Name | None = None
    model: Name | None = None
    stop_reason: Name | None = None
    stop_details: msgspec.Raw = NOTHING
    usage: UsageObject | None = None


class CacheMissReason(msgspec.Struct, gc=False):
    type: Name | None = None
    cache_missed_input_tokens: int | None = None


class Diagnostics(msgspec.Struct, gc=False):
    cache_miss_reason: CacheMissReason | None = None


class ClaudeMessage(MessageHead, gc=False):
    content: str | list[ContentBlock] | None = None
    diagnostics: Diagnostics | None = None


class ForkedFrom(_Camel):
    session_id: Name | None = None


class CompactMetadata(_Camel):
    trigger: Name | None = None
    pre_tokens: int | None = None
    post_tokens: int | None = None


class Origin(msgspec.Struct, gc=False):
    kind: str | None = None


class LineHead(_Camel):
    """The fields of a line that totals need, see `totals`."""

    type: str = ""
    subtype: str | None = None
    uuid: Name | None = None
    timestamp: str | None = None
    session_id: Name | None = None
    session_kind: str | None = None
    is_sidechain: bool = False
    cwd: str | None = None
    git_branch: Name | None = None
    version: Name | None = None
    forked_from: ForkedFrom | None = None
    request_id: Name | None = None
    request_ref: Name | None = None


class ClaudeLine(LineHead):
    parent_uuid: Name | msgspec.UnsetType | None = msgspec.UNSET  # None at a root
    logical_parent_uuid: Name | None = None
    is_meta: bool | None = None
    is_compact_summary: bool | None = None
    process_session: str | None = msgspec.field(name="session_id", default=None)
    message: ClaudeMessage | None = None
    api_block_index: int | None = None
    attribution_agent: Name | None = None
    is_api_error_message: bool | None = None
    api_error_status: int | None = None
    turn_origin: str | None = None
    origin: Origin | None = None
    interrupted_message_id: Name | None = None
    refused_message_id: Name | None = None
    original_model: Name | None = None
    source_tool_assistant_uuid: Name | None = msgspec.field(name="sourceToolAssistantUUID", default=None)
    source_tool_use_id: Name | None = msgspec.field(name="sourceToolUseID", default=None)
    tool_use_result: Outcome | str | list[msgspec.Raw] | float | bool | None = None
    error: msgspec.Raw = NOTHING
    compact_metadata: CompactMetadata | None = None
    attachment: msgspec.Raw = NOTHING
    rendered: msgspec.Raw = NOTHING
    rendered_role: str | None = None


class BareLine(_Camel):
    """A line outside the conversation: a title, a request, a running total."""

    type: str = ""
    id: str | None = None
    timestamp: str | None = None
    session_id: Name | None = None
    custom_title: str | None = None
    ai_title: str | None = None
    summary: str | None = None
    leaf_uuid: Name | None = None
    query_source: Name | None = None
    shape_hash: Name | None = None
    params: msgspec.Raw = NOTHING
    cache_control: list[msgspec.Raw] | None = None
    base: Name | None = None
    keep: int | None = None
    tail: list[msgspec.Raw] | None = None
    pr_url: str | None = None
    model_usage: dict[Name, ModelUsage | None] | None = None
    start_time: float | None = None


class ModelUsage(_Camel):
    """The running total of one model in a `cost-state` line."""

    input_tokens: int | None = None
    output_tokens: int | None = None
    thinking_tokens: int | None = None
    cache_read_input_tokens: int | None = None
    cache_creation_input_tokens: int | None = None
    five_minutes: int | None = msgspec.field(name="cacheCreationEphemeral5mInputTokens", default=None)
    one_hour: int | None = msgspec.field(name="cacheCreationEphemeral1hInputTokens", default=None)
    web_search_requests: int | None = None
    cost_usd: float | None = msgspec.field(name="costUSD", default=None)


class InstructionFile(msgspec.Struct, gc=False):
    path: PathName | None = None
    content: str | None = None


class BlockingError(_Camel):
    blocking_error: str | None = None


class Attachment(_Camel):
    """An attachment of a prompt or a result; the shape of `content` depends on its type."""

    type: str = ""
    prompt: str | list[ContentBlock] | None = None
    command_mode: str | None = None
    origin: Origin | None = None
    filename: str | None = None
    hook_event: str | None = None
    blocking_error: BlockingError | str | None = None
    files: list[InstructionFile] | None = None
    added_names: list[Name] | None = None
    removed_names: list[Name] | None = None
    content: msgspec.Raw = NOTHING
    system_prompt: str | list[str] | None = None
    tools: msgspec.Raw = NOTHING


class Outcome(_Camel):
    """The used fields of a `toolUseResult`.

    `run_id` names the folder of a workflow's agents, `teammate_id` an agent of a team as `<name>@<team>`.
    """

    agent_id: Name | None = None
    run_id: Name | None = None
    teammate_id: Name | None = msgspec.field(name="teammate_id", default=None)
    persisted_output_path: str | None = None
    search_count: int | None = None


class ErrorCause(msgspec.Struct, gc=False):
    code: str | None = None


class ErrorFacts(msgspec.Struct, gc=False):
    """The HTTP status of a failed request, or the error code of its connection."""

    status: int | None = None
    cause: ErrorCause | None = None

    @property
    def code(self) -> str | None:
        return self.cause.code if self.cause is not None else None


class Rendered(msgspec.Struct, gc=False):
    content: str | list[ContentBlock] | None = None


class FileBody(msgspec.Struct, gc=False):
    """Text or base64 bytes of a file attachment; `type` is a media type."""

    content: str | None = None
    base64: str | None = None
    type: str | None = None


class FileContent(msgspec.Struct, gc=False):
    type: str | None = None
    file: FileBody | None = None


lines: Final = SafeDecoder(ClaudeLine)
bare_lines: Final = SafeDecoder(BareLine)
attachments: Final = SafeDecoder(Attachment)
error_facts: Final = SafeDecoder(ErrorFacts)
file_contents: Final = SafeDecoder(FileContent)
rendered_texts: Final = msgspec.json.Decoder(list[Rendered])

TITLES: Final = frozenset({"custom-title", "ai-title", "summary"})
BARE: Final = TITLES | {"api-request", "cost-state", "pr-link"}
TIMED: Final = frozenset({"queue-operation"})  # ignored, but may have the first time in a file
# `progress` lines repeat whole messages of sub-agents with their usage, and are never counted.
IGNORED: Final = TIMED | frozenset(
    {
        "agent-color",
        "agent-name",
        "agent-setting",
        "api-request-blob",
        "api-request-shape",
        "atis-latch",
        "attribution-snapshot",
        "content-replacement",
        "file-history-delta",
        "file-history-snapshot",
        "last-prompt",
        "mode",
        "permission-mode",
        "progress",
        "tag",
        "tools-used",
        "worktree-state",
    }
)
SYSTEM_SUBTYPES: Final = frozenset(
    {
        "api_error",
        "compact_boundary",
        "informational",
        "local_command",
        "model_fallback",
        "model_refusal_no_fallback",
        "stop_hook_summary",
        "turn_duration",
    }
)

TYPE_FIRST: Final = b'{"type":"'
_LONGEST_NAME: Final = 64


class AgentMeta(msgspec.Struct, frozen=True, rename="camel"):
    """The `agent-<id>.meta.json` of a sub-agent's transcript; a teammate has names, and no call."""

    agent_type: str | None = None
    tool_use_id: str | None = None
    name: str | None = None
    team_name: str | None = None

    @property
    def teammate_id(self) -> str | None:
        return f"{self.name}@{self.team_name}" if self.name and self.team_name else None


class LogPath(msgspec.Struct, frozen=True):
    """The parts of a transcript's path; a main transcript has no `rail_id`.

    `session_id` is None if only the lines name it. `word` is a file name like `chat` that replaces it in lines.
    """

    stem: str
    session_id: str | None = None
    rail_id: str | None = None
    meta: AgentMeta | None = None
    word: str | None = None
    run_id: str | None = None


ENDING: Final = ".jsonl"
_AGENT: Final = "agent-"
_SUBAGENTS: Final = "subagents"
_WORKFLOWS: Final = "workflows"
_NO_SESSIONS: Final = frozenset({"memory", "journal"})
_NO_LOGS: Final = frozenset({"memory", "tool-results"})  # folders below a project; a project may have any name
# Other tools may write a folder per session with a transcript called `chat`.
_WORD: Final = re.compile(r"[A-Za-z_-]{1,11}")
_metas: Final = SafeDecoder(AgentMeta)


def parse_path(relative_path: str) -> LogPath | None:
    *folders, name = relative_path.split("/")
    stem = name.removesuffix(ENDING)
    if stem in ("", name, _AGENT, *_NO_SESSIONS) or stem.startswith(".") or _NO_LOGS.intersection(folders[1:]):
        return None
    rail_id = stem.removeprefix(_AGENT) if stem.startswith(_AGENT) else None
    if _SUBAGENTS in folders[2:]:
        if rail_id is None:
            return None
        run_id = folders[-1] if folders[-2] == _WORKFLOWS else None
        session_id = folders[folders.index(_SUBAGENTS, 2) - 1]
        return LogPath(stem=stem, session_id=session_id, rail_id=rail_id, run_id=run_id)
    if rail_id is None and len(folders) > 1 and _WORD.fullmatch(stem):
        return LogPath(stem=folders[-1], word=stem)
    return LogPath(stem=stem, session_id=stem if rail_id is None else None, rail_id=rail_id)


def meta_path(relative_path: str) -> str | None:
    path = parse_path(relative_path)
    return relative_path.removesuffix(ENDING) + ".meta.json" if path is not None and path.rail_id else None


def with_meta(path: LogPath, data: bytes) -> LogPath:
    meta = _metas.value(data)
    return path if meta is None else msgspec.structs.replace(path, meta=meta)


def leading_type(line: bytes) -> str | None:
    """The type of a line that begins with it, as all lines outside the conversation do; without decoding."""
    if not line.startswith(TYPE_FIRST):
        return None
    end = line.find(b'"', len(TYPE_FIRST), len(TYPE_FIRST) + _LONGEST_NAME)
    return line[len(TYPE_FIRST) : end].decode("ascii", "replace") if end > 0 else None
