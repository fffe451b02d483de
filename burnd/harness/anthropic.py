"""Objects of Anthropic's API, which Claude Code logs and programs push: content blocks, tool calls, results, usage."""

from __future__ import annotations

import binascii
import hashlib
import re
from typing import Any, Final, NamedTuple

import msgspec

from burnd.harness.claude_code.product import PRODUCT
from burnd.harness.tool_calls import (
    HASH_DIGITS,
    args_hash,
    decoded_size,
    edit_hash,
    first_word,
    host_of,
    short_hash,
    size,
    text_target,
    verb_of,
)
from burnd.recording.candidate import BilledCall
from burnd.records import Block, File, ServerTools, ToolCall, Usage
from burnd.records.foreign_json import Unpacked, unpack
from burnd.records.names import Name
from burnd.records.turn import LARGEST_COUNT, token_count

NOTHING: Final = msgspec.Raw(b"")
PLAIN_TEXT: Final = "text/plain"
ANY_BYTES: Final = "application/octet-stream"
_KINDS: Final = {name: kind for kind, names in PRODUCT.tools.items() for name in names.split()}
DELEGATES: Final = frozenset(PRODUCT.tools["delegate"].split())
_MCP_CALL: Final = "mcp_tool_use"
CALLS: Final = frozenset({"tool_use", "server_tool_use", _MCP_CALL})
# The user refused or stopped a call. A rule or a hook that forbids it is a failure like any other.
_REFUSAL: Final = re.compile(
    r"\s*(?:Error: )?(?:<tool_use_error>)?(?:"
    r"The user doesn.t want to (?:proceed with this tool use|take this action)"
    r"|\[Request interrupted by user"
    r"|User (?:rejected tool use|declined to answer|chose to stay in plan mode)"
    r"|The agent proposed a plan that was rejected by the user)"
)
_HEAD: Final = 200
_BILLED_APART: Final = frozenset({"advisor_message", "compaction"})
_SERVICE_TIERS: Final = ("batch", "flex", "priority")  # tiers that may have another price
_US_ONLY: Final = "us"


class CacheCreation(msgspec.Struct, gc=False):
    ephemeral_5m_input_tokens: int | None = None
    ephemeral_1h_input_tokens: int | None = None


class ServerToolUse(msgspec.Struct, gc=False):
    web_search_requests: int | None = None
    web_fetch_requests: int | None = None


class OutputDetails(msgspec.Struct, gc=False):
    thinking_tokens: int | None = None


class TokenCounts(msgspec.Struct, gc=False):
    input_tokens: int | None = None
    output_tokens: int | None = None
    cache_creation_input_tokens: int | None = None
    cache_read_input_tokens: int | None = None
    cache_creation: CacheCreation | None = None
    output_tokens_details: OutputDetails | None = None


class Iteration(TokenCounts, gc=False):
    """One model call within a response; most types are included in its sums."""

    type: str | None = None
    model: Name | None = None


class UsageObject(TokenCounts, gc=False):
    server_tool_use: ServerToolUse | None = None
    speed: Name | None = None
    service_tier: Name | None = None
    inference_geo: Name | None = None
    iterations: list[Iteration] | None = None


class Source(msgspec.Struct, gc=False):
    type: str | None = None
    media_type: str | None = None
    data: str | None = None
    content: msgspec.Raw = NOTHING


class ContentBlock(msgspec.Struct, gc=False):
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
    source: Source | str | None = None  # a string is the URL of a search result
    title: str | None = None


_results: Final = msgspec.json.Decoder(str | list[ContentBlock] | None)


class ApiCall(NamedTuple):
    """A tool call: its file, its prompt to an agent, its arguments as valid JSON, its shell command."""

    call: ToolCall
    file: str | None
    prompt: str | None
    input: msgspec.Raw
    command: Any = None


class Result(NamedTuple):
    blocks: tuple[Block, ...]
    hash: str
    head: str

    @property
    def is_refusal(self) -> bool:
        return _REFUSAL.match(self.head) is not None


