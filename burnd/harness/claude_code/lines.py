"""The shapes of a Claude Code transcript's lines: only the fields that are used, and which lines are not.

Every field has a default and unknown ones are ignored, so that a line of any release decodes. What may be
large and is seldom needed stays `Raw`: tool arguments, results, attachments.
"""

from __future__ import annotations

from typing import Final

import msgspec

from burnd.records.foreign_json import SafeDecoder
from burnd.records.names import Name, PathName

NOTHING: Final = msgspec.Raw(b"")
SYNTHETIC: Final = "<synthetic>"


class _Camel(msgspec.Struct, gc=False, rename="camel"):
    """The envelope's keys are in camel case; the API's own objects inside it are in snake case."""


class CacheCreation(msgspec.Struct, gc=False):
    """How the written cache splits over the two life times."""

    ephemeral_5m_input_tokens: int | None = None
    ephemeral_1h_input_tokens: int | None = None


class ServerToolUse(msgspec.Struct, gc=False):
    """Requests that ran at the provider."""

    web_search_requests: int | None = None
    web_fetch_requests: int | None = None


class OutputDetails(msgspec.Struct, gc=False):
    """What the output tokens hold."""

    thinking_tokens: int | None = None


class TokenCounts(msgspec.Struct, gc=False):
    """Token counts as the API writes them, of a whole response or of one iteration within it."""

    input_tokens: int | None = None
    output_tokens: int | None = None
    cache_creation_input_tokens: int | None = None
    cache_read_input_tokens: int | None = None
    cache_creation: CacheCreation | None = None
    output_tokens_details: OutputDetails | None = None


class Iteration(TokenCounts, gc=False):
    """One model call within a response; most kinds are already in the response's own sums."""

    type: str | None = None
    model: Name | None = None


class UsageLine(TokenCounts, gc=False):
    """A response's whole `usage` object."""

    server_tool_use: ServerToolUse | None = None
    speed: Name | None = None
    service_tier: Name | None = None
    inference_geo: Name | None = None
    iterations: list[Iteration] | None = None


class Source(msgspec.Struct, gc=False):
    """Where an image's or document's bytes are, or the words or blocks it is made of."""

    type: str | None = None
    media_type: str | None = None
    data: str | None = None
    content: msgspec.Raw = NOTHING


class Piece(msgspec.Struct, gc=False):
    """One content block of any type: text, thinking, a call, a result, an image, a document."""

    type: str = ""
    text: str | None = None
    thinking: str | None = None
    signature: str | None = None
    data: str | None = None
    id: Name | None = None
    name: Name | None = None
    server_name: Name | None = None
    input: msgspec.Raw = NOTHING
    tool_use_id: Name | None = None
    content: msgspec.Raw = NOTHING
    is_error: bool | None = None
    source: Source | str | None = None  # a search result has its address there
    title: str | None = None


class Message(msgspec.Struct, gc=False):
    """The API's message, or the user's; `stop_details` is Raw because its mere presence says something."""

    id: Name | None = None
    model: Name | None = None
    content: str | list[Piece] | None = None
    stop_reason: Name | None = None
    stop_details: msgspec.Raw = NOTHING
    usage: UsageLine | None = None


class ForkedFrom(_Camel):
    """The session a copied line came from."""

    session_id: Name | None = None


class CompactMetadata(_Camel):
    """What a compaction did."""

    trigger: Name | None = None
    pre_tokens: int | None = None
    post_tokens: int | None = None


class Origin(msgspec.Struct, gc=False):
    """Who a text is from."""

    kind: str | None = None


class Line(_Camel):
    """A line of the conversation: user, assistant, system, attachment, or a type not known yet."""

    type: str = ""
    subtype: str | None = None
    uuid: Name | None = None
    parent_uuid: Name | msgspec.UnsetType | None = msgspec.UNSET  # None at a root
    logical_parent_uuid: Name | None = None
    timestamp: str | None = None
    session_id: Name | None = None
    session_kind: str | None = None
    is_sidechain: bool = False
    is_meta: bool | None = None
    is_compact_summary: bool | None = None
    cwd: str | None = None
    git_branch: Name | None = None
    version: Name | None = None
    entrypoint: str | None = None
    forked_from: ForkedFrom | None = None
    process_session: str | None = msgspec.field(name="session_id", default=None)
    message: Message | None = None
    request_id: Name | None = None
    request_ref: Name | None = None
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
    """A line beside the conversation: a title, a request, a running total."""

    type: str = ""
    id: str | None = None
    timestamp: str | None = None
    session_id: Name | None = None
    custom_title: str | None = None
    ai_title: str | None = None
    summary: str | None = None
    leaf_uuid: Name | None = None
    query_source: Name | None = None
    params: msgspec.Raw = NOTHING
    base: Name | None = None
    keep: int | None = None
    tail: list[msgspec.Raw] | None = None
    model_usage: dict[Name, ModelUsage | None] | None = None
    start_time: float | None = None


