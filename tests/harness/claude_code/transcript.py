"""Writes small transcripts like a client; by default each line follows the one before."""

from __future__ import annotations

from typing import Any

from tests.harness.collect import SESSION, line

_NOT_GIVEN: Any = object()


class Transcript:
    """The lines of one file. Uuids are u0, u1, ...; times go up by one second a line."""

    def __init__(self, version: str = "2.1.325", session: str = SESSION, prefix: str = "u", **envelope: Any) -> None:
        self.lines: list[bytes] = []
        self.last: str | None = None
        self._version, self._session, self._prefix = version, session, prefix
        self._envelope = envelope
        self._count = 0

    def add(self, kind: str, parent: Any = _NOT_GIVEN, ts: str | None = None, **fields: Any) -> str:
        """Append a line of the conversation; gives its uuid."""
        uuid = f"{self._prefix}{self._count}"
        envelope = {
            "parentUuid": self.last if parent is _NOT_GIVEN else parent,
            "isSidechain": False,
            "type": kind,
            "uuid": uuid,
            "timestamp": ts or self.time(self._count),
            "sessionId": self._session,
            "cwd": "/home/dev/app",
            "gitBranch": "main",
            "version": self._version,
        }
        self.bare(**{**envelope, **self._envelope, **fields})
        self.last = uuid
        return uuid

    def bare(self, **fields: Any) -> None:
        self.lines.append(line(**fields))
        self._count += 1

    def begin(self, second: int) -> None:
        """Time continues from here."""
        self._count = second

    @staticmethod
    def time(second: int) -> str:
        return f"2026-11-16T{second // 3600:02d}:{second // 60 % 60:02d}:{second % 60:02d}.000Z"

    def prompt(self, content: Any, **fields: Any) -> str:
        return self.add("user", message={"role": "user", "content": content}, **fields)

    def result(self, call: str, content: Any = "done", *, is_error: bool | None = None, **fields: Any) -> str:
        block = {"type": "tool_result", "tool_use_id": call, "content": content}
        if is_error is not None:
            block["is_error"] = is_error
        return self.prompt([block], **fields)

    def says(
        self,
        message: str,
        *blocks: dict[str, Any],
        output: int = 10,
        stop: str | None = "end_turn",
        done: bool = True,
        usage: dict[str, Any] | None = None,
        model: str = "claude-opus-5-5",
        bare_of_usage: bool = False,
        **fields: Any,
    ) -> str:
        """A line of an API response; `done` writes the key that only a completed response has."""
        body = {
            "id": message,
            "model": model,
            "role": "assistant",
            "content": list(blocks) or [{"type": "text", "text": "ok"}],
            "stop_reason": stop,
            "usage": {"input_tokens": 3, "output_tokens": output, **(usage or {})},
        }
        if done:
            body["stop_details"] = None
        if bare_of_usage:
            del body["usage"]
        return self.add("assistant", message=body, **{"requestId": f"req_{message}", **fields})

    def calls(self, message: str, *calls: dict[str, Any], **fields: Any) -> str:
        return self.says(message, *calls, **{"stop": "tool_use", **fields})

    def attach(self, kind: str, parent: Any = _NOT_GIVEN, rendered: str | None = None, **attachment: Any) -> str:
        shown: dict[str, Any] = {}
        if rendered is not None:
            shown = {"rendered": [{"content": rendered}], "renderedRole": "user"}
        return self.add("attachment", parent, attachment={"type": kind, **attachment}, **shown)


def text(value: str) -> dict[str, Any]:
    return {"type": "text", "text": value}


def thinking(value: str, signature: str = "sig") -> dict[str, Any]:
    return {"type": "thinking", "thinking": value, "signature": signature}


def call(call_id: str, name: str, **arguments: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": call_id, "name": name, "input": arguments}


def image(data: str = "aGVsbG8=", media_type: str = "image/png") -> dict[str, Any]:
    return {"type": "image", "source": {"type": "base64", "media_type": media_type, "data": data}}


def sample_lines() -> list[bytes]:
    t = Transcript()
    t.bare(type="queue-operation", timestamp="2026-11-16T00:00:00.000Z")
    t.bare(type="api-request", id="r1", timestamp="2026-11-16T00:00:00.000Z")
    t.prompt([text("fix the bug"), image()])
    t.attach("queued_command", prompt="and add one", origin={"kind": "human"}, rendered="and add one")
    t.says("m1", thinking("hm"), usage={"iterations": [{"type": "compaction", "output_tokens": 4}]}, requestRef="r1")
    t.calls("m1", call("c1", "Bash", command="pytest"), call("c2", "Task", prompt="p", subagent_type="x"))
    t.result("c1", [text("Exit code 1"), image()], toolUseResult={"agentId": "a1", "persistedOutputPath": "/x/y"})
    t.prompt("p", parent=None, isSidechain=True)
    t.says("s1", isSidechain=True, stop="refusal")
    t.add("system", None, subtype="compact_boundary", compactMetadata={"preTokens": 5})
    t.add("system", subtype="api_error", error={"status": 529})
    t.bare(type="cost-state", modelUsage={"m": {"inputTokens": 4}})
    t.bare(type="summary", summary="s", leafUuid="u1")
    t.says("x", model="<synthetic>", isApiErrorMessage=True)
    return t.lines
