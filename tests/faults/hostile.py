"""Logs and rows that are made to take memory or time, and a daemon that is watched while it reads them."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from burnd.paths import Home
from tests.harness.opencode import data as opencode_data
from tests.server.logs import projects
from tests.server.wire import Daemon

MB = 1 << 20
TIME = "2026-11-16T10:00:00.000Z"
BESIDE = "beside"


class Measured(NamedTuple):
    """MB of all processes of a daemon while it read, and seconds."""

    peak_mb: float
    latest_s: float  # until a line of another session was seen, the slowest of all
    stop_s: float  # from SIGTERM to its end
    turns: int  # of the hostile session
    cpu_s: float  # that its own process took


def claude(session: str, content: bytes, before: bytes = b"", within: bytes = b"", cwd: bytes = b'"/p"') -> bytes:
    """An assistant's line in the order in which Claude Code writes its fields."""
    return (
        b'{"parentUuid":null,"cwd":' + cwd + b',"sessionId":"' + session.encode() + b'",' + before
        + b'"message":{"model":"claude-sonnet-4-5","id":"m-' + session.encode() + b'","role":"assistant","content":'
        + content + b"," + within + b'"stop_reason":"end_turn","usage":{"input_tokens":1,"output_tokens":7}},'
        + b'"type":"assistant","uuid":"u-' + session.encode() + b'","timestamp":"' + TIME.encode() + b'"}\n'
    )  # fmt: skip


def codex(session: str, items: list[bytes]) -> bytes:
    """A rollout of one response with these items."""

    def wrapped(kind: bytes, payload: bytes) -> bytes:
        return b'{"timestamp":"%s","type":"%s","payload":%s}\n' % (TIME.encode(), kind, payload)

    usage = b'{"input_tokens":1,"cached_input_tokens":0,"output_tokens":7,"reasoning_output_tokens":0,"total_tokens":8}'
    meta = b'{"id":"%s","timestamp":"%s","cwd":"/p"}' % (session.encode(), TIME.encode())
    lines = [
        wrapped(b"session_meta", meta),
        wrapped(b"turn_context", b'{"turn_id":"t","model":"gpt-5"}'),
        *(wrapped(b"response_item", item) for item in items),
        wrapped(
            b"event_msg",
            b'{"type":"token_count","info":{"total_token_usage":%s,"last_token_usage":%s}}' % (usage, usage),
        ),
    ]
    return b"".join(lines)


def listed(block: bytes, megabytes: float) -> bytes:
    """A list of one block again and again, so many MB long."""
    return b"[" + b",".join([block] * int(megabytes * MB / (len(block) + 1))) + b"]"


def one_text(unit: bytes, megabytes: float, kind: bytes = b"text") -> bytes:
    return b'[{"type":"%s","%s":"' % (kind, kind) + unit * int(megabytes * MB / len(unit)) + b'"}]'


def one_input(value: bytes) -> bytes:
    return b'[{"type":"tool_use","id":"c","name":"Write","input":{"file_path":"/p/a","content":' + value + b"}}]"


def user(session: str, text: bytes) -> bytes:
    return (
        b'{"parentUuid":null,"sessionId":"' + session.encode() + b'","type":"user","message":{"role":"user","content":"'
        + text + b'"},"uuid":"p","timestamp":"' + TIME.encode() + b'"}\n'
    )  # fmt: skip


def one_result(session: str, content: bytes) -> bytes:
    return (
        b'{"parentUuid":null,"sessionId":"' + session.encode() + b'","type":"user","message":{"role":"user","content":'
        b'[{"type":"tool_result","tool_use_id":"c","content":' + content + b']}]},"uuid":"r","timestamp":"'
        + TIME.encode() + b'"}\n'
    )  # fmt: skip


