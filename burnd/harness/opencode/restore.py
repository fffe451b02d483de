"""Writes a session as a file that `opencode import` takes. Pure, but for the search for sessions in databases."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable
from contextlib import closing
from datetime import datetime
from typing import Any
from urllib.parse import quote

from burnd.harness.restore import HOLE, MAIN, NO_CONTEXT, NOTE, Fields, NewFile, Recording, Restored, filled

SAVED_OUTPUT = 1 << 20  # block number of a whole output: after all blocks of a part, which has it only in part


def restore(recording: Recording) -> Restored:
    messages: dict[str, dict[str, Fields]] = {}
    for record in recording.records:
        if record["railId"] == MAIN and not record["messageId"].startswith("title:") and record["b"] < SAVED_OUTPUT:
            messages.setdefault(record["messageId"], {})[f"{record['n']}.{record['b']}"] = record
    made = [_message(recording, message_id, records) for message_id, records in messages.items()]
    made.sort(key=lambda message: (message["info"]["time"]["created"], message["info"]["id"]))
    export = {"info": _session(recording, made), "messages": made}
    text = json.dumps(export, ensure_ascii=False, indent=1)
    return Restored([NewFile(f"{recording.id}.json", text)], recording.missing, ("import",))


def find_logs(databases: Iterable[str]) -> dict[str, str] | None:
    databases, sessions = list(databases), dict[str, str]()
    for path in databases:
        try:
            with closing(sqlite3.connect(f"file:{quote(path)}?mode=ro", uri=True)) as db:
                sessions |= {str(one): path for (one,) in db.execute("SELECT id FROM session")}
        except sqlite3.Error:
            return None
    return sessions if databases else None


def _session(recording: Recording, messages: list[dict[str, Any]]) -> Fields:
    session = recording.session
    created = _ms(session.get("createdAt")) or (messages[0]["info"]["time"]["created"] if messages else 0)
    turn = next(iter(recording.turns.values()), {})
    parent = {"parentID": session["parentSessionId"]} if session.get("parentSessionId") else {}
    return {
        "id": recording.id,
        "slug": "restored",
        "projectID": "global",
        "directory": recording.folder,
        "title": recording.title("opencode") or session.get("title") or "restored session",
        "version": turn.get("version") or "1.0.0",
        "time": {"created": created, "updated": _ms(session.get("updatedAt")) or created},
        **parent,
    }


def _message(recording: Recording, message_id: str, records: dict[str, Fields]) -> dict[str, Any]:
    context = next((record["context"] for record in records.values() if record.get("context")), None)
    if context is None:
        recording.missing[NO_CONTEXT] += len(records)
        stored = _without_context(recording, message_id, records)
    else:
        stored = json.loads(context)
    whole = filled(recording, stored, records, lambda given: given if isinstance(given, dict) else {"note": NOTE})
    own = {"sessionID": recording.id, "messageID": message_id}
    return {
        "info": {**whole["info"], "id": message_id, "sessionID": recording.id},
        "parts": [{**part, **own} for part in whole["parts"]],
    }


def _without_context(recording: Recording, message_id: str, records: dict[str, Fields]) -> dict[str, Any]:
    turn, first = recording.turns.get(message_id), next(iter(records.values()))
    created = _ms(first["ts"])
    any_turn = turn or next(iter(recording.turns.values()), {})
    model = {"providerID": any_turn.get("provider") or "", "modelID": any_turn.get("model") or ""}
    info: dict[str, Any] = {"role": "user", "time": {"created": created}, "agent": "build", "model": model}
    if turn is not None:
        usage = turn["usage"]
        cache = {"read": usage["cacheRead"], "write": usage["cacheCreate5m"] + usage["cacheCreate1h"]}
        tokens = {name: usage[name] for name in ("input", "output", "reasoning")}
        info = {
            "role": "assistant",
            "parentID": turn.get("promptId") or "",
            "mode": "build",
            "agent": "build",
            "path": {"cwd": recording.folder, "root": "/"},
            "cost": turn.get("statedUsd") or 0,
            "tokens": {**tokens, "cache": cache},
            **model,
            "time": {"created": created, "completed": created},
            "finish": turn.get("stopReason") or "stop",
        }
    results = {one["toolResult"]["toolUseId"]: name for name, one in records.items() if "toolResult" in one}
    parts: list[Fields] = []
    for name, record in records.items():
        part = {"id": f"prt_{message_id.removeprefix('msg_')}{len(parts):04d}"}
        times = {"start": created, "end": created}
        if (use := record.get("toolUse")) is not None:
            output = {"output": {HOLE: results[use["id"]]}} if use["id"] in results else {"output": NOTE}
            state = {
                "status": "completed",
                "input": {HOLE: name},
                **output,
                "title": "",
                "metadata": {},
                "time": times,
            }
            parts.append({**part, "type": "tool", "tool": use["name"], "callID": use["id"], "state": state})
        elif record["kind"] in ("text", "summary"):
            hidden = {"synthetic": True} if record["role"] == "system" else {}
            parts.append({**part, "type": "text", "text": {HOLE: name}, **hidden})
        elif record["kind"] == "file" and record["role"] == "user":
            file = record["file"]
            parts.append(
                {**part, "type": "file", "mime": file["mime"], "filename": file.get("name"), "url": {HOLE: name}}
            )
    return {"info": info, "parts": parts}


def _ms(time: str | None) -> int:
    return int(datetime.fromisoformat(time).timestamp() * 1000) if time else 0
