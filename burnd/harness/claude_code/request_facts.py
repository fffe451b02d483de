"""Facts about requests: hashes of `api-request` lines and changes of the prompt, which can prove why a cache was
missed, and pull requests.

An `api-request` line has a hash of each message: those that it shares with its `base` are only counted (`keep`). The
line of a request may come before or after the lines of its response. Requests are compared with the last answered one
of the same origin, since only a response proves that the provider has read a prompt.
"""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Final

import msgspec

from burnd.classify.tools import kind, mcp_server
from burnd.harness.claude_code.lines import Attachment, BareLine, ClaudeMessage
from burnd.harness.claude_code.memory import Memory, keep
from burnd.harness.claude_code.state import MAX_CHANGES, MAX_MEMORY_FILES, MAX_PARTS, MAX_PULLS, MAX_SENT, Sent
from burnd.harness.tool_calls import creates_pull_request, pull_request_in, short_hash
from burnd.recording.candidate import Candidate
from burnd.records import MissStatement, PromptChange, RequestFacts, ToolCall
from burnd.records.content import MAIN
from burnd.records.names import bounded
from burnd.records.turn import token_count

_PART: Final = 8  # digits of a message's hash
_MEMORY_FILES: Final = frozenset({"claude.md", "claude.local.md", "agents.md", "memory.md"})
_params: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_output_config: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_texts: Final = msgspec.json.Decoder(str)
_NOT_COMPARED: Final = ("model", "max_tokens", "output_config", "metadata", "stream")


def read_facts(memory: Memory, line: BareLine) -> None:
    """Reads an `api-request` line, and adds its facts to its response if that was read before."""
    state = memory.state
    if line.id is None or line.id in state.sent:
        return
    origin = line.query_source or ""
    before, parts = state.latest.get(origin), _parts(memory, line)
    same = _same(line, parts, before)
    effort, params = _settings(line.params)
    sent = Sent(
        id=line.id,
        origin=origin,
        facts=RequestFacts(
            shape=short_hash(line.shape_hash.encode()) if line.shape_hash else None,
            params=params,
            effort=effort,
            messages=token_count(line.keep) + len(line.tail or ()),
            same=same,
            before=before.facts.messages if before is not None and same is not None else None,
            breakpoints=len(line.cache_control or ()),
        ),
        parts=parts,
    )
    keep(state.sent, line.id, sent, MAX_SENT)
    for candidate in list(state.candidates.values()):
        if candidate.request_ref == line.id:
            _answer(memory, candidate, sent)
            memory.touch(candidate)


def add_facts(memory: Memory, candidate: Candidate, message: ClaudeMessage) -> None:
    """Adds the facts of its request to a response, and what the provider states about its cache."""
    reason = message.diagnostics.cache_miss_reason if message.diagnostics is not None else None
    if reason is not None and reason.type and candidate.cache_miss is None:
        candidate.cache_miss = MissStatement(type=reason.type, tokens=token_count(reason.cache_missed_input_tokens))
    if candidate.request is None and candidate.request_ref is not None:
        sent = memory.state.sent.get(candidate.request_ref)
        if sent is not None:
            _answer(memory, candidate, sent)


def _answer(memory: Memory, candidate: Candidate, sent: Sent) -> None:
    candidate.request = sent.facts
    keep(memory.state.latest, sent.origin, sent, MAX_SENT)


def _parts(memory: Memory, line: BareLine) -> str | None:
    """The first digits of each message's hash; None if the line continues a request that is not in memory."""
    most = _PART * MAX_PARTS
    own = "".join([short_hash(bytes(part))[:_PART] for part in (line.tail or ())[:MAX_PARTS]])
    number = token_count(line.keep)
    if not number:
        return own
    base = memory.state.sent.get(line.base or "")
    if base is None:
        base = next((one for one in memory.state.latest.values() if one.id == line.base), None)
    if base is None or base.parts is None or len(base.parts) < min(_PART * number, most):
        return None
    return (base.parts[: _PART * number] + own)[:most]