def claude_logs(size: float) -> dict[str, Callable[[str], bytes]]:
    """By name, logs of about so many MB."""
    tool = b'{"type":"tool_use","id":"c","name":"Read","input":{"file_path":"/a"}}'
    result = b'{"type":"tool_result","tool_use_id":"c","content":"x"}'
    deep = int(size * MB / 2)
    return {
        "text blocks": lambda s: claude(s, listed(b'{"type":"text","text":"a"}', size)),
        "thinking blocks": lambda s: claude(s, listed(b'{"type":"thinking","thinking":"a"}', size)),
        "calls": lambda s: claude(s, listed(tool, size)),
        "results": lambda s: claude(s, b"[]") + one_result(s, b"[" + listed(b'{"type":"text","text":"a"}', size)[1:-1]),
        "results in one line": lambda s: claude(s, listed(result, size)),
        "empty blocks": lambda s: claude(s, listed(b"{}", size)),
        "one long text": lambda s: claude(s, one_text(b"word, ", size)),
        "one long text with an emoji": lambda s: claude(s, one_text(b"word, ", size / 2)[:-3] + "😀".encode() + b'"}]'),
        "one long thought": lambda s: claude(s, one_text(b"word ", size, b"thinking")),
        "one long text of escapes": lambda s: claude(s, one_text(b'\\"\\n', size)),
        "one long text of halves of pairs": lambda s: claude(s, one_text(b"\\ud800", size)),
        "one long input": lambda s: claude(s, one_input(b'"' + b"a, b\\n" * int(size * MB / 6) + b'"')),
        "an input of many lists": lambda s: claude(s, one_input(listed(b"[[],{}]", size))),
        "keys of the line": lambda s: claude(s, b"[]", before=b'"k":0,' * int(size * MB / 6)),
        "keys of the input": lambda s: claude(s, one_input(b"{" + b'"k":0,' * int(size * MB / 6) + b'"k":0}')),
        "a number without end": lambda s: claude(s, b"[]", within=b'"n":' + b"1" * int(size * MB) + b","),
        "deep": lambda s: claude(s, b"[]") + b'{"x":' + b"[" * deep + b"]" * deep + b"}\n",
        "no JSON": lambda s: claude(s, b"[]") + b"{" * int(size * MB) + b"\n",
        "blank lines": lambda s: claude(s, b"[]") + b"\n" * int(size * MB),
        "lines of blanks": lambda s: claude(s, b"[]") + b"  \r\n" * int(size * MB / 4),
        "tiny lines": lambda s: claude(s, b"[]") + b"{}\n" * int(size * MB / 3),
        "lines that are no JSON": lambda s: claude(s, b"[]") + b"x\n" * int(size * MB / 2),
        "long lines in a row": lambda s: (
            claude(s, b"[]") + user(s, "😀".encode() + b"word, " * int(size * MB / 12)) * 6
        ),
        "a folder of many parts": lambda s: claude(s, b"[]", cwd=b'"' + b"/a" * int(size * MB / 100) + b'"'),
    }


def codex_logs(size: float) -> dict[str, Callable[[str], bytes]]:
    call = b'{"type":"function_call","name":"shell","call_id":"c","arguments":"%s"}'
    message = b'{"type":"message","role":"assistant","content":%s}'
    return {
        "pieces": lambda s: codex(s, [message % listed(b'{"type":"output_text","text":"a"}', size)]),
        "one long text": lambda s: codex(s, [message % one_text(b"word, ", size)]),
        "one long call": lambda s: codex(s, [call % (b"a, b " * int(size * MB / 5))]),
        "many calls": lambda s: codex(s, [call % b"{}"] * int(size * MB / 130)),
        "blank lines": lambda s: codex(s, []) + b"\n" * int(size * MB),
    }


def write_rows(path: Path, session: str, parts: list[bytes]) -> None:
    """An opencode session of one step with these parts."""
    with closing(opencode_data.Writer(path)) as writer:
        writer.session(session)
        writer.user(f"{session}-u", session, "go")
        usage = opencode_data.tokens(input=1, output=7)
        writer.step(f"{session}-a", session, f"{session}-u", opencode_data.text("hi"), tokens=usage)
        for n, part in enumerate(parts):
            writer.db.execute(
                "INSERT INTO part (id, message_id, session_id, time_created, time_updated, data) VALUES (?,?,?,?,?,?)",
                (f"zz{n:06d}", f"{session}-a", session, 5, 5, part.decode()),
            )


