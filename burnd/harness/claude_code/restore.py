"""Writes a session as a transcript of Claude Code: a line for each block, linked by uuids. Pure."""

from __future__ import annotations

import json
import uuid
from collections import Counter
from collections.abc import Iterable
from typing import Any

from burnd.harness.claude_code.product import NAME_LIMIT, PRODUCT, project_name
from burnd.harness.restore import (
    LOST,
    MAIN,
    MARK,
    NO_CALL,
    NO_CONTEXT,
    NOTE,
    SAVED,
    THINKING,
    Fields,
    NewFile,
    Recording,
    Restored,
    find_log_files,
)

_INLINE_RAIL = 36  # characters: an early sub-agent's rail is the uuid of its first line, in the main transcript
_MADE_UP = uuid.UUID("6f1b0a52-3d0c-4e0e-9c47-5b8d7f3f2a10")  # of uuids that are not recorded
_NO_META = ("<command-", "<local-command-", "<bash-", "<task-notification", "[Request interrupted")


def restore(recording: Recording) -> Restored:
    """The main transcript, and one for each sub-agent that has its own file."""
    name = project_name(recording.folder)
    # A longer name ends in a hash that differs between builds of the client; it also looks for the beginning.
    folder = f"projects/{name if len(name) <= NAME_LIMIT else f'{name[:NAME_LIMIT]}-restored'}"
    rails = recording.rails()
    agents = [rail for rail in rails if rail != MAIN and len(rail) < _INLINE_RAIL]
    main = _RestoredTranscript(recording, [rail for rail in rails if rail not in agents])
    titles: list[Fields] = [
        {"type": kind, field: title, "sessionId": recording.id}
        for name, kind, field in (("custom", "custom-title", "customTitle"), ("ai", "ai-title", "aiTitle"))
        if (title := recording.title(name))
    ]
    files = [NewFile(f"{folder}/{recording.id}.jsonl", main.text(titles))]
    for rail in agents:
        path = f"{folder}/{recording.id}/subagents/agent-{rail}"
        files.append(NewFile(f"{path}.jsonl", _RestoredTranscript(recording, [rail]).text()))
        turn = next((turn for turn in recording.turns.values() if turn["railId"] == rail), {})
        meta = {"agentType": turn.get("agentType"), "toolUseId": turn.get("parentToolUseId")}
        if any(meta.values()):
            files.append(NewFile(f"{path}.meta.json", _json({name: value for name, value in meta.items() if value})))
    return Restored(files, recording.missing)


def find_logs(folders: Iterable[str]) -> dict[str, str] | None:
    return find_log_files(folders, (PRODUCT.suffix,))