def _same(line: BareLine, parts: str | None, before: Sent | None) -> int | None:
    """The number of leading messages that a request shares with the one before; None if that is not known."""
    if before is None:
        return None
    if line.base == before.id:
        return min(token_count(line.keep), before.facts.messages)
    if parts is None or before.parts is None:
        return None
    most = min(len(parts), len(before.parts))
    shared = next((n for n in range(most) if parts[n] != before.parts[n]), most) // _PART
    # Messages beyond those in memory may differ.
    return shared if shared < MAX_PARTS or before.facts.messages == MAX_PARTS else None


def _settings(raw: msgspec.Raw) -> tuple[str | None, str | None]:
    """The effort of a request, and a hash of its other settings: betas, thinking, context management."""
    try:
        params = _params.decode(raw) if raw else {}
        config = _output_config.decode(params["output_config"]) if "output_config" in params else {}
        effort = bounded(_texts.decode(config["effort"])) if "effort" in config else None
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None, None
    rest = {name: bytes(value) for name, value in params.items() if name not in _NOT_COMPARED}
    return effort, short_hash(b"".join([name.encode() + rest[name] for name in sorted(rest)])) if rest else None


def read_prompt_changes(memory: Memory, attachment: Attachment, *, is_begun: bool) -> None:
    """Notes tools and MCP servers that came or went, and memory files with another text."""
    if attachment.type in ("deferred_tools_delta", "mcp_instructions_delta") and is_begun:
        is_server = attachment.type == "mcp_instructions_delta"
        for names, removed in ((attachment.added_names, False), (attachment.removed_names, True)):
            for name in names or ():
                server = name if is_server else mcp_server(name)
                change = PromptChange(kind="mcp" if server else "tool", name=server or name, removed=removed)
                _add_change(memory, change)
    for file in attachment.files or ():
        if not file.path or file.content is None:
            continue
        text_hash, files = short_hash(file.content.encode()), memory.state.memory_files
        if files.get(file.path, text_hash) != text_hash:
            _add_change(memory, PromptChange(kind="memory", name=file.path))
        keep(files, file.path, text_hash, MAX_MEMORY_FILES)


def read_memory_edit(memory: Memory, call: ToolCall) -> None:
    """Notes an edit of a memory file."""
    if call.target and kind(call.name) == "edit" and PurePosixPath(call.target).name.lower() in _MEMORY_FILES:
        _add_change(memory, PromptChange(kind="memory", name=call.target))


def take_changes(memory: Memory) -> tuple[PromptChange, ...]:
    """The changes since the response before."""
    changes = tuple(memory.state.changes)
    memory.state.changes = []
    return changes


def _add_change(memory: Memory, change: PromptChange) -> None:
    changes = memory.state.changes
    if change not in changes and len(changes) < MAX_CHANGES:
        changes.append(change)


def read_pull_link(memory: Memory, address: str) -> None:
    """Reads a `pr-link` line, which clients repeat when a session continues: the first one of an address counts."""
    pull, state = pull_request_in(address), memory.state
    if pull is None or pull in state.pulls:
        return
    keep(state.pulls, pull, None, MAX_PULLS)
    main = state.rails.get(memory.path.rail_id or MAIN)
    candidate = memory.candidate(main.open) if main is not None else None
    if candidate is None:
        state.pull = pull
    elif candidate.pull_request is None:
        candidate.pull_request = pull
        memory.touch(candidate)


def take_pull(memory: Memory) -> str | None:
    """A pull request that was named before the first response."""
    pull, memory.state.pull = memory.state.pull, None
    return pull


def read_pull_call(memory: Memory, call_id: str, command: object) -> None:
    if creates_pull_request(command):
        keep(memory.state.pull_calls, call_id, None, MAX_PULLS)


def read_pull_result(memory: Memory, candidate: Candidate, call_id: str, content: msgspec.Raw) -> None:
    """Finds the address that `gh pr create` prints."""
    if call_id not in memory.state.pull_calls:
        return
    del memory.state.pull_calls[call_id]
    pull = pull_request_in(bytes(content).decode("utf-8", "replace"))
    if pull is not None:
        candidate.pull_request = pull
        keep(memory.state.pulls, pull, None, MAX_PULLS)
