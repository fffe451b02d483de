"""Reads a log of the made-up product: a line for the session, for each prompt, each answer and each result."""

from __future__ import annotations

import copy
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from burnd.classify.keywords import prompt_words
from burnd.harness.tool_calls import args_hash, short_hash, size, text_target, verb_of
from burnd.logfiles.log_reader import NEVER, LogReading, decode_line, iso, tally
from burnd.recording.candidate import Candidate, LineKey
from burnd.records import Block, Content, Session, ToolCall, ToolResult, ToolUse, Usage
from burnd.records.content import MAIN
from burnd.records.foreign_json import SafeDecoder
from burnd.records.turn import FORKED

from .product import PRODUCT


class CallLine(msgspec.Struct):
    """A tool call in an answer."""

    id: str = ""
    tool: str = ""
    arguments: dict[str, Any] = {}


class Line(msgspec.Struct):
    """A line of any type."""

    type: str = ""
    time: str | None = None
    id: str = ""
    text: str = ""
    folder: str | None = None
    model: str = ""
    usage: dict[str, int] = {}
    calls: list[CallLine] = []
    failed: bool = False


class State(msgspec.Struct):
    """State to continue after the last line, without conversation text."""

    ts: str = NEVER
    begun: str = NEVER
    project: str | None = None
    number: int = 0
    prompt_id: str | None = None
    prompt_words: tuple[str, ...] = ()
    entering: list[Block] = []
    current: Candidate | None = None


_LINES: Final = SafeDecoder(Line)
_encode: Final = msgspec.msgpack.Encoder().encode
_decoder: Final = msgspec.msgpack.Decoder(State)


def load_state(data: bytes | None) -> State | None:
    """The state in these bytes; None if a reader has to begin at the start of the log."""
    try:
        return _decoder.decode(data) if data else None
    except msgspec.DecodeError:
        return None


class MadeUpReader:
    """Reads the lines of one log, in file order."""

    def __init__(self, session_id: str, state: State | None = None) -> None:
        self._session_id, self._state = session_id, state or State()
        self._out = LogReading()
        self._changed: dict[str, Candidate] = {}

    def feed(self, line: bytes, offset: int) -> str | None:
        """Reads one line that begins at `offset` in its file; returns the reason if any of it could not be used."""
        self._out.counts.lines += 1
        value, reason = decode_line(_LINES, line, offset, self._out.counts)
        if value is None:
            return reason
        self._state.ts = iso(value.time) or self._state.ts
        message_id = value.id or f"{self._session_id}:{offset}"
        match value.type:
            case "session":
                self._read_session(value)
            case "prompt":
                self._read_prompt(value, message_id)
            case "answer":
                self._read_answer(value, message_id)
            case "result":
                self._read_result(value, f"{self._session_id}:{offset}")
            case other:
                tally(self._out.counts.unknown, other or "(none)")
        return reason

    def flush(self, *, answered_only: bool = False) -> None:
        """Settles the newest answer."""
        current = self._state.current
        if current is not None and not current.settled and (current.answered or not answered_only):
            current.settled = True
            self._changed[current.message_id] = current

    def open_candidates(self) -> list[Candidate]:
        """The newest answer, while results of its calls may come."""
        current = self._state.current
        return [current] if current is not None and not current.settled else []

    def waiting_sessions(self) -> set[str]:
        return {candidate.session_id for candidate in self.open_candidates()}

    def take(self) -> LogReading:
        """All that came out since the last take, and the state to go on from."""
        out = self._out
        out.candidates = [copy.copy(candidate) for candidate in self._changed.values()]
        out.session_id, out.state = self._session_id, _encode(self._state)
        self._out, self._changed = LogReading(), {}
        return out

    def again(self) -> bytes:
        return b""

    def _read_session(self, line: Line) -> None:
        self._state.project, self._state.begun = line.folder, self._state.ts
        self._out.sessions.append(
            Session(session_id=self._session_id, source=PRODUCT.source, project=line.folder, created_at=self._state.ts)
        )

    def _read_prompt(self, line: Line, message_id: str) -> None:
        self.flush()
        state = self._state
        state.prompt_id, state.prompt_words = message_id, prompt_words(line.text)
        state.entering.append(Block(kind="prompt", bytes=size(line.text)))
        self._add_content(message_id, role="user", kind="text", text=line.text)

    def _read_answer(self, line: Line, message_id: str) -> None:
        self.flush()
        state, usage = self._state, Usage(**{_USAGE[name]: n for name, n in line.usage.items() if name in _USAGE})
        state.current = Candidate(
            message_id=message_id,
            session_id=self._session_id,
            rail_id=MAIN,
            turn_index=state.number,
            ts=state.ts,
            source=PRODUCT.source,
            parent=state.current.message_id if state.current is not None else None,
            rank=FORKED if state.ts < state.begun else 0,  # a fork repeats older lines
            best=LineKey(usage.output, state.ts),
            usage=usage,
            final=True,
            model=line.model,
            calls=tuple(map(_call_of, line.calls)),
            entered=tuple(state.entering),
            made=(Block(kind="text", bytes=size(line.text)), *map(_block_of, line.calls)),
            project=state.project,
            prompt_id=state.prompt_id,
            prompt_words=state.prompt_words,
        )
        self._changed[message_id] = state.current
        state.number, state.entering = state.number + 1, []
        self._add_content(message_id, role="assistant", kind="text", text=line.text)
        for b, call in enumerate(line.calls, 1):
            use = ToolUse(id=call.id, name=call.tool, input=_raw(call.arguments))
            self._add_content(message_id, b=b, role="assistant", kind="tool_use", tool_use=use)

    def _read_result(self, line: Line, message_id: str) -> None:
        current = self._state.current
        if current is not None:
            outcome = {"is_error": line.failed, "result_hash": short_hash(line.text.encode())}
            current.calls = tuple(replace(one, **outcome) if one.id == line.id else one for one in current.calls)
            self._changed[current.message_id] = current
        self._state.entering.append(Block(kind="result", bytes=size(line.text), call_id=line.id))
        result = ToolResult(tool_use_id=line.id, content=_raw(line.text), is_error=line.failed)
        self._add_content(message_id, role="tool_result", kind="tool_result", tool_result=result)

    def _add_content(self, message_id: str, *, b: int = 0, **block: Any) -> None:
        self._out.content.append(
            Content(
                session_id=self._session_id,
                rail_id=MAIN,
                message_id=message_id,
                n=0,
                b=b,
                ts=self._state.ts,
                **block,
            )
        )


_USAGE: Final = {"input": "input", "output": "output", "cached": "cache_read", "written": "cache_create_5m"}


def _call_of(call: CallLine) -> ToolCall:
    shell = PRODUCT.tools["shell"].split()
    target = verb_of(call.arguments.get("command")) if call.tool in shell else text_target(call.arguments.get("path"))
    return ToolCall(
        id=call.id, name=call.tool, target=target, args_hash=args_hash(_raw(call.arguments), call.arguments)
    )


def _block_of(call: CallLine) -> Block:
    return Block(kind="call", bytes=len(bytes(_raw(call.arguments))), call_id=call.id)


def _raw(value: Any) -> msgspec.Raw:
    return msgspec.Raw(msgspec.json.encode(value))
