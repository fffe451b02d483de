"""A scripted model that answers over HTTP like OpenAI's Responses API and records what it billed."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from burnd.records import Usage

_SUMMARY_ASKED = "CONTEXT CHECKPOINT COMPACTION"


class ScriptedModel:
    """Answers by the [[word]] in the newest prompt and the number of calls answered since."""

    def __init__(self) -> None:
        self.billed: list[Usage] = []
        self.hanging = threading.Event()
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
        """The events of an answer, the bill last."""
        yield {"type": "response.created", "response": {"id": "resp"}}
        made, hangs = self._made(request)
        for item in made:
            yield {"type": "response.output_item.done", "item": item}
        if hangs:
            self.hanging.set()
            self._release.wait(60)
            return
        number = len(self.billed) + 1
        self.billed.append(Usage(input=500 + number, output=80, reasoning=40, cache_read=1500))
        usage = {
            "input_tokens": 2000 + number,
            "input_tokens_details": {"cached_tokens": 1500},
            "output_tokens": 120,
            "output_tokens_details": {"reasoning_tokens": 40},
            "total_tokens": 2120 + number,
        }
        yield {"type": "response.completed", "response": {"id": f"resp_{number}", "usage": usage}}

    def _made(self, request: dict[str, Any]) -> tuple[list[dict[str, Any]], bool]:
        """The items of an answer, and whether it then never ends."""
        items = request["input"]
        if _SUMMARY_ASKED in json.dumps(items[-1]):
            return [_says("We looked at the notes.")], False
        newest = max((n for n, item in enumerate(items) if "[[" in json.dumps(item) and _is_prompt(item)), default=0)
        prompt = json.dumps(items[newest])
        answered = sum(str(item.get("type")).endswith("_output") for item in items[newest:])
        if "[[slow]]" in prompt:
            return [_says("this will take")], True
        calls = _calls(prompt, request, items)
        if answered < len(calls):
            return [_thinks(len(self.billed)), calls[answered]], False
        return [_thinks(len(self.billed)), _says("done")], False

    def _handler(model) -> type[BaseHTTPRequestHandler]:  # noqa: N805 - the handler's own self is another one
        class Handler(BaseHTTPRequestHandler):
            def log_message(self, *_: Any) -> None:
                pass

            def do_GET(self) -> None:
                self.send_error(404)

            def do_POST(self) -> None:
                request = json.loads(self.rfile.read(int(self.headers["content-length"])))
                self.send_response(200)
                self.send_header("content-type", "text/event-stream")
                for name, (percent, minutes) in {"primary": (12, 300), "secondary": (3.5, 10080)}.items():
                    self.send_header(f"x-codex-{name}-used-percent", str(percent))
                    self.send_header(f"x-codex-{name}-window-minutes", str(minutes))
                    self.send_header(f"x-codex-{name}-reset-at", str(int(time.time()) + 3600))
                self.end_headers()
                for event in model.reply(request):
                    self.wfile.write(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode())
                    self.wfile.flush()

        return Handler


def _is_prompt(item: dict[str, Any]) -> bool:
    return item.get("type") == "message" and item.get("role") == "user"


def _thinks(number: int) -> dict[str, Any]:
    told = [{"type": "summary_text", "text": "**Thinking**"}]
    return {"type": "reasoning", "id": f"rs_{number}", "summary": told, "encrypted_content": f"seal-{number}"}


def _says(words: str) -> dict[str, Any]:
    return {"type": "message", "role": "assistant", "id": "msg", "content": [{"type": "output_text", "text": words}]}


def _calls(prompt: str, request: dict[str, Any], items: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Calls for a prompt, in order, with the tools of this release."""
    if "[[tools]]" in prompt:
        return [_shell(request, "c1", "cat notes.txt"), _shell(request, "c2", "echo oops; exit 3")]
    if "[[agent]]" not in prompt:
        return []
    spaces = [tool["name"] for tool in request["tools"] if tool.get("type") == "namespace"]
    space = {"namespace": spaces[0]} if spaces else {}
    started = next((found for item in items[::-1] if (found := _agent_in(item))), "")
    given = {"message": "[[look]] around", "fork_context": True}
    return [_call("a1", "spawn_agent", given) | space, _call("a2", "wait_agent", {"targets": [started]}) | space]


def _agent_in(item: dict[str, Any]) -> str | None:
    try:
        found = json.loads(item.get("output", ""))["agent_id"]
    except (ValueError, TypeError, KeyError):
        return None
    return str(found)


def _shell(request: dict[str, Any], call_id: str, command: str) -> dict[str, Any]:
    tools = {tool.get("name") for tool in request["tools"]}
    if "exec_command" in tools:
        return _call(call_id, "exec_command", {"cmd": command})
    return _call(call_id, "shell", {"command": ["bash", "-lc", command]})


def _call(call_id: str, name: str, given: dict[str, Any]) -> dict[str, Any]:
    item = {"type": "function_call", "id": f"fc_{call_id}", "call_id": call_id, "name": name}
    return item | {"arguments": json.dumps(given)}