class EmbeddedFile(NamedTuple):
    """A file in a content block, as text or base64; `kind` is the kind of its block in a turn."""

    kind: str
    mime: str
    name: str | None
    base64: str = ""
    text: str = ""

    @property
    def size(self) -> int:
        return decoded_size(self.base64) if self.base64 else size(self.text)

    @property
    def file(self) -> File | None:
        try:
            data = binascii.a2b_base64(self.base64) if self.base64 else None
        except ValueError:
            return None
        return File(mime=self.mime, name=self.name, data=data)


def parse_call(block: ContentBlock) -> ApiCall:
    """The call in a `tool_use` block; arguments that cannot be decoded are hashed as bytes."""
    name, raw = tool_name(block), block.input
    value, readable_input = unpack(raw) if raw else Unpacked(None, raw)
    arguments: dict[str, Any] = value if isinstance(value, dict) else {}
    kind, target = _KINDS.get(name), target_of(name, arguments)
    prompt = arguments.get("prompt") if kind == "delegate" else None
    return ApiCall(
        ToolCall(
            id=block.id or "",
            name=name,
            target=target,
            args_hash=args_hash(raw, value) if raw else None,
            edit_hash=edit_hash(target, arguments) if kind == "edit" else None,
        ),
        target if kind in ("edit", "read") else None,
        prompt if isinstance(prompt, str) else None,
        readable_input,
        arguments.get("command") if kind == "shell" else None,
    )


def tool_name(block: ContentBlock) -> str:
    """The name of a called tool; one at an MCP server that the provider called is named as the client would."""
    if block.type == _MCP_CALL and block.server_name:
        return f"mcp__{block.server_name}__{block.name or ''}"
    return block.name or ""


def target_of(name: str, arguments: dict[str, Any]) -> str | None:
    """A path, a command's verb, a host, an agent's type or a skill's name; never search terms, which are content."""
    kind = _KINDS.get(name)
    if kind == "shell":
        return verb_of(arguments.get("command"))
    if kind == "web":
        return host_of(arguments.get("url"))
    if kind == "skill":
        return first_word(arguments.get("skill") or arguments.get("command") or arguments.get("name"))
    if kind in ("edit", "read"):
        return text_target(arguments.get("file_path") or arguments.get("notebook_path"))
    key = {"search": "path", "delegate": "subagent_type"}.get(kind or "")
    return text_target(arguments.get(key)) if key else None


def result_of(call_id: str | None, raw: msgspec.Raw) -> Result:
    content = result_content(raw)
    if isinstance(content, str):
        data = content.encode()
        return Result((Block(kind="result", bytes=len(data), call_id=call_id),), short_hash(data), content[:_HEAD])
    digest = hashlib.sha256()
    text_bytes, images = 0, []
    for block_ in content:
        files = embedded_files(block_)
        if block_.text is not None:
            data = block_.text.encode()
        elif files:
            data = "".join(file.text or file.base64 for file in files).encode()
        else:
            data = bytes(block_.content) or msgspec.json.encode({"type": block_.type, "name": block_.name})
        digest.update(data)
        images += [Block(kind=file.kind, bytes=file.size, call_id=call_id) for file in files if file.base64]
        text_bytes += sum(size(file.text) for file in files) if files else len(data)
    blocks = [Block(kind="result", bytes=text_bytes, call_id=call_id)] if text_bytes or not images else []
    text = (content[0].text if content else None) or ""
    return Result((*blocks, *images), digest.hexdigest()[:HASH_DIGITS], text[:_HEAD])


def embedded_files(block: ContentBlock) -> list[EmbeddedFile]:
    source = block.source
    if isinstance(source, Source) and source.type == "content":
        return _composed_files(block.title, source.content)
    if block.type == "search_result":
        return _composed_files(block.title or (source if isinstance(source, str) else None), block.content)
    return _single_file(block)