class _RestoredTranscript:
    """The lines of one file. `gaps` are lines that are left out, each with the line above it."""

    def __init__(self, recording: Recording, rails: list[str]) -> None:
        self._recording = recording
        self._lines: list[dict[str, Any]] = []
        self._gaps: dict[str, str | None] = {}
        self._last: dict[str, str | None] = {}
        self._calls: set[str] = set()
        self._names: dict[str, str] = {}
        for blocks in recording.lines(rails):
            self._add(blocks)

    def text(self, more: list[Fields] = []) -> str:  # noqa: B006 - only read
        lines = [{**line, "parentUuid": self._above(line["parentUuid"])} for line in self._lines]
        return "".join(_json({**line, **MARK}) + "\n" for line in (*lines, *more))

    def _above(self, name: str | None) -> str | None:
        for _ in self._gaps:
            if name not in self._gaps:
                break
            name = self._gaps[name]
        return name

    def _add(self, blocks: list[Fields]) -> None:
        first, recording = blocks[0], self._recording
        rail = first["railId"]
        is_response = first["role"] == "assistant" or first["messageId"] in recording.turns
        context = json.loads(first["context"]) if first.get("context") else []
        for line in context:
            self._last[rail] = line["uuid"]
            if "type" in line:
                self._lines.append(line | {"parentUuid": line.get("parentUuid")})
            else:
                self._gaps[line["uuid"]] = line["parentUuid"]
        if first["n"] and not is_response:
            recording.missing[SAVED] += 1
            return
        name = first.get("line") or (self._made_up(first) if is_response else first["messageId"])
        if context and context[-1]["uuid"] == name:
            return  # it was stored whole
        parent = first.get("parent")
        above = self._last.get(rail) if parent is None else parent or None
        self._last[rail] = name
        content = self._response(blocks) if is_response else self._input(blocks)
        if not content:
            self._gaps[name] = above
            return
        self._lines.append(self._line(first, name, above, content, is_response=is_response))

    def _made_up(self, record: Fields) -> str:
        self._recording.missing[NO_CONTEXT] += 1
        return str(uuid.uuid5(_MADE_UP, f"{record['messageId']} {record['n']}"))

    def _line(self, first: Fields, name: str, above: str | None, content: Any, *, is_response: bool) -> dict[str, Any]:
        recording, rail = self._recording, first["railId"]
        turns, message_id = recording.turns, first["messageId"]
        turn = turns.get(message_id) or next(iter(turns.values()), {})
        line: dict[str, Any] = {"parentUuid": above, "isSidechain": rail != MAIN}
        if rail != MAIN and len(rail) < _INLINE_RAIL:
            line["agentId"] = rail
        line |= {"userType": "external", "cwd": recording.folder, "sessionId": recording.id}
        line |= {"version": turn.get("version") or "2.0.0", "gitBranch": turn.get("branch") or ""}
        if is_response:
            line |= {"type": "assistant", "message": _message(message_id, turn, content)}
        else:
            line |= {"type": "user", "message": {"role": "user", "content": content}} | _flags(first, content)
        return line | {"uuid": name, "timestamp": first["ts"]}

    def _response(self, blocks: list[Fields]) -> list[Fields]:
        content: list[Fields] = []
        for record in blocks:
            if (use := record.get("toolUse")) is not None:
                self._calls.add(use["id"])
                self._names[use["id"]] = use["name"]
                kind = "server_tool_use" if use["id"].startswith("srvtoolu_") else "tool_use"
                arguments = self._recording.json(use["input"])
                made = {"type": kind, "id": use["id"], "name": use["name"]}
                content.append({**made, "input": arguments if isinstance(arguments, dict) else {"note": arguments}})
            elif (result := record.get("toolResult")) is not None:  # of a tool that the provider ran
                kind = f"{self._names.get(result['toolUseId'], 'web_search')}_tool_result"
                value = self._recording.json(result["content"])
                content.append({"type": kind, "tool_use_id": result["toolUseId"], "content": value})
            elif record["kind"] == "thinking":
                self._recording.missing[THINKING] += 1
            else:
                content.append({"type": "text", "text": self._recording.text(record.get("text"))})
        return content

    def _input(self, blocks: list[Fields]) -> str | list[dict[str, Any]]:
        """The blocks that the model received; a single text is the content itself."""
        recording = self._recording
        content: list[dict[str, Any]] = []
        holes: list[dict[str, Any]] = []
        for record in blocks:
            if (result := record.get("toolResult")) is not None:
                if result["toolUseId"] not in self._calls:
                    recording.missing[NO_CALL] += 1
                    continue
                value = recording.json(result["content"])
                holes = list(_holes(value))
                block = {"type": "tool_result", "tool_use_id": result["toolUseId"], "content": value}
                content.append(block | ({"is_error": result["isError"]} if "isError" in result else {}))
            elif record.get("file") is None:
                content.append({"type": "text", "text": recording.text(record.get("text"))})
            elif record["role"] == "tool_result":
                if holes:
                    hole = holes.pop(0)
                    hole |= {"data": data} if (data := recording.data(record)) else {}
            else:
                content.append(self._file(record))
        for hole in holes:
            recording.missing[LOST] += 1
            hole |= {"type": "text", "media_type": "text/plain", "data": NOTE}
        is_text = len(content) == 1 and content[0]["type"] == "text"
        return str(content[0]["text"]) if is_text else content

    def _file(self, record: Fields) -> dict[str, Any]:
        file = record["file"]
        if isinstance(record.get("text"), str):
            source = {"type": "text", "media_type": "text/plain", "data": record["text"]}
        elif (data := self._recording.data(record)) is not None:
            source = {"type": "base64", "media_type": file["mime"], "data": data}
        else:
            return {"type": "text", "text": NOTE}
        if file["mime"].startswith("image/"):
            return {"type": "image", "source": source}
        return {"type": "document", "source": source} | ({"title": file["name"]} if file.get("name") else {})


def _flags(first: Fields, content: Any) -> dict[str, bool]:
    if first["kind"] == "summary":
        return {"isCompactSummary": True, "isVisibleInTranscriptOnly": True}
    is_meta = first["role"] == "system" and isinstance(content, str) and not content.lstrip().startswith(_NO_META)
    return {"isMeta": True} if is_meta else {}


def _message(message_id: str, turn: Fields, content: Any) -> dict[str, Any]:
    usage: Counter[str] = Counter(turn.get("usage"))
    five_minutes, one_hour = usage["cacheCreate5m"], usage["cacheCreate1h"]
    return {
        "id": message_id,
        "type": "message",
        "role": "assistant",
        "model": turn.get("model") or "",
        "content": content,
        "stop_reason": turn.get("stopReason"),
        "stop_sequence": None,
        "usage": {
            "input_tokens": usage["input"],
            "output_tokens": usage["output"] + usage["reasoning"],
            "output_tokens_details": {"thinking_tokens": usage["reasoning"]},
            "cache_read_input_tokens": usage["cacheRead"],
            "cache_creation_input_tokens": five_minutes + one_hour,
            "cache_creation": {"ephemeral_5m_input_tokens": five_minutes, "ephemeral_1h_input_tokens": one_hour},
        },
    }


def _holes(value: Any) -> list[dict[str, Any]]:
    """The sources of a result's images and documents, whose bytes are in records of their own."""
    blocks = value if isinstance(value, list) else []
    sources = [block["source"] for block in blocks if isinstance(block, dict) and isinstance(block.get("source"), dict)]
    inner = [hole for source in sources for hole in _holes(source.get("content"))]
    return inner + [one for one in sources if one.get("type") not in ("text", "url", "file") and "data" not in one]


def _json(value: Fields) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
