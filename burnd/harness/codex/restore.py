"""Writes a session as a rollout of Codex. Pure, but for the time zone in the name of the file."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Any

from burnd.harness.codex.product import PRODUCT
from burnd.harness.restore import (
    MAIN,
    MARK,
    NO_CONTEXT,
    NOTE,
    THINKING,
    Fields,
    NewFile,
    Recording,
    Restored,
    filled,
    find_log_files,
)

_COMPRESSED = ".jsonl.zst"
# With their ids the provider asks for the reasoning before them, which cannot be replayed.
_NO_IDS = ("message", "function_call", "custom_tool_call", "local_shell_call", "web_search_call")


def restore(recording: Recording) -> Restored:
    created = str(recording.session.get("createdAt") or "1970-01-01T00:00:00.000Z")
    local = datetime.fromisoformat(created).astimezone()
    path = f"sessions/{local:%Y/%m/%d}/rollout-{local:%Y-%m-%dT%H-%M-%S}-{recording.id}.jsonl"
    lines = list(_lines(recording))
    if not any(line["type"] == "session_meta" for line in lines):
        lines.insert(0, _meta(recording, created))
    numbered = [{**line, "ordinal": ordinal, **MARK} for ordinal, line in enumerate(lines)]
    text = "".join(json.dumps(line, ensure_ascii=False, separators=(",", ":")) + "\n" for line in numbered)
    return Restored([NewFile(path, text)], recording.missing)


def find_logs(folders: Iterable[str]) -> dict[str, str] | None:
    """Archived and compressed rollouts are there like any other."""
    return find_log_files(folders, (PRODUCT.suffix, _COMPRESSED))


def _meta(recording: Recording, created: str) -> Fields:
    """The first line of a rollout that was recorded before such lines were stored."""
    turn = next(iter(recording.turns.values()), {})
    instructions = {record["b"]: record.get("text") for record in recording.records if _is_instructions(record)}
    meta = {
        "id": recording.id,
        "timestamp": created,
        "cwd": recording.folder,
        "originator": "codex_cli_rs",
        "cli_version": turn.get("version") or "0.0.0",
        "source": "cli",
        "model_provider": "openai",
    }
    base = {"base_instructions": {"text": instructions[0]}} if isinstance(instructions.get(0), str) else {}
    return {"timestamp": created, "type": "session_meta", "payload": meta | base}


def _is_instructions(record: Fields) -> bool:
    return str(record["messageId"]).endswith(":instructions")


def _lines(recording: Recording) -> Iterator[Fields]:
    totals: dict[str, int] = {}
    lines = list(recording.lines([MAIN]))
    last = {blocks[0]["messageId"]: number for number, blocks in enumerate(lines)}
    for number, blocks in enumerate(lines):
        yield from _line(recording, blocks)
        response = blocks[0]["messageId"]
        if last[response] == number and response in recording.turns:
            yield _count(recording.turns[response], totals)
    if title := recording.title("ai"):
        payload = {"type": "thread_name_updated", "thread_id": recording.id, "thread_name": title}
        yield {"timestamp": recording.session.get("updatedAt"), "type": "event_msg", "payload": payload}


def _line(recording: Recording, blocks: list[Fields]) -> Iterator[Fields]:
    first = blocks[0]
    by_number = {record["b"]: record for record in blocks}
    for line in json.loads(first["context"]) if first.get("context") else ():
        payload = filled(
            recording, line["payload"], by_number, lambda given: given["input"] if isinstance(given, dict) else NOTE
        )
        if payload.get("type") in _NO_IDS and payload.get("role", "assistant") == "assistant":
            payload.pop("id", None)
        yield line | {"payload": payload}
    if first["kind"] == "thinking":
        recording.missing[THINKING] += 1
    elif not first.get("context"):
        recording.missing[NO_CONTEXT] += 1
        if first["kind"] == "summary":
            payload = {"message": recording.text(first.get("text"))}
            yield {"timestamp": first["ts"], "type": "compacted", "payload": payload}
        elif (item := _item(recording, blocks)) is not None:
            yield {"timestamp": first["ts"], "type": "response_item", "payload": item}


def _item(recording: Recording, blocks: list[Fields]) -> dict[str, Any] | None:
    first = blocks[0]
    if _is_instructions(first):
        return None
    if (use := first.get("toolUse")) is not None:
        given = recording.json(use["input"])
        return {"type": "function_call", "name": use["name"], "arguments": json.dumps(given), "call_id": use["id"]}
    if (result := first.get("toolResult")) is not None:
        output = recording.text(recording.json(result["content"]))
        return {"type": "function_call_output", "call_id": result["toolUseId"], "output": output}
    role = "assistant" if first["role"] == "assistant" else "user"
    kind = "output_text" if role == "assistant" else "input_text"
    pieces: list[Fields] = []
    for record in blocks:
        if (file := record.get("file")) is None:
            pieces.append({"type": kind, "text": recording.text(record.get("text"))})
        elif (data := recording.data(record)) is not None:
            pieces.append({"type": "input_image", "image_url": f"data:{file['mime']};base64,{data}"})
    return {"type": "message", "role": role, "content": pieces}


def _count(turn: Fields, totals: dict[str, int]) -> Fields:
    usage = turn["usage"]
    written = usage["cacheCreate5m"] + usage["cacheCreate1h"]
    last = {
        "input_tokens": usage["input"] + usage["cacheRead"] + written,
        "cached_input_tokens": usage["cacheRead"],
        "cache_write_input_tokens": written,
        "output_tokens": usage["output"] + usage["reasoning"],
        "reasoning_output_tokens": usage["reasoning"],
    }
    last["total_tokens"] = last["input_tokens"] + last["output_tokens"]
    for name, tokens in last.items():
        totals[name] = totals.get(name, 0) + tokens
    info = {"total_token_usage": dict(totals), "last_token_usage": last, "model_context_window": None}
    return {
        "timestamp": turn["ts"],
        "type": "event_msg",
        "payload": {"type": "token_count", "info": info, "rate_limits": None},
    }