def _single_file(block: ContentBlock) -> list[EmbeddedFile]:
    source = block.source
    if not isinstance(source, Source) or not source.data:
        return []
    if source.type == "text":
        return [EmbeddedFile("file", source.media_type or PLAIN_TEXT, block.title, text=source.data)]
    kind = "image" if block.type == "image" else "file"
    return [EmbeddedFile(kind, source.media_type or ANY_BYTES, block.title, base64=source.data)]


def _composed_files(name: str | None, raw: msgspec.Raw) -> list[EmbeddedFile]:
    content = result_content(raw)
    blocks = [ContentBlock(type="text", text=content)] if isinstance(content, str) else content
    text = "\n".join(block.text for block in blocks if block.text)
    files = [EmbeddedFile("file", PLAIN_TEXT, name, text=text)] if text else []
    return files + [file for block in blocks for file in _single_file(block)]


def result_content(raw: msgspec.Raw) -> str | list[ContentBlock]:
    if not raw:
        return ""
    try:
        return _results.decode(raw) or ""
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return bytes(raw).decode("utf-8", "replace")


def text_of(content: str | list[ContentBlock] | None) -> str:
    if content is None or isinstance(content, str):
        return content or ""
    return "\n".join([block.text for block in content if block.text and block.type == "text"])


class Bill(NamedTuple):
    """The usage of a response and its price terms; `billed_calls` are model calls outside of its counts."""

    usage: Usage = Usage()
    speed: str | None = None
    server_tools: ServerTools | None = None
    billed_calls: tuple[BilledCall, ...] = ()
    service_tier: str | None = None
    inference_geo: str | None = None


def bill_of(usage: UsageObject | None) -> Bill:
    if usage is None:
        return Bill()
    server_tools, speed, tier = None, usage.speed, usage.service_tier
    if (tools := usage.server_tool_use) is not None:
        search, fetch = token_count(tools.web_search_requests), token_count(tools.web_fetch_requests)
        server_tools = ServerTools(search=search, fetch=fetch) if search or fetch else None
    calls: tuple[BilledCall, ...] = ()
    if usage.iterations:
        apart = [(n, one) for n, one in enumerate(usage.iterations) if one.type in _BILLED_APART]
        calls = tuple([BilledCall(n, one.model, usage_of(one)) for n, one in apart])
    return Bill(
        usage_of(usage),
        speed if speed != "standard" else None,
        server_tools,
        calls,
        service_tier=tier if tier in _SERVICE_TIERS else None,
        inference_geo=usage.inference_geo if usage.inference_geo == _US_ONLY else None,
    )


def usage_of(counts: TokenCounts) -> Usage:
    """Disjoint counts: thinking apart from output, cache writes by lifetime.

    The stated total of cache writes is right; the part without a lifetime counts as the cheaper one.
    """
    details, split = counts.output_tokens_details, counts.cache_creation
    numbers: tuple[int, ...] = (
        counts.input_tokens or 0,
        counts.output_tokens or 0,
        counts.cache_read_input_tokens or 0,
        counts.cache_creation_input_tokens or 0,
        (details.thinking_tokens or 0) if details is not None else 0,
        (split.ephemeral_5m_input_tokens or 0) if split is not None else 0,
        (split.ephemeral_1h_input_tokens or 0) if split is not None else 0,
    )
    if min(numbers) < 0 or max(numbers) >= LARGEST_COUNT:
        numbers = tuple(map(token_count, numbers))
    fresh, output, read, written, thinking, five_minutes, one_hour = numbers
    thinking = min(thinking, output)
    if counts.cache_creation_input_tokens is not None:
        one_hour = min(one_hour, written)
        five_minutes = written - one_hour
    return Usage(
        input=fresh,
        output=output - thinking,
        reasoning=thinking,
        cache_read=read,
        cache_create_5m=five_minutes,
        cache_create_1h=one_hour,
    )
