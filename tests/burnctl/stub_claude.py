"""Replaces Claude Code: writes transcripts like it and behaves as STUB_DO states.

Started as `claude` from a folder on PATH, by the interpreter of the tests. First it writes to STUB_NOTE its arguments,
signals, process group and the spool at that moment. STUB_DO is a list of actions:
  talk        writes a turn of the session, and one of a subagent, into the transcript
  live        writes its process and session into the registry, `sessions/<pid>.json`
  clear       continues with another session, STUB_CLEARED, as after /clear, and registers it
  background  leaves a process behind that does the same with STUB_BACKGROUND, as `--bg` does, and talks in it
  silent N    sleeps N seconds
  wait        prints READY, then waits for a signal and writes its name to STUB_NOTE.signal
  wait-all    the same in a loop: only SIGKILL or SIGTERM ends it
  stop        stops itself, as on Ctrl-Z, and prints AWAKE when continued
  read        reads a line from the terminal and prints it
  size        prints the width of the terminal
  exit N      exits with this code
  die N       ends by this signal
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

SECRET, SUBAGENT_SECRET = "the walrus is called Hieronymus", "the subagent calls it Balthasar"


def main() -> None:
    _note()
    words = iter(os.environ.get("STUB_DO", "").split())
    for word in words:
        if word in ("silent", "exit", "die"):
            _ends(word, next(words))
        else:
            _DEEDS[word]()


def _note() -> None:
    if (note := os.environ.get("STUB_NOTE")) is None:
        return
    spool = Path(os.environ.get("RELAYBURN_HOME", "/nowhere")) / "spool"
    facts = {
        "argv": sys.argv[1:],
        "pid": os.getpid(),
        "group": os.getpgrp(),
        "began": time.time(),
        "blocked": sorted(int(number) for number in signal.pthread_sigmask(signal.SIG_BLOCK, [])),
        "ignored": [n for n in range(1, 32) if _is_ignored(n)],
        "spool": [json.loads(path.read_text()) for path in sorted(spool.glob("*.json"))],
    }
    Path(note).write_text(json.dumps(facts))


def _is_ignored(number: int) -> bool:
    """True if the signal was ignored when this process started. Read from the kernel, since Python itself ignores some
    signals."""
    status = dict(line.split(":\t", 1) for line in Path("/proc/self/status").read_text().splitlines() if ":\t" in line)
    python_ignores = {signal.SIGPIPE, signal.SIGXFSZ}
    return number not in python_ignores and bool(int(status["SigIgn"], 16) >> (number - 1) & 1)


def _ends(word: str, how: str) -> None:
    if word == "silent":
        time.sleep(float(how))
    elif word == "exit":
        raise SystemExit(int(how))
    else:
        with contextlib.suppress(OSError):  # SIGKILL cannot be anything else
            signal.signal(int(how), signal.SIG_DFL)
        os.kill(os.getpid(), int(how))
        time.sleep(5)


def _say(text: str) -> None:
    with contextlib.suppress(OSError):  # the terminal may be gone
        os.write(1, text.encode() + b"\n")


def _wait(*, for_ever: bool = False) -> None:
    heard: list[str] = []

    def hear(number: int, _frame: object) -> None:
        heard.append(signal.Signals(number).name)
        Path(os.environ["STUB_NOTE"] + ".signal").write_text(" ".join(heard))
        _say(heard[-1])

    for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1):
        signal.signal(number, hear)
    _say("READY")
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline and ("SIGTERM" not in heard if for_ever else not heard):
        time.sleep(0.01)


def _stop() -> None:
    os.kill(os.getpid(), signal.SIGSTOP)
    _say("AWAKE")


def _read() -> None:
    _say("ASK")
    with open("/dev/tty", encoding="utf-8") as terminal:
        _say("GOT " + terminal.readline().strip())


def _size() -> None:
    _say(f"COLUMNS {os.get_terminal_size(0).columns}")


def _session_and_folder() -> tuple[str, Path]:
    config = Path(os.environ.get("CLAUDE_CONFIG_DIR") or Path.home() / ".claude")
    folder = config / "projects" / re.sub("[^A-Za-z0-9]", "-", os.path.realpath("."))
    words = sys.argv[1:]
    for option in ("--session-id", "--resume", "-r"):
        if option in words and words.index(option) + 1 < len(words):
            return words[words.index(option) + 1], folder
    if chosen := os.environ.get("STUB_SESSION"):
        return chosen, folder
    newest = max(folder.glob("*.jsonl"), key=lambda path: path.stat().st_mtime_ns, default=None)
    return (newest.stem if newest else "11111111-0000-4000-8000-000000000000"), folder


def _live() -> None:
    session, folder = _session_and_folder()
    entry = folder.parent.parent / "sessions" / f"{os.getpid()}.json"
    entry.parent.mkdir(parents=True, exist_ok=True)
    facts = {"pid": os.getpid(), "sessionId": session, "cwd": os.path.realpath("."), "status": "busy", "name": ""}
    entry.write_text(json.dumps(facts))


def _clear() -> None:
    sys.argv[1:] = ["--session-id", os.environ["STUB_CLEARED"]]
    _live()


def _background() -> None:
    if os.fork() == 0:
        os.setsid()
        for number in (0, 1, 2):
            os.close(number)
        time.sleep(0.5)
        sys.argv[1:] = ["--session-id", os.environ["STUB_BACKGROUND"]]
        _live()
        _talk()
        time.sleep(float(os.environ.get("STUB_LIVES", "3")))
        os._exit(0)


def _talk() -> None:
    session, folder = _session_and_folder()
    _converse(folder / f"{session}.jsonl", session, SECRET)
    agent = folder / session / "subagents" / "agent-a0123456789abcdef.jsonl"
    _converse(agent, session, SUBAGENT_SECRET, isSidechain=True, agentId="a0123456789abcdef")


def _converse(path: Path, session: str, words: str, **marks: Any) -> None:
    """A prompt and its answer, with a tool result between, in the form of a recent client."""
    path.parent.mkdir(parents=True, exist_ok=True)
    stem = os.urandom(6).hex()
    lines: list[dict[str, Any]] = [
        {"type": "user", "message": {"role": "user", "content": f"{words}, says the prompt"}},
        {
            "type": "assistant",
            **_answer(
                f"msg_{stem}_1",
                {
                    "type": "tool_use",
                    "id": f"t_{stem}",
                    "name": "Read",
                    "input": {"file_path": "/etc/motd", "why": words},
                },
            ),
        },
        {
            "type": "user",
            "message": {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": f"t_{stem}", "content": f"{words}, says the file " * 100}
                ],
            },
        },
        {"type": "assistant", **_answer(f"msg_{stem}_2", {"type": "text", "text": f"{words}, says the answer"})},
    ]
    parent = None
    with path.open("a") as transcript:
        for number, line in enumerate(lines):
            uuid = f"{stem}-{number}"
            now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"
            envelope = {
                "uuid": uuid,
                "parentUuid": parent,
                "isSidechain": False,
                "timestamp": now,
                "sessionId": session,
                "cwd": os.path.realpath("."),
                "gitBranch": "HEAD",
                "version": "2.1.325",
            }
            transcript.write(json.dumps({**envelope, **line, **marks}) + "\n")
            parent = uuid


def _answer(message_id: str, block: dict[str, Any]) -> dict[str, Any]:
    usage = {
        "input_tokens": 100,
        "output_tokens": 50,
        "cache_read_input_tokens": 1000,
        "cache_creation_input_tokens": 0,
    }
    stop = "tool_use" if block["type"] == "tool_use" else "end_turn"
    message = {
        "id": message_id,
        "role": "assistant",
        "model": "claude-sonnet-4-5",
        "content": [block],
        "stop_reason": stop,
        "stop_details": None,
        "usage": usage,
    }
    return {"message": message, "requestId": f"req_{message_id}"}


_DEEDS = {
    "talk": _talk,
    "live": _live,
    "clear": _clear,
    "background": _background,
    "wait": _wait,
    "wait-all": lambda: _wait(for_ever=True),
    "stop": _stop,
    "read": _read,
    "size": _size,
}


if __name__ == "__main__":
    main()