class ModelUsage(_Camel):
    """A running total of one model, as the client's own books have it."""

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
    """A CLAUDE.md or a rule, as the client read it."""

    path: PathName | None = None
    content: str | None = None


class BlockingError(_Camel):
    """The error of a hook that blocked an action."""

    blocking_error: str | None = None


class Attachment(_Camel):
    """An attachment of a prompt or a result; the shape of `content` depends on its type.

    `files` is set for type `instructions`.
    """

    type: str = ""
    prompt: str | list[Piece] | None = None
    command_mode: str | None = None
    origin: Origin | None = None
    filename: str | None = None
    hook_event: str | None = None
    blocking_error: BlockingError | str | None = None
    files: list[InstructionFile] | None = None
    content: msgspec.Raw = NOTHING
    system_prompt: str | list[str] | None = None
    tools: msgspec.Raw = NOTHING


class Outcome(_Camel):
    """The fields that are read from a `toolUseResult`.

    `run_id` names the folder of a workflow's agents, `teammate_id` an agent of a team as `<name>@<team>`.
    """

    agent_id: Name | None = None
    run_id: Name | None = None
    teammate_id: Name | None = msgspec.field(name="teammate_id", default=None)
    persisted_output_path: str | None = None
    search_count: int | None = None


class ErrorCause(msgspec.Struct, gc=False):
    """Why a connection failed."""

    code: str | None = None


class ErrorFacts(msgspec.Struct, gc=False):
    """A failed request: its HTTP status, or why its connection failed."""

    status: int | None = None
    cause: ErrorCause | None = None

    @property
    def code(self) -> str | None:
        return self.cause.code if self.cause is not None else None


class Rendered(msgspec.Struct, gc=False):
    """A text as an attachment put it before the model."""

    content: str | list[Piece] | None = None


class FileBody(msgspec.Struct, gc=False):
    """The text or the bytes within a file attachment; `type` is a media type."""

    content: str | None = None
    base64: str | None = None
    type: str | None = None


class FileContent(msgspec.Struct, gc=False):
    """A file attachment's content: text, image, pdf, notebook."""

    type: str | None = None
    file: FileBody | None = None


lines: Final = SafeDecoder(Line)
bare_lines: Final = SafeDecoder(BareLine)
attachments: Final = SafeDecoder(Attachment)
error_facts: Final = SafeDecoder(ErrorFacts)
file_contents: Final = SafeDecoder(FileContent)
rendered_texts: Final = msgspec.json.Decoder(list[Rendered])
pieces: Final = msgspec.json.Decoder(str | list[Piece] | None)

TITLES: Final = frozenset({"custom-title", "ai-title", "summary"})
BARE: Final = TITLES | {"api-request", "cost-state"}
TIMED: Final = frozenset({"queue-operation"})
# `progress` lines repeat whole messages of sub-agents with their usage: they are never counted.
IGNORED: Final = TIMED | {
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
    "pr-link",
    "progress",
    "tag",
    "tools-used",
    "worktree-state",
}
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

_TYPE_FIRST: Final = b'{"type":"'
_LONGEST_NAME: Final = 64


def leading_type(line: bytes) -> str | None:
    """The type of a line that names it first, as all lines beside the conversation do; no decoding."""
    if not line.startswith(_TYPE_FIRST):
        return None
    end = line.find(b'"', len(_TYPE_FIRST), len(_TYPE_FIRST) + _LONGEST_NAME)
    return line[len(_TYPE_FIRST) : end].decode("ascii", "replace") if end > 0 else None


def opened(raw: msgspec.Raw) -> str | list[Piece]:
    """A result's content; what has neither of the two known shapes is its own JSON text."""
    if not raw:
        return ""
    try:
        return pieces.decode(raw) or ""
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return bytes(raw).decode("utf-8", "replace")


def branch_of(line: Line) -> str | None:
    """The branch worked on; a detached head or no repository is none."""
    return line.git_branch if line.git_branch not in ("", "HEAD") else None