def opencode_parts(size: float) -> dict[str, Callable[[], list[bytes]]]:
    call = b'{"type":"tool","tool":"read","callID":"c","state":{"status":"completed","input":{},"output":"%s"}}'
    given = b'{"type":"tool","tool":"read","callID":"c","state":{"status":"completed","input":%s,"output":""}}'
    return {
        "one long part": lambda: [call % (b"word, " * int(size * MB / 6))],
        "many long parts": lambda: [call % (b"word, " * (MB // 2))] * int(size / 3),
        "many parts": lambda: [b'{"type":"text","text":"a"}'] * int(size * MB / 200),
        "an input of many lists": lambda: [given % listed(b"[[],{}]", size)],
    }


@contextmanager
def watched(home: Home) -> Iterator[tuple[Daemon, list[float]]]:
    """A daemon, and the memory of all its processes, taken again and again."""
    projects(home).mkdir(parents=True, exist_ok=True)  # a root made later is found by the next check, within 5 s
    daemon = Daemon(home, script="burnd.cli")  # no fork: memory that is shared would not count as its own
    taken: list[float] = []
    over = threading.Event()

    def watch() -> None:
        while not over.wait(0.05):
            taken.append(rss_mb(daemon.process.pid))

    watcher = threading.Thread(target=watch, daemon=True)
    try:
        daemon.wait_until_ready()
        watcher.start()
        yield daemon, taken
    finally:
        over.set()
        daemon.kill()


def measure(home: Home, session: str, write: Callable[[], None], seconds: float = 120.0) -> Measured:
    """Writes something while another session grows, until its turn is recorded and all is quiet again."""
    with watched(home) as (daemon, taken), daemon.wire() as wire:
        wire.call("tail", session=BESIDE)
        beside = projects(home) / "-p" / f"{BESIDE}.jsonl"
        beside.parent.mkdir(parents=True, exist_ok=True)
        late: list[float] = []
        _say(beside, 0, wire_line(wire, "b0"))
        write()
        deadline = time.monotonic() + seconds
        n = quiet = 0
        while quiet < 5 and time.monotonic() < deadline:
            n += 1
            late.append(_say(beside, n, wire_line(wire, f"b{n}")))
            time.sleep(0.2)
            quiet = quiet + 1 if turns_of(home, session) and late[-1] < 1.0 else 0
        cpu_s = sum(map(int, Path(f"/proc/{daemon.process.pid}/stat").read_text().split()[13:15])) / 100
        begun = time.monotonic()
        daemon.process.send_signal(signal.SIGTERM)
        daemon.process.wait(60)
        return Measured(max(taken), max(late), time.monotonic() - begun, turns_of(home, session), cpu_s)


def wire_line(wire: object, name: str) -> Callable[[], None]:
    """Waits until a turn of this message is seen."""

    def wait() -> None:
        while True:
            found = wire.line()  # type: ignore[attr-defined]
            assert found is not None
            turn = (found.get("params") or {}).get("turn") or {}
            if turn.get("messageId") == name:
                return

    return wait


def _say(path: Path, n: int, wait: Callable[[], None]) -> float:
    """Seconds until a line is seen that is written now."""
    usage = {"input_tokens": 1, "output_tokens": 1}
    message = {"id": f"b{n}", "model": "claude-sonnet-4-5", "role": "assistant", "content": [], "usage": usage}
    line = {"type": "assistant", "uuid": f"b{n}", "sessionId": BESIDE, "timestamp": TIME, "message": message}
    begun = time.monotonic()
    with path.open("ab") as file:
        file.write(json.dumps(line).encode() + b"\n")
    wait()
    return time.monotonic() - begun


def turns_of(home: Home, session: str) -> int:
    sql = "SELECT count(*) FROM turns t JOIN sessions s ON s.id = t.session WHERE s.session_id = ? AND t.output = 7"
    with suppress(sqlite3.Error), closing(sqlite3.connect(f"file:{home.index_db}?mode=ro", uri=True)) as db:
        return int(db.execute(sql, (session,)).fetchone()[0])
    return 0


def rss_mb(pid: int) -> float:
    """The memory of a process and of those it started, just now; pages that several share are divided among them."""
    total = 0.0
    with suppress(OSError, StopIteration):  # it has ended
        rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
        total = int(next(line for line in rollup.splitlines() if line.startswith("Pss:")).split()[1]) / 1024
        for task in os.listdir(f"/proc/{pid}/task"):
            total += sum(map(rss_mb, map(int, Path(f"/proc/{pid}/task/{task}/children").read_text().split())))
    return total
