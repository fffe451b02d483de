"""A scripted Messages API for real clients: answers each request with the next step of a script, as a stream."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import zstandard

Request = dict[str, Any]
Step = dict[str, Any]
INPUT, OUTPUT = 1_000, 10_000  # tokens of each response


class ScriptedApi:
    """The server's address and the requests it got, the oldest first."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.requests: list[Request] = []

    def texts(self) -> list[str]:
        """The texts of all tool results of all requests."""
        found = []
        for request in self.requests:
            for message in request["messages"]:
                blocks = message["content"] if isinstance(message["content"], list) else []
                found += [json.dumps(block.get("content")) for block in blocks if block.get("type") == "tool_result"]
        return found


def call(name: str, **arguments: Any) -> Step:
    """A step that calls a tool."""
    return {"type": "tool_use", "name": name, "input": arguments}


def text(words: str) -> Step:
    """A step that answers and ends the turn."""
    return {"type": "text", "text": words}


def with_thinking(step: Step, words: str) -> Step:
    """The same step after a block of thinking."""
    return {**step, "thinking": words}


@contextmanager
def scripted_api(step: Callable[[Request], Step]) -> Iterator[ScriptedApi]:
    """Serves an API whose response to each request with tools is what `step` returns for it."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length", 0)))
            if self.headers.get("content-encoding") == "zstd":
                body = zstandard.ZstdDecompressor().decompressobj().decompress(body)
            request = json.loads(body or b"{}")
            if self.path.endswith("/responses"):
                api.requests.append(request)
                self._send("text/event-stream", b"".join(_response_events(step(request), next(numbers))))
                return
            if "messages" not in request or "count_tokens" in self.path:
                self._send("application/json", b'{"input_tokens": 1}')
                return
            if request.get("tools"):
                api.requests.append(request)
                found = step(request)
            else:
                found = text("a title")
            number = next(numbers)
            if request.get("stream"):
                self._send("text/event-stream", b"".join(_events(found, number, request["model"])))
            else:
                self._send("application/json", json.dumps(_message(found, number, request["model"])).encode())

        def do_GET(self) -> None:
            self._send("application/json", b"{}")

        def do_HEAD(self) -> None:
            self._send("application/json", b"")

        def _send(self, kind: str, data: bytes) -> None:
            self.send_response(200)
            self.send_header("content-type", kind)
            self.send_header("content-length", str(len(data)))
            self.send_header("request-id", f"req_{id(data)}")
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    first = server.server_port * 1_000_000  # ids differ between servers
    numbers = iter(range(first, first + 1_000_000))
    api = ScriptedApi(f"http://127.0.0.1:{server.server_port}")
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield api
    finally:
        server.shutdown()
        server.server_close()


def _message(step: Step, number: int, model: str) -> dict[str, Any]:
    block = {name: value for name, value in step.items() if name != "thinking"}
    block |= {"id": f"toolu_{number:020d}"} if step["type"] == "tool_use" else {}
    words = step.get("thinking")
    before = [{"type": "thinking", "thinking": words, "signature": "c2lnbmVk"}] if words else []
    return {
        "id": f"msg_{number:020d}",
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": [*before, block],
        "stop_reason": "tool_use" if step["type"] == "tool_use" else "end_turn",
        "stop_sequence": None,
        "usage": {
            "input_tokens": INPUT,
            "output_tokens": OUTPUT,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": 0,
        },
    }


def _events(step: Step, number: int, model: str) -> Iterator[bytes]:
    message = _message(step, number, model)
    yield _event("message_start", message={**message, "content": [], "stop_reason": None})
    for index, block in enumerate(message["content"]):
        if block["type"] == "tool_use":
            yield _event("content_block_start", index=index, content_block={**block, "input": {}})
            deltas = [{"type": "input_json_delta", "partial_json": json.dumps(block["input"])}]
        elif block["type"] == "thinking":
            empty = {**block, "thinking": "", "signature": ""}
            yield _event("content_block_start", index=index, content_block=empty)
            deltas = [{"type": "thinking_delta", "thinking": block["thinking"]}]
            deltas.append({"type": "signature_delta", "signature": block["signature"]})
        else:
            yield _event("content_block_start", index=index, content_block={**block, "text": ""})
            deltas = [{"type": "text_delta", "text": block["text"]}]
        for delta in deltas:
            yield _event("content_block_delta", index=index, delta=delta)
        yield _event("content_block_stop", index=index)
    ending = {"stop_reason": message["stop_reason"], "stop_sequence": None}
    yield _event("message_delta", delta=ending, usage={"output_tokens": OUTPUT})
    yield _event("message_stop")


def _response_events(step: Step, number: int) -> Iterator[bytes]:
    """The same step as OpenAI's API streams it, with sealed reasoning before it."""
    if step["type"] == "tool_use":
        call = {"type": "function_call", "id": f"fc_{number}", "call_id": f"call_{number}", "name": step["name"]}
        item = {**call, "arguments": json.dumps(step["input"])}
    else:
        content = [{"type": "output_text", "text": step["text"]}]
        item = {"type": "message", "role": "assistant", "id": f"msg_{number}", "content": content}
    summary = [{"type": "summary_text", "text": "thinking it over"}]
    reasoning = {"type": "reasoning", "id": f"rs_{number}", "summary": summary, "encrypted_content": "c2VhbGVk"}
    usage = {"input_tokens": INPUT, "output_tokens": OUTPUT, "total_tokens": INPUT + OUTPUT}
    response = {"id": f"resp_{number}"}
    yield _event("response.created", response=response)
    for one in (reasoning, item):
        yield _event("response.output_item.done", item=one)
    yield _event("response.completed", response={**response, "usage": usage})


def _event(kind: str, **fields: Any) -> bytes:
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **fields})}\n\n".encode()
