"""A scripted model that answers over HTTP like the providers and records what it billed."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from burnd.records import Usage

TITLE = "A title nobody pays for"


class ScriptedModel:
    """Answers by the [[word]] in the newest prompt and the number of calls answered since."""

    def __init__(self, project: str) -> None:
        self.billed: list[Usage] = []
        self.hanging = threading.Event()
        self._project = project
        self._release = threading.Event()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}/v1"

    def close(self) -> None:
        self._release.set()
        self._server.shutdown()
        self._server.server_close()

    def reply(self, request: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """The pieces of an answer, the bill last."""
        messages = request["messages"]
        if not request.get("tools"):
            yield from _said(TITLE)
            yield _usage(7, 3)
            return
        newest = max(n for n, message in enumerate(messages) if message["role"] == "user")
        prompt, answered = json.dumps(messages[newest]), len(messages) - newest - 1
        if "[[slow]]" in prompt:
            yield from _said("this will take")
            self.hanging.set()
            self._release.wait(60)
            return
        call = self._call(prompt, answered // 2)
        yield from _said("done") if call is None else _called(*call)
        number = len(self.billed) + 1
        self.billed.append(Usage(input=500 + number, output=80, reasoning=40, cache_read=1500))
        yield _usage(2000 + number, 120, cached=1500, reasoning=40)

    def _call(self, prompt: str, step: int) -> tuple[str, dict[str, Any]] | None:
        calls: list[tuple[str, dict[str, Any]]] = []
        if "[[tools]]" in prompt:
            calls = [
                ("read", {"filePath": f"{self._project}/notes.txt"}),
                ("bash", {"command": "echo oops; exit 3", "description": "fail"}),
            ]
        elif "[[task]]" in prompt:
            calls = [("task", {"description": "look", "prompt": "[[sub]] look around", "subagent_type": "general"})]
        return calls[step] if step < len(calls) else None

    def _handler(model) -> type[BaseHTTPRequestHandler]:  # noqa: N805 - the handler's own self is another one
        class Handler(BaseHTTPRequestHandler):
            def log_message(self, *_: Any) -> None:
                pass

            def do_POST(self) -> None:
                request = json.loads(self.rfile.read(int(self.headers["content-length"])))
                self.send_response(200)
                self.send_header("content-type", "text/event-stream")
                self.end_headers()
                for piece in model.reply(request):
                    whole = {"id": "x", "object": "chat.completion.chunk", "created": 1, "model": "scripted"} | piece
                    self.wfile.write(b"data: " + json.dumps(whole).encode() + b"\n\n")
                    self.wfile.flush()
                self.wfile.write(b"data: [DONE]\n\n")

        return Handler


def _said(words: str) -> Iterator[dict[str, Any]]:
    yield {"choices": [{"index": 0, "delta": {"role": "assistant", "content": words}}]}
    yield {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}


def _called(name: str, given: dict[str, Any]) -> Iterator[dict[str, Any]]:
    function = {"name": name, "arguments": json.dumps(given)}
    call = {"index": 0, "id": f"call_{name}", "type": "function", "function": function}
    yield {"choices": [{"index": 0, "delta": {"role": "assistant", "tool_calls": [call]}}]}
    yield {"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]}


def _usage(prompt: int, completion: int, cached: int = 0, reasoning: int = 0) -> dict[str, Any]:
    usage = {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        "prompt_tokens_details": {"cached_tokens": cached},
        "completion_tokens_details": {"reasoning_tokens": reasoning},
    }
    return {"choices": [], "usage": usage}
